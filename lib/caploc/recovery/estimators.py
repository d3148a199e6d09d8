"""Every estimator of heads' effects, by name."""

from collections.abc import Callable
from functools import partial
from inspect import signature

from caploc.errors import CaplocError, did_you_mean
from caploc.recovery.adaptive_lasso import AdaptiveLassoRecovery
from caploc.recovery.ard import ARDRecovery
from caploc.recovery.elastic_net import ElasticNetRecovery
from caploc.recovery.lasso import LassoRecovery
from caploc.recovery.lasso_path import LassoPathRecovery
from caploc.recovery.omp import OMPRecovery
from caploc.recovery.prior_ridge import PriorRidgeRecovery
from caploc.recovery.regression import MaskRegression
from caploc.recovery.stability import StabilityRecovery
from caploc.recovery.swaps import BestSubsetRecovery

ESTIMATORS: dict[str, Callable[..., MaskRegression]] = {
    "lasso": LassoRecovery,
    "lasso_cv": partial(LassoPathRecovery, choose="cv"),
    "lasso_bic": partial(LassoPathRecovery, choose="bic"),
    "adaptive_lasso": AdaptiveLassoRecovery,
    "prior_ridge": PriorRidgeRecovery,
    "elastic_net": ElasticNetRecovery,
    "omp": OMPRecovery,
    "best_subset": BestSubsetRecovery,
    "stability": StabilityRecovery,
    "ard": ARDRecovery,
}


def make_estimator(
    name: str, *, alpha: float, alpha_relative: bool, sparsity: int, seed: int
) -> MaskRegression:
    """Return an unfitted estimator, given those of the settings that it takes.

    Parameters
    ----------
    name : str
        A key of `ESTIMATORS`.
    alpha, alpha_relative
        The penalty of ``lasso``, and whether it is a fraction of the least that makes every effect zero.
    sparsity : int
        The number of heads that ``omp`` and ``best_subset`` take.
    seed : int
        Seed of folds and halves.

    Raises
    ------
    CaplocError
        If there is no such estimator.
    """
    if name not in ESTIMATORS:
        raise CaplocError(
            f'there is no estimator "{name}"{did_you_mean(name, list(ESTIMATORS))}; '
            f"recovery.estimator is one of {', '.join(ESTIMATORS)}"
        )
    factory = ESTIMATORS[name]
    settings = {"alpha": alpha, "relative": alpha_relative, "sparsity": sparsity, "random_state": seed}
    takes = signature(factory).parameters
    return factory(**{setting: value for setting, value in settings.items() if setting in takes})
