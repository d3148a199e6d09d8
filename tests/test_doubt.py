"""How sure findings are, on data whose truth is known; and that nothing is found where nothing is."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from caploc import HeadGrid
from caploc.designs import sample_masks
from caploc.errors import CaplocError
from caploc.findings import conclude
from caploc.localization import choose
from caploc.params import Localization, load_params
from caploc.recovery.estimators import make_estimator
from caploc.recovery.fits import BayesFit, MaskFit, fit_all, mask_scores, method
from caploc.recovery.observations import Observations, observe

GRID = HeadGrid((8,) * 12)
PLANTED = {"addition": {3: -2.0, 40: -2.0}, "capitals": {40: -2.0, 77: -2.0}, "antonyms": {40: -2.0, 9: 1.5}}
LASSO = partial(
    MaskFit,
    estimator=make_estimator("lasso", alpha=0.01, alpha_relative=False, sparsity=2, seed=0),
    score="margin",
)
METHODS = {"bayes": BayesFit, "lasso": LASSO}


def observed(masks, by_head, seed, n_prompts=10, noise=1.0, *, gradient=False):
    """Margins about 1.5, each head's effect somewhat different by prompt."""
    rng = np.random.default_rng(seed)
    effects = np.zeros((n_prompts, masks.shape[1]))
    for head, effect in by_head.items():
        effects[:, head] = effect * rng.uniform(0.7, 1.3, n_prompts)
    intact = rng.normal(1.5, 1, n_prompts)
    error = noise * rng.normal(size=(len(masks), n_prompts)) + 0.3 * noise * rng.normal(size=(len(masks), 1))
    margin = intact + masks @ effects.T + error
    told = -(effects + 0.2 * rng.normal(size=effects.shape)) if gradient else None
    logprob = np.minimum(margin, 0) - 0.1
    return Observations(
        logprob,
        (margin > 0).astype(float),
        margin,
        np.minimum(intact, 0) - 0.1,
        intact,
        np.ones(n_prompts),
        told,
    )


def concluded(fit_one, n_masks=160, seed=0, planted=PLANTED, noise=1.0, *, gradient=False, replicates=20):
    masks = sample_masks("balanced", len(GRID), n_masks, 0.06, seed).astype(float)
    observations = {
        name: observed(masks, by_head, [seed, i], noise=noise, gradient=gradient)
        for i, (name, by_head) in enumerate(planted.items())
    }
    return conclude(
        masks,
        fit_all(masks, observations, fit_one),
        list(planted),
        GRID,
        localization=Localization(objective="joint", weight=1.0),
        sparsity=2,
        replicates=replicates,
        seed=0,
    )


@pytest.mark.parametrize("fit_one", METHODS.values(), ids=METHODS)
def test_what_was_planted_is_found_and_sure(fit_one):
    found = concluded(fit_one).heads
    assert found["heads"]["addition"]["chosen"][0] == "L0H3"
    assert found["heads"]["capitals"]["chosen"][0] == "L9H5"
    for name, head in (("addition", "L0H3"), ("capitals", "L9H5")):
        assert found["heads"][name]["selected"][head] > 0.9
        assert found["heads"][name]["found"]
        assert found["heads"][name]["p_value"] < 1e-4
    assert found["universal"] == ["L5H0"]


@pytest.mark.parametrize("fit_one", METHODS.values(), ids=METHODS)
def test_a_head_whose_knockout_helps_is_reported_and_never_chosen(fit_one):
    antonyms = concluded(fit_one).heads["heads"]["antonyms"]
    assert antonyms["harmful"] == ["L1H1"]
    assert "L1H1" not in antonyms["chosen"] + antonyms["target"]
    assert antonyms["target"][0] == "L5H0"


@pytest.mark.parametrize(("fit_one", "gradient"), [(BayesFit, False), (BayesFit, True), (LASSO, False)])
def test_nothing_is_called_found_where_no_head_matters(fit_one, gradient):
    null = {"addition": {}, "capitals": {}}
    p_values = []
    for seed in range(20):
        found = concluded(fit_one, 60, seed, null, gradient=gradient, replicates=2).heads["heads"]
        p_values += [found[name]["p_value"] for name in null]
        for name in null:
            assert found[name]["found"] == (found[name]["p_value"] < 0.05 and bool(found[name]["chosen"]))
    assert np.mean(np.array(p_values) < 0.05) <= 0.1  # 40 draws: more than 4 in 1 of 20 runs by chance
    assert np.median(p_values) > 0.2


