"""What recovery found, as people act on it: heads, verdicts, and what they rest on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from caploc.heads import HeadGrid
from caploc.localization import choose, worth
from caploc.params import Localization
from caploc.recovery.doubt import Doubt, doubts
from caploc.recovery.effects import effects_table
from caploc.recovery.fits import Fit
from caploc.recovery.interactions import pair_interactions

_CLEAR = 3.0  # standard errors
_SURE = 0.05  # p-value
_ENOUGH = 0.1  # of the worth that the chosen heads have


@dataclass(frozen=True)
class Findings:
    """What was found.

    Parameters
    ----------
    effects : DataFrame
        Every head of every capability; see :func:`caploc.recovery.effects.effects_table`.
    interactions : DataFrame
        ``capability`` and the columns of :func:`caploc.recovery.interactions.pair_interactions`, heads by
        name: what pairs of a capability's leading heads do beyond the sum of both.
    heads : dict
        ``heads``: for each capability ``chosen`` heads in rank order; ``target``, those that its own drop
        alone would choose; ``selected``, the probability of each chosen head; ``harmful``, heads whose
        knockout clearly helps; ``p_value`` and ``found``, whether masks held out bear the heads out;
        ``regret``, ``enough_masks`` and ``learning``, what more masks can buy. ``universal``: heads that most
        capabilities clearly need.
    """

    effects: pd.DataFrame
    interactions: pd.DataFrame
    heads: dict[str, Any]


def conclude(
    masks: np.ndarray,
    fits: Mapping[str, Fit],
    localized: Sequence[str],
    grid: HeadGrid,
    *,
    localization: Localization,
    sparsity: int,
    replicates: int,
    seed: int,
) -> Findings:
    """Choose the heads of every capability, and doubt them.

    Parameters
    ----------
    masks : ndarray, [n_masks, n_heads]
        1 = knocked out.
    fits : mapping of str to Fit
        Of all capabilities and controls.
    localized : sequence of str
        The capabilities that get heads: all but the controls.
    grid : HeadGrid
        The model's heads.
    localization : Localization
        How heads are chosen.
    sparsity : int
        Heads to choose for a capability, at most.
    replicates, seed : int
        As :func:`caploc.recovery.doubt.doubts` takes them.
    """
    pick = partial(choose, sparsity=sparsity, objective=localization.objective, weight=localization.weight)
    responses = {name: fit.response for name, fit in fits.items()}
    chosen = {name: pick(responses, name) for name in localized}
    target = {name: pick(responses, name, objective="target") for name in localized}
    judge = partial(worth, weight=0.0 if localization.objective == "target" else localization.weight)
    doubt = doubts(masks, fits, chosen, pick, judge, replicates=replicates, seed=seed)
    effects = effects_table(fits, doubt, chosen, grid)
    z = effects["effect"].div(effects["stderr"].where(effects["stderr"] > 0)).fillna(0)
    clear = effects.assign(z=z, index=np.tile(np.arange(len(grid)), len(fits)))
    heads = {
        name: {
            "chosen": grid.names(chosen[name]),
            "target": grid.names(target[name]),
            "harmful": _harmful(clear[clear["capability"] == name], grid, sparsity),
            **_doubted(doubt[name], chosen[name], grid),
        }
        for name in localized
    }
    summary = {
        "sparsity": sparsity,
        **localization.model_dump(),
        "masks": len(masks),
        "heads": heads,
        "universal": _universal(clear[clear["capability"].isin(localized)], grid),
    }
    return Findings(effects, _interactions(masks, fits, chosen, grid), summary)


def _doubted(doubt: Doubt, chosen: list[int], grid: HeadGrid) -> dict[str, Any]:
    return {
        "selected": dict(zip(grid.names(chosen), doubt.selected[chosen].round(4).tolist(), strict=True)),
        "p_value": doubt.p_value,
        "found": bool(chosen) and doubt.p_value < _SURE,
        "regret": doubt.regret,
        "enough_masks": doubt.regret <= _ENOUGH * doubt.learning[-1]["worth"],
        "learning": doubt.learning,
    }


def _harmful(clear: pd.DataFrame, grid: HeadGrid, most: int) -> list[str]:
    return grid.names(clear[clear["z"] > _CLEAR].nlargest(most, "effect")["index"].tolist())


def _universal(clear: pd.DataFrame, grid: HeadGrid) -> list[str]:
    """Return the heads that more than half of the capabilities (three at least) clearly need, most first."""
    needed_by = clear[clear["z"] < -_CLEAR].groupby("index").size()
    most = needed_by[(needed_by > clear["capability"].nunique() / 2) & (needed_by >= 3)]
    return grid.names(most.sort_values(ascending=False, kind="stable").index.tolist())


def _interactions(
    masks: np.ndarray, fits: Mapping[str, Fit], chosen: Mapping[str, list[int]], grid: HeadGrid
) -> pd.DataFrame:
    parts = []
    for name, heads in chosen.items():
        effects = fits[name].effects
        candidates = [*heads, *np.setdiff1d(np.argsort(effects, kind="stable")[: 2 * len(heads)], heads)]
        some = sorted(candidates[: len(masks) // 2])  # the masks must tell them all apart
        pairs = pair_interactions(masks, fits[name].scores, some)
        pairs.insert(0, "capability", name)
        parts.append(pairs)
    table = pd.concat(parts, ignore_index=True)
    return table.assign(head_a=grid.names(table["head_a"]), head_b=grid.names(table["head_b"]))
