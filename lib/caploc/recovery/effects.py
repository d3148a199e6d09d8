"""The effect of every head on every capability, as a table."""

from collections.abc import Mapping

import pandas as pd

from caploc.heads import HeadGrid
from caploc.recovery.doubt import Doubt
from caploc.recovery.fits import Fit


def effects_table(
    fits: Mapping[str, Fit], doubts: Mapping[str, Doubt], chosen: Mapping[str, list[int]], grid: HeadGrid
) -> pd.DataFrame:
    """Return a row a capability and head.

    Returns
    -------
    DataFrame
        ``capability, layer, head, effect, stderr, ci_low, ci_high, standardized, selected, chosen``: the
        effect on the score with its standard error and 90 % interval, the effect in standard deviations of
        the masks' scores, the probability of being chosen, and whether it was.
    """
    parts = []
    for name, fit in fits.items():
        part = pd.DataFrame(grid.heads, columns=["layer", "head"])
        part.insert(0, "capability", name)
        part["effect"] = fit.effects
        for column in ("stderr", "ci_low", "ci_high"):
            part[column] = getattr(doubts[name], column)
        part["standardized"] = fit.effects / fit.response.scale
        part["selected"] = doubts[name].selected
        part["chosen"] = part.index.isin(chosen.get(name, []))
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
