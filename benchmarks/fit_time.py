"""How long a whole recovery takes: fits, choices and doubts of all capabilities, on made-up scores.

    python benchmarks/fit_time.py

prints seconds and writes benchmarks/results/fit_time.json.
"""

import json
import os
import platform
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from caploc.designs import sample_masks
from caploc.findings import conclude
from caploc.heads import HeadGrid
from caploc.params import Localization
from caploc.recovery.fits import BayesFit, fit_all
from caploc.recovery.observations import Observations

RESULTS = Path(__file__).parent / "results" / "fit_time.json"


def main(
    layers: Annotated[int, typer.Option()] = 32,
    heads: Annotated[int, typer.Option(help="Heads a layer.")] = 32,
    masks: Annotated[int, typer.Option()] = 1000,
    capabilities: Annotated[int, typer.Option()] = 5,
    prompts: Annotated[int, typer.Option()] = 24,
    replicates: Annotated[int, typer.Option(help="Draws behind the doubts.")] = 100,
    out: Annotated[Path, typer.Option()] = RESULTS,
) -> None:
    """Time one recovery."""
    grid = HeadGrid((heads,) * layers)
    design = sample_masks("balanced", grid, masks, 0.02, 0).astype(float)
    observations = {f"c{i}": _made_up(design, prompts, seed=i) for i in range(capabilities)}
    start = time.perf_counter()
    fits = fit_all(design, observations, BayesFit)
    fitted = time.perf_counter()
    conclude(
        design,
        fits,
        list(fits),
        grid,
        localization=Localization(objective="joint", weight=3.0),
        sparsity=5,
        replicates=replicates,
        seed=0,
    )
    end = time.perf_counter()
    result = {
        "heads": len(grid),
        "masks": masks,
        "capabilities": capabilities,
        "prompts": prompts,
        "replicates": replicates,
        "fit_seconds": round(fitted - start, 1),
        "all_seconds": round(end - start, 1),
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
    }
    out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    Console().print_json(data=result)


def _made_up(design: np.ndarray, n_prompts: int, *, seed: int) -> Observations:
    rng = np.random.default_rng(seed)
    effects = rng.normal(0, 0.05, (n_prompts, design.shape[1]))
    effects[:, rng.choice(design.shape[1], 8, replace=False)] -= 1
    intact = rng.normal(1.5, 1, n_prompts)
    margin = intact + design @ effects.T + rng.normal(0, 0.5, (len(design), n_prompts))
    gradient = -effects + rng.normal(0, 0.1, effects.shape)
    correct = (margin > 0).astype(float)
    return Observations(margin, correct, margin, intact, intact, np.ones(n_prompts), gradient)


if __name__ == "__main__":
    typer.run(main)