def test_masks_that_come_twice_prove_nothing():
    """Scores are the model's, without noise of their own: a twin held out was seen."""
    grid, p_values = HeadGrid((6, 6)), []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        masks = np.zeros((100, 12))
        for mask in masks:
            mask[rng.choice(12, 2, replace=False)] = 1
        distinct, number = np.unique(masks, axis=0, return_inverse=True)
        margin = 1.5 + rng.normal(0, 1, (len(distinct), 8))[number.ravel()]
        seen = Observations(margin, (margin > 0) * 1.0, margin, *(np.full(8, 1.5),) * 2, np.ones(8))
        localization = Localization(objective="joint", weight=1.0)
        found = conclude(
            masks,
            fit_all(masks, {"addition": seen}, BayesFit),
            ["addition"],
            grid,
            localization=localization,
            sparsity=2,
            replicates=2,
            seed=0,
        )
        p_values.append(found.heads["heads"]["addition"]["p_value"])
    assert np.mean(np.array(p_values) < 0.05) <= 0.2


def test_heads_of_answers_beyond_doubt_are_found():
    masks = sample_masks("balanced", len(GRID), 120, 0.06, 0).astype(float)
    effects = np.zeros((6, len(GRID)))
    effects[:, [3, 40]] = -30
    margin = 50 + masks @ effects.T + np.random.default_rng(0).normal(0, 0.5, (120, 6))
    seen = Observations(margin, (margin > 0) * 1.0, margin, *(np.full(6, 50.0),) * 2, np.ones(6), -effects)
    responses = {"addition": BayesFit(masks, seen).response}
    assert sorted(choose(responses, "addition", sparsity=2, objective="joint", weight=1.0)) == [3, 40]


@pytest.mark.parametrize("fit_one", METHODS.values(), ids=METHODS)
def test_more_masks_leave_less_doubt(fit_one):
    few, many = (concluded(fit_one, n, noise=2.0) for n in (50, 250))
    few_addition, many_addition = (run.heads["heads"]["addition"] for run in (few, many))
    assert many_addition["regret"] < few_addition["regret"]
    assert many.effects["stderr"].mean() < few.effects["stderr"].mean()
    learning = many_addition["learning"]
    assert [point["masks"] for point in learning] == [62, 125, 188, 250]
    assert learning[-1]["agreement"] == 1
    assert learning[-1]["worth"] >= learning[0]["worth"]


def test_enough_masks_are_called_enough():
    both_alone = {"addition": {3: -2.0, 40: -2.0}, "capitals": {77: -2.0, 12: -2.0}}
    few, many = (
        concluded(BayesFit, n, planted=both_alone, noise=noise) for n, noise in ((20, 2.0), (200, 0.5))
    )
    assert all(many.heads["heads"][name]["enough_masks"] for name in both_alone)
    assert not any(few.heads["heads"][name]["enough_masks"] for name in both_alone)


def test_effects_come_with_intervals_that_hold_them():
    effects = concluded(BayesFit).effects
    assert list(effects.columns) == [
        *("capability", "layer", "head", "effect", "stderr", "ci_low", "ci_high", "standardized"),
        *("selected", "chosen"),
    ]
    assert len(effects) == 3 * len(GRID)
    assert (
        (effects["ci_low"] <= effects["effect"]) & (effects["effect"] <= effects["ci_high"])
    ).mean() > 0.95
    addition = effects[effects["capability"] == "addition"].reset_index(drop=True)
    assert addition["effect"].nsmallest(2).index.isin([3, 40]).all()
    assert addition.loc[3, "effect"] < addition.loc[3, "ci_high"] < 0
    assert addition.loc[addition["chosen"], "selected"].min() > 0


def test_the_same_seed_gives_the_same_findings():
    one, two = (concluded(BayesFit, 60, replicates=5) for _ in range(2))
    pd.testing.assert_frame_equal(one.effects, two.effects)
    pd.testing.assert_frame_equal(one.interactions, two.interactions)
    assert one.heads == two.heads


