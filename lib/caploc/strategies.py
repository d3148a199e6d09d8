"""Other ways to a capability's heads, to compare compressed sensing with: sweep, greedy, Thompson sampling.

All of them ask the caller for the values of sets of heads, and ask for the same sets where the values are
the same: who keeps the values can kill a search and have it resumed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

HeadSet = tuple[int, ...]
Values = Callable[[Sequence[HeadSet]], np.ndarray]
"""Returns what knocking out each set of heads (flat indices, ascending) is worth, [n_sets]: higher = better,
0 = nothing, such as a target's drop less the harm to the others."""

_NOISE_RATIOS = np.geomspace(1e-3, 1e3, 25)  # variance of the noise over that of an effect


@dataclass(frozen=True)
class Search:
    """What a strategy found.

    Attributes
    ----------
    heads : tuple of int
        Flat indices, the best first.
    trace : tuple of ((int, ...), float)
        Every set that was valued, in order, with its value.
    """

    heads: HeadSet
    trace: tuple[tuple[HeadSet, float], ...]

    @property
    def evaluations(self) -> int:
        """How many sets were valued."""
        return len(self.trace)


def exhaustive(values: Values, n_heads: int, sparsity: int) -> Search:
    """Knock out every head alone and take the best: `n_heads` evaluations.

    Heads that stand in for each other are missed, as neither alone costs anything.

    Parameters
    ----------
    values : callable
        See :data:`Values`.
    n_heads : int
        The model's heads.
    sparsity : int
        Heads to return.
    """
    sets = [(head,) for head in range(n_heads)]
    worth = np.asarray(values(sets), dtype=float)
    return Search(_best(worth, sparsity), tuple(zip(sets, worth.tolist(), strict=True)))


def greedy(values: Values, n_heads: int, sparsity: int, candidates: Iterable[int] | None = None) -> Search:
    """Add, round by round, the head whose knockout beside those chosen already is worth most.

    Takes about `sparsity` evaluations a candidate, and sees what the chosen heads' knockout lays bare.

    Parameters
    ----------
    values : callable
        See :data:`Values`.
    n_heads : int
        The model's heads.
    sparsity : int
        Heads to return, in the order chosen.
    candidates : iterable of int, optional
        Heads that may be chosen; all by default.
    """
    left = sorted(set(range(n_heads) if candidates is None else candidates))
    chosen: list[int] = []
    trace: list[tuple[HeadSet, float]] = []
    while left and len(chosen) < sparsity:
        sets = [tuple(sorted([*chosen, head])) for head in left]
        worth = np.asarray(values(sets), dtype=float)
        trace += zip(sets, worth.tolist(), strict=True)
        chosen.append(left.pop(int(worth.argmax())))
    return Search(tuple(chosen), tuple(trace))


def thompson(values: Values, n_heads: int, sparsity: int, *, rounds: int, seed: int) -> Search:
    """Knock out, round by round, the heads that lead in a draw from the posterior of all effects.

    A linear-Gaussian bandit (Russo et al. 2018, arXiv 1707.02038): a set's value is the sum of its heads'
    effects plus noise, the effects are normal around 0, and both variances maximize the marginal likelihood
    of the values so far. Heads that may be among the best are tried the more often the likelier they are.

    Parameters
    ----------
    values : callable
        See :data:`Values`.
    n_heads : int
        The model's heads.
    sparsity : int
        Heads knocked out in each round, and heads to return: the best by posterior mean.
    rounds : int
        Evaluations at most; a round whose set was valued before takes none, as it would tell nothing new.
    seed : int
        The same seed and values give the same search.
    """
    observed: dict[HeadSet, float] = {}
    for number in range(rounds):
        effects = _posterior(observed, n_heads).draw(np.random.default_rng([seed, number]))
        heads = tuple(sorted(_best(effects, sparsity)))
        if heads not in observed:
            observed[heads] = float(values([heads])[0])
    return Search(_best(_posterior(observed, n_heads).mean(), sparsity), tuple(observed.items()))


@dataclass(frozen=True)
class _Posterior:
    """Normal effects of all heads given the values of some sets, by way of the sets' covariance."""

    knocked_out: np.ndarray  # [n_sets, n_heads], 1 = in the set
    worth: np.ndarray  # [n_sets]
    variance: float  # of an effect, before any set was valued
    noise: float  # variance

    def mean(self) -> np.ndarray:
        return self._toward(self.worth)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return effects drawn from the posterior: prior draws, corrected by what they miss of the values."""
        effects = rng.normal(0, self.variance**0.5, self.knocked_out.shape[1])
        noise = rng.normal(0, self.noise**0.5, len(self.worth))
        return effects + self._toward(self.worth - self.knocked_out @ effects - noise)

    def _toward(self, worth: np.ndarray) -> np.ndarray:
        covariance = self.variance * self.knocked_out @ self.knocked_out.T
        weights = np.linalg.solve(covariance + self.noise * np.eye(len(worth)), worth)
        return self.variance * self.knocked_out.T @ weights


def _posterior(observed: dict[HeadSet, float], n_heads: int) -> _Posterior:
    knocked_out = np.zeros((len(observed), n_heads))
    for row, heads in enumerate(observed):
        knocked_out[row, list(heads)] = 1
    worth = np.array(list(observed.values()))
    if not worth.any():
        return _Posterior(knocked_out, worth, variance=1.0, noise=1.0)
    spectrum, basis = np.linalg.eigh(knocked_out @ knocked_out.T)
    scale = spectrum[:, None] + _NOISE_RATIOS  # [n_sets, n_ratios], times the effects' variance
    variances = ((basis.T @ worth)[:, None] ** 2 / scale).mean(axis=0)
    likelihood = -len(worth) * np.log(variances) - np.log(scale).sum(axis=0)
    best = int(likelihood.argmax())
    return _Posterior(knocked_out, worth, variances[best], variances[best] * _NOISE_RATIOS[best])


def _best(worth: np.ndarray, count: int) -> HeadSet:
    """Return the heads worth most, the best first; ties by their number."""
    return tuple(np.argsort(-worth, kind="stable")[:count].tolist())
