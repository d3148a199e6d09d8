"""The paper's Lasso against planted answers and against scikit-learn."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Lasso

from caploc import HeadGrid
from caploc.designs import sample_masks
from caploc.errors import CaplocError
from caploc.recovery.lasso import LassoRecovery

GRID = HeadGrid((8,) * 12)


def planted(effects, n_masks=120, noise=0.05, seed=0):
    rng = np.random.default_rng(seed)
    masks = sample_masks("balanced", len(GRID), n_masks, 0.06, seed)
    truth = np.zeros(len(GRID))
    truth[list(effects)] = list(effects.values())
    return masks, masks @ truth - 1 + rng.normal(0, noise, n_masks), truth


def test_planted_heads_are_recovered_with_their_signs_and_sizes():
    masks, scores, truth = planted({3: -2.0, 40: -1.0, 77: 0.8})
    fitted = LassoRecovery().fit(masks, scores)
    support = np.flatnonzero(np.abs(fitted.coef_) > 0.2)
    assert support.tolist() == [3, 40, 77]
    np.testing.assert_allclose(fitted.coef_[support], truth[support], atol=0.3)
    assert fitted.intercept_ == pytest.approx(-1, abs=0.1)
    assert np.corrcoef(fitted.predict(masks), scores)[0, 1] > 0.98


def test_it_is_scikit_learns_lasso_on_standardized_scores():
    masks, scores, _ = planted({3: -2.0, 40: -1.0})
    oracle = Lasso(alpha=0.01, max_iter=100_000, tol=1e-9).fit(
        masks.astype(float), (scores - scores.mean()) / scores.std()
    )
    fitted = LassoRecovery(alpha=0.01).fit(masks, scores)
    np.testing.assert_allclose(fitted.standardized_, oracle.coef_, atol=1e-6)
    np.testing.assert_allclose(fitted.coef_, oracle.coef_ * scores.std(), atol=1e-6)


def test_effects_do_not_depend_on_the_order_of_heads_or_the_unit_of_scores():
    masks, scores, _ = planted({3: -2.0, 40: -1.0}, noise=0.5)
    order = np.random.default_rng(1).permutation(len(GRID))
    fitted = LassoRecovery().fit(masks, scores)
    np.testing.assert_allclose(
        LassoRecovery().fit(masks[:, order], scores).coef_, fitted.coef_[order], atol=1e-5
    )
    scaled = LassoRecovery().fit(masks, 100 * scores - 7)
    np.testing.assert_allclose(scaled.coef_, 100 * fitted.coef_, atol=1e-3)


def test_alpha_may_be_a_fraction_of_the_least_that_zeroes_everything():
    masks, scores, _ = planted({3: -2.0, 40: -1.0})
    fitted = LassoRecovery(alpha=0.999, relative=True).fit(masks, scores)
    assert np.count_nonzero(fitted.coef_) == 1
    absolute = LassoRecovery(alpha=0.5 * fitted.alpha_max_).fit(masks, scores)
    np.testing.assert_allclose(
        LassoRecovery(alpha=0.5, relative=True).fit(masks, scores).coef_, absolute.coef_
    )


@pytest.mark.parametrize("alpha", [1.0, 1.5])
def test_an_alpha_that_zeroes_everything_is_named(alpha):
    masks, scores, _ = planted({3: -2.0})
    with pytest.raises(CaplocError, match="makes every effect zero"):
        LassoRecovery(alpha=alpha, relative=True).fit(masks, scores)
    with pytest.raises(CaplocError, match="makes every effect zero: it must be below 0"):
        LassoRecovery(alpha=alpha).fit(masks, scores)


@pytest.mark.parametrize("value", [0.0, -3.7])
def test_constant_scores_are_named(value):
    masks, _, _ = planted({})
    with pytest.raises(CaplocError, match="every one of the 120 masks has the same score"):
        LassoRecovery().fit(masks, np.full(120, value))


def test_the_estimator_can_be_cloned():
    assert clone(LassoRecovery(alpha=0.3, relative=True)).get_params() == {"alpha": 0.3, "relative": True}


def test_recovery_rises_with_masks_and_passes_a_threshold():
    def found(n_masks):
        hits = 0
        for seed in range(10):
            masks, scores, truth = planted({3: -1.0, 40: -1.0, 77: -1.0}, n_masks, 0.5, seed)
            best = np.argsort(LassoRecovery().fit(masks, scores).coef_)[:3]
            hits += set(best) == set(np.flatnonzero(truth))
        return hits / 10

    few, many = found(30), found(200)
    assert few < many
    assert many >= 0.9


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_must_be_finite(value):
    masks, scores, _ = planted({3: -2.0})
    scores[4] = value
    with pytest.raises(ValueError, match="finite"):
        LassoRecovery().fit(masks, scores)
