"""From the effects of all capabilities to the few heads of each."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd

from caploc.heads import HeadGrid


def localize(
    effects: pd.DataFrame,
    grid: HeadGrid,
    *,
    sparsity: int,
    objective: str,
    weight: float,
    controls: Collection[str] = (),
) -> dict[str, Any]:
    """Choose the heads of every capability.

    A head's *need* is the standardized drop of a capability's score when the head is knocked out. The
    target objective ranks heads by the capability's own need (the paper's ranking); the contrast
    objective subtracts `weight` times the mean of the other capabilities' needs, where positive. Only
    heads that the capability needs, and needs by more than that, are ever chosen, so there may be fewer
    than `sparsity`.

    Parameters
    ----------
    effects : DataFrame
        As :func:`caploc.recovery.effects.estimate_effects` returns it.
    grid : HeadGrid
        The model's heads.
    sparsity : int
        Heads to choose for a capability, at most.
    objective : {'contrast', 'target'}
        How heads are ranked.
    weight : float
        Weight of the harm to the others, in the contrast objective.
    controls : collection of str
        Capabilities that count as harmed but get no heads.

    Returns
    -------
    dict
        ``sparsity, objective, weight, heads``; ``heads`` gives for each capability ``chosen`` and, for
        comparison, the ``target`` objective's heads, each in rank order.
    """
    need = -effects.pivot(index="capability", columns=["layer", "head"], values="standardized")
    need = need.reindex(index=effects["capability"].unique(), columns=pd.MultiIndex.from_tuples(grid.heads))
    harm = need.clip(lower=0)
    chosen = {}
    for capability in need.index[~need.index.isin(list(controls))]:
        target = need.loc[capability].to_numpy()
        others = harm.drop(index=capability)
        spill = others.mean().to_numpy() if len(others) else np.zeros(len(grid))
        by_target = grid.names(_top(target, target, sparsity))
        by_contrast = grid.names(_top(target - weight * spill, target, sparsity))
        chosen[capability] = {
            "chosen": by_contrast if objective == "contrast" else by_target,
            "target": by_target,
        }
    return {"sparsity": sparsity, "objective": objective, "weight": weight, "heads": chosen}


def mark_chosen(effects: pd.DataFrame, localization: dict[str, Any]) -> pd.DataFrame:
    """Return the effects with a column ``chosen``."""
    chosen = {(c, name) for c, heads in localization["heads"].items() for name in heads["chosen"]}
    names = [f"L{layer}H{head}" for layer, head in zip(effects["layer"], effects["head"], strict=True)]
    return effects.assign(chosen=[pair in chosen for pair in zip(effects["capability"], names, strict=True)])


def _top(rank: np.ndarray, need: np.ndarray, k: int) -> list[int]:
    """Return the k heads of highest rank, of those with a positive rank and need; ties by flat index."""
    order = np.argsort(-rank, kind="stable")
    return [int(i) for i in order if rank[i] > 0 and need[i] > 0][:k]