def test_a_resample_without_variation_does_not_stop_the_bootstrap():
    masks = sample_masks("balanced", len(GRID), 40, 0.06, 0).astype(float)
    flat = observed(masks, {}, 0, noise=0.0)
    margin = np.tile(flat.intact_margin, (40, 1))
    margin[0] -= 1
    one_differs = Observations(*(margin,) * 3, *(flat.intact_margin,) * 2, flat.tokens)
    fit = LASSO(masks, one_differs)
    rng = np.random.default_rng(0)
    assert all(np.isfinite(fit.replicate(rng)[0]).all() for _ in range(30))


def tables(logprob, correct, valid):
    n = len(logprob)
    measured = pd.DataFrame(
        {
            "mask_id": np.repeat([0, 1], n // 2),
            "prompt_id": ["a", "b"] * 2,
            "logprob": logprob,
            "correct": pd.array(correct, dtype="boolean"),
            "margin": logprob if correct[0] is not None or correct[-1] is not None else [np.nan] * n,
            "valid": valid,
        }
    )
    intact = pd.DataFrame(
        {
            "capability": "addition",
            "split": "measure",
            "prompt_id": ["a", "b"],
            "logprob": [-1.0, -1.0],
            "margin": [0.5, 0.5],
            "tokens": [1, 2],
        }
    )
    none = pd.DataFrame({"capability": [], "prompt_id": [], "gradient": []})
    return observe({"addition": measured}, intact, none)["addition"]


def test_prompts_that_are_not_valid_count_for_nothing():
    seen = tables([-1.0, np.nan, -2.0, -4.0], [True, None, False, True], [True, False, True, True])
    np.testing.assert_array_equal(mask_scores(seen, "logprob"), [0, -2])
    np.testing.assert_array_equal(mask_scores(seen, "accuracy"), [1, 0.5])
    np.testing.assert_allclose(mask_scores(seen, "logit_accuracy"), [np.log(3), 0])
    np.testing.assert_allclose(seen.changes()[1], [[-1.5, -1.5], [-2.5, -4.5]])


def test_a_mask_without_a_valid_prompt_is_named():
    with pytest.raises(CaplocError, match="addition: no prompt has finite scores under mask 0"):
        tables([np.nan, np.nan, -2.0, -4.0], [None, None, False, True], [False, False, True, True])


def test_a_control_is_scored_by_its_logprob_a_token():
    seen = tables([-1.0, -2.0, -3.0, -4.0], [None] * 4, [True] * 4)
    assert seen.is_control
    for score in ("accuracy", "logprob", "margin"):
        np.testing.assert_array_equal(mask_scores(seen, score), [-0.5, -2.5])
    np.testing.assert_array_equal(seen.changes()[0], [0, 0])
    np.testing.assert_array_equal(seen.changes()[1], [[0, -0.5], [-2, -1.5]])


def test_scores_without_variation_are_named_with_their_capability():
    masks = sample_masks("balanced", len(GRID), 40, 0.06, 0).astype(float)
    for fit_one in METHODS.values():
        with pytest.raises(CaplocError, match="capitals: every one of the 40 masks has the same score"):
            fit_all(masks, {"capitals": observed(masks, {}, 0, noise=0.0)}, fit_one)


def test_few_masks_that_tell_nothing_stop_no_doubts():
    masks = sample_masks("balanced", len(GRID), 40, 0.06, 0).astype(float)
    seen = observed(masks, {}, 0, noise=0.0)
    margin = seen.margin.copy()
    margin[-3:] -= 1  # the first quarter of the masks, and most folds, are all alike
    margin[5, 1:] = np.nan  # and resampled prompts may all be invalid under one
    late = Observations(
        margin,
        np.where(np.isnan(margin), np.nan, margin > 0),
        margin,
        *(seen.intact_margin,) * 2,
        seen.tokens,
    )
    localization = Localization(objective="contrast", weight=1.0)
    found = conclude(
        masks,
        fit_all(masks, {"addition": late}, LASSO),
        ["addition"],
        GRID,
        localization=localization,
        sparsity=2,
        replicates=20,
        seed=0,
    )
    assert not found.heads["heads"]["addition"]["found"]


def test_every_method_of_params_can_be_had():
    recovery = load_params().recovery
    for name in type(recovery).model_fields["estimator"].annotation.__args__:
        chosen = method(recovery.model_copy(update={"estimator": name}), sparsity=3, seed=0)
        masks = sample_masks("balanced", len(GRID), 80, 0.06, 0).astype(float)
        fit = chosen(masks, observed(masks, PLANTED["addition"], 0))
        assert set(np.argsort(fit.effects)[:2]) == {3, 40}, name
