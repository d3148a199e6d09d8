"""Best subset selection by exchange: a given number of heads, none of which has a better replacement."""

import numpy as np
from scipy.linalg import solve_triangular

from caploc.recovery.regression import MaskRegression

# A column that keeps less of its length than this beside the others is their combination.
INDEPENDENT = 1e-9


class BestSubsetRecovery(MaskRegression):
    """Least squares on a set of `sparsity` heads that no exchange of one head improves.

    Seeks ``min ||z - X b||^2`` over all b of at most `sparsity` non-zeros: forward selection, each step by
    the gain in residual sum of squares after projection, then, until nothing changes, each member in turn
    gives way to the best head beside the other members (Efroymson's replacement, Miller 2002, Subset
    Selection in Regression, 3.5). The optimum is a local one; effects are not shrunk. It always takes
    `sparsity` heads, so the data do not say whether there are any.

    Parameters
    ----------
    sparsity : int
        The number of heads.

    Attributes
    ----------
    n_swaps_ : int
        How often a member gave way after forward selection.
    """

    def __init__(self, sparsity: int = 5) -> None:
        self.sparsity = sparsity

    def _solve(self, X: np.ndarray, z: np.ndarray, prior: np.ndarray | None) -> np.ndarray:  # noqa: ARG002
        gram, target = X.T @ X, X.T @ z
        members: list[int] = []
        for _ in range(min(self.sparsity, *X.shape)):
            gains = _gains(gram, target, members)
            if not gains.any():
                break
            members.append(int(gains.argmax()))
        self.n_swaps_ = _swap(gram, target, members)
        effects = np.zeros(X.shape[1])
        effects[members] = np.linalg.lstsq(X[:, members], z, rcond=None)[0]
        return effects


def _swap(gram: np.ndarray, target: np.ndarray, members: list[int]) -> int:
    """Exchange members in place until none has a better replacement; return how many exchanges it took."""
    swaps = since_last = place = 0
    while since_last < len(members):
        gains = _gains(gram, target, members[:place] + members[place + 1 :])
        best = int(gains.argmax())
        # Every exchange lowers the residual sum of squares by more than rounding, so this ends.
        if gains[best] > gains[members[place]] * (1 + 1e-9):
            members[place] = best
            swaps += 1
            since_last = 0
        since_last += 1
        place = (place + 1) % len(members)
    return swaps


def _gains(gram: np.ndarray, target: np.ndarray, members: list[int]) -> np.ndarray:
    """Return how much each head, added to the members, lowers the residual sum of squares, [n_heads].

    ``(x_j' r)^2 / ||x_j - P x_j||^2``, r being the residual and P the projection on the members; 0 for what
    the members already span.
    """
    root = np.linalg.cholesky(gram[np.ix_(members, members)])
    projected = solve_triangular(root, np.column_stack([gram[members], target[members]]), lower=True)
    heads, scores = projected[:, :-1], projected[:, -1]
    left = gram.diagonal() - (heads**2).sum(0)
    independent = left > INDEPENDENT * gram.diagonal().max()
    return np.where(independent, (target - scores @ heads) ** 2 / np.where(independent, left, 1), 0)
