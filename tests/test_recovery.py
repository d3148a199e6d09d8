"""Recovery against planted answers and against scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import Lasso

from caploc import HeadGrid
from caploc.designs import sample_masks
from caploc.errors import CaplocError
from caploc.localization import localize, mark_chosen
from caploc.recovery.effects import bootstrap_stderr, estimate_effects, mask_scores
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
    with pytest.raises(CaplocError, match="addition: every one of the 120 masks has the same score"):
        estimate_effects(masks, {"addition": np.full(120, value)}, GRID, LassoRecovery(), bootstrap=2, seed=0)


def test_the_estimator_can_be_cloned():
    assert clone(LassoRecovery(alpha=0.3, relative=True)).get_params() == {"alpha": 0.3, "relative": True}


def test_standard_errors_shrink_with_masks_and_grow_with_noise():
    def stderr(n_masks, noise):
        masks, scores, _ = planted({3: -2.0, 40: -1.0}, n_masks, noise)
        return bootstrap_stderr(LassoRecovery(), masks, scores, 40, seed=0)[3]

    assert stderr(400, 0.3) < stderr(100, 0.3) < stderr(100, 1.5)


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


def measurements(logprob, correct, valid):
    n = len(logprob)
    return pd.DataFrame(
        {
            "mask_id": np.repeat([0, 1], n // 2),
            "prompt_id": ["a", "b"] * (n // 2),
            "logprob": logprob,
            "correct": pd.array(correct, dtype="boolean"),
            "valid": valid,
        }
    )


def test_prompts_that_are_not_valid_count_for_nothing():
    table = measurements([-1.0, np.nan, -2.0, -4.0], [True, None, False, True], [True, False, True, True])
    np.testing.assert_array_equal(mask_scores(table, "logprob"), [-1, -3])
    np.testing.assert_array_equal(mask_scores(table, "accuracy"), [1, 0.5])


def test_a_mask_without_a_valid_prompt_is_named():
    table = measurements([np.nan, np.nan, -2.0, -4.0], [None, None, False, True], [False, False, True, True])
    with pytest.raises(CaplocError, match="under mask 0"):
        mask_scores(table, "logprob")


def test_a_control_keeps_its_logprob_when_scored_by_accuracy():
    table = measurements([-1.0, -2.0, -3.0, -4.0], [None] * 4, [True] * 4)
    np.testing.assert_array_equal(mask_scores(table, "accuracy"), [-1.5, -3.5])


def effects_of(**standardized):
    frames = []
    for capability, values in standardized.items():
        frame = pd.DataFrame(GRID.heads, columns=["layer", "head"])
        frame["capability"] = capability
        frame["standardized"] = 0.0
        frame.loc[list(values), "standardized"] = list(values.values())
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def choose(effects, objective="contrast", sparsity=3, controls=("prose",)):
    result = localize(effects, GRID, sparsity=sparsity, objective=objective, weight=2.0, controls=controls)
    return result["heads"]


def test_contrast_passes_universal_heads_over_and_target_takes_them():
    effects = effects_of(
        addition={0: -5.0, 10: -3.0, 20: -1.0},
        capitals={0: -5.0, 30: -2.0},
        prose={0: -4.0, 20: -9.0},
    )
    heads = choose(effects)
    assert heads["addition"] == {"chosen": ["L1H2"], "target": ["L0H0", "L1H2", "L2H4"]}
    assert heads["capitals"] == {"chosen": ["L3H6"], "target": ["L0H0", "L3H6"]}
    assert choose(effects, objective="target")["addition"]["chosen"] == ["L0H0", "L1H2", "L2H4"]
    assert "prose" not in heads


def test_harmful_heads_are_never_chosen():
    effects = effects_of(addition={5: 9.0, 6: -1.0}, capitals={7: -1.0})
    assert choose(effects)["addition"]["chosen"] == ["L0H6"]
    assert choose(effects, objective="target")["addition"]["chosen"] == ["L0H6"]


def test_ranks_follow_sizes_and_ties_follow_the_grid():
    effects = effects_of(addition={9: -1.0, 2: -1.0, 50: -3.0, 60: -0.5})
    assert choose(effects, controls=())["addition"]["chosen"] == ["L6H2", "L0H2", "L1H1"]


def test_chosen_heads_are_marked():
    effects = effects_of(addition={50: -3.0}, capitals={7: -1.0})
    localization = localize(effects, GRID, sparsity=1, objective="contrast", weight=2.0)
    marked = mark_chosen(effects, localization)
    found = marked.loc[marked["chosen"], ["capability", "layer", "head"]].to_numpy().tolist()
    assert found == [["addition", 6, 2], ["capitals", 0, 7]]


def test_a_resample_without_variation_does_not_stop_the_bootstrap():
    masks, _, _ = planted({})
    scores = np.ones(120)
    scores[0] = 0
    stderr = bootstrap_stderr(LassoRecovery(), masks, scores, 30, seed=0)
    assert np.isfinite(stderr).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_must_be_finite(value):
    masks, scores, _ = planted({3: -2.0})
    scores[4] = value
    with pytest.raises(ValueError, match="finite"):
        LassoRecovery().fit(masks, scores)
