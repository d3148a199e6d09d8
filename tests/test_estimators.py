"""Every estimator against planted effects, scikit-learn, enumeration, and what its docstring promises."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ARDRegression,
    ElasticNetCV,
    Lasso,
    LassoCV,
    OrthogonalMatchingPursuit,
    Ridge,
)
from sklearn.model_selection import KFold

from caploc.designs import sample_masks
from caploc.errors import CaplocError
from caploc.recovery.adaptive_lasso import AdaptiveLassoRecovery
from caploc.recovery.ard import GREATEST_LAMBDA, ARDRecovery
from caploc.recovery.elastic_net import L1_RATIOS, ElasticNetRecovery
from caploc.recovery.estimators import ESTIMATORS, make_estimator
from caploc.recovery.interactions import pair_interactions
from caploc.recovery.lasso import LassoRecovery
from caploc.recovery.lasso_path import FRACTIONS, LassoPathRecovery, bic
from caploc.recovery.omp import OMPRecovery
from caploc.recovery.prior_ridge import PriorRidgeRecovery
from caploc.recovery.regression import MaskRegression
from caploc.recovery.stability import StabilityRecovery
from caploc.recovery.swaps import BestSubsetRecovery

N_HEADS = 96
PLANTS = {3: -2.0, 17: -1.5, 40: -1.2, 63: -1.0, 77: 1.0}


def make(name, **settings):
    defaults = {"alpha": 0.01, "alpha_relative": False, "sparsity": 5, "seed": 0}
    return make_estimator(name, **(defaults | settings))


def planted(effects=PLANTS, n_masks=240, noise=0.3, seed=0, n_heads=N_HEADS):
    masks = sample_masks("balanced", n_heads, n_masks, 0.06, seed)
    truth = np.zeros(n_heads)
    truth[list(effects)] = list(effects.values())
    return masks, masks @ truth - 1 + np.random.default_rng(seed).normal(0, noise, n_masks), truth


def standardized(masks, scores):
    return masks - masks.mean(0), (scores - scores.mean()) / scores.std()


every = pytest.mark.parametrize("name", ESTIMATORS)


@every
def test_plants_are_found_with_their_signs_and_sizes(name):
    masks, scores, truth = planted()
    fitted = make(name).fit(masks, scores)
    top = np.argsort(-np.abs(fitted.coef_))[:5]
    assert set(top) == set(PLANTS)
    np.testing.assert_allclose(fitted.coef_[top], truth[top], atol=0.5)
    np.testing.assert_allclose(fitted.standardized_ * scores.std(), fitted.coef_)
    assert fitted.intercept_ == pytest.approx(-1, abs=0.4)
    fresh, unseen, _ = planted(seed=9)
    assert np.corrcoef(fitted.predict(fresh), unseen)[0, 1] > 0.8


@every
def test_a_needed_head_is_negative_and_a_harmful_one_positive(name):
    masks, scores, _ = planted({8: -2.0, 50: 1.0})
    order = np.argsort(make(name, sparsity=2).fit(masks, scores).coef_)
    assert (order[0], order[-1]) == (8, 50)


@every
def test_effects_follow_their_heads(name):
    masks, scores, truth = planted(noise=0.5)
    order = np.random.default_rng(1).permutation(N_HEADS)
    straight = make(name).fit(masks, scores, prior=truth)
    permuted = make(name).fit(masks[:, order], scores, prior=truth[order])
    np.testing.assert_allclose(permuted.coef_, straight.coef_[order], atol=1e-5)


@every
def test_effects_are_in_the_unit_of_the_scores(name):
    masks, scores, _ = planted(noise=0.5)
    fitted, scaled = make(name).fit(masks, scores), make(name).fit(masks, 100 * scores - 7)
    np.testing.assert_allclose(scaled.coef_, 100 * fitted.coef_, atol=1e-3)
    np.testing.assert_allclose(scaled.predict(masks), 100 * fitted.predict(masks) - 7, atol=1e-3)


@every
def test_a_second_fit_is_identical_and_settings_survive_a_clone(name):
    masks, scores, _ = planted(noise=0.5)
    estimator = make(name, seed=3)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    first = estimator.fit(masks, scores).coef_.copy()
    np.testing.assert_array_equal(estimator.fit(masks, scores).coef_, first)
    np.testing.assert_array_equal(copy.fit(masks, scores).coef_, first)


@every
def test_constant_scores_are_named(name):
    masks, _, _ = planted()
    with pytest.raises(CaplocError, match=r"every one of the 240 masks has the same score, -3\.7"):
        make(name).fit(masks, np.full(240, -3.7))


@every
def test_a_mask_of_weight_two_is_that_mask_twice(name):
    # Exact for all of them, folds and halves included, as repeats are merged before anything is drawn.
    masks, scores, _ = planted(n_masks=120, noise=0.5)
    twice = np.r_[np.arange(120), np.arange(0, 120, 3)]
    weight = np.bincount(twice)
    weighted = make(name).fit(masks, scores, sample_weight=weight)
    repeated = make(name).fit(masks[twice], scores[twice])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-7)
    assert weighted.intercept_ == pytest.approx(repeated.intercept_, abs=1e-7)
    plain = make(name).fit(masks, scores)
    assert np.abs(plain.coef_ - weighted.coef_).max() > 1e-3
    np.testing.assert_allclose(
        make(name).fit(masks, scores, sample_weight=np.full(120, 7.0)).coef_, plain.coef_, atol=1e-7
    )


def test_repeated_masks_count_by_their_scores_mean():
    masks, scores, _ = planted(n_masks=60)
    masks[40:] = masks[:20]
    oracle = Lasso(alpha=0.01, max_iter=100_000, tol=1e-9).fit(masks, (scores - scores.mean()) / scores.std())
    np.testing.assert_allclose(LassoRecovery().fit(masks, scores).standardized_, oracle.coef_, atol=1e-5)


@every
def test_weights_by_noise_lower_the_error(name):
    def error(seed, weigh):
        masks, scores, truth = planted(noise=0.1, seed=seed)
        noisy = np.arange(240) % 2 == 0
        scores = scores + noisy * np.random.default_rng(seed + 50).normal(0, 2, 240)
        weight = np.where(noisy, 0.02, 1) if weigh else None
        return np.linalg.norm(make(name).fit(masks, scores, sample_weight=weight).coef_ - truth)

    assert sum(error(seed, True) for seed in range(3)) < 0.8 * sum(error(seed, False) for seed in range(3))


@pytest.mark.parametrize("name", ["adaptive_lasso", "prior_ridge"])
def test_a_right_prior_helps_and_a_wrong_one_does_little_harm(name):
    def error(prior):
        total = 0
        for seed in range(6):
            masks, scores, truth = planted(n_masks=60, noise=0.4, seed=seed)
            rng = np.random.default_rng(seed)
            guess = {
                "none": None,
                "right": 30 * truth * rng.uniform(0.5, 2, N_HEADS) + rng.normal(0, 3, N_HEADS),
                "wrong": rng.normal(0, 1, N_HEADS),
                "opposite": -truth,
            }[prior]
            total += np.sum((make(name).fit(masks, scores, prior=guess).coef_ - truth) ** 2)
        return total

    none = error("none")
    assert error("right") < 0.4 * none
    assert error("wrong") < 1.1 * none
    if name == "prior_ridge":
        assert error("opposite") == none


@every
def test_only_sign_and_relative_size_of_a_prior_count(name):
    masks, scores, truth = planted(n_masks=60, noise=0.8)
    guess = truth + np.random.default_rng(0).normal(0, 0.1, N_HEADS)
    coef = make(name).fit(masks, scores, prior=guess).coef_
    np.testing.assert_allclose(make(name).fit(masks, scores, prior=1e4 * guess).coef_, coef, atol=1e-6)
    plain = make(name).fit(masks, scores).coef_
    uses = name in {"adaptive_lasso", "prior_ridge"}
    assert (np.abs(coef - plain).max() > 1e-3) == uses
    np.testing.assert_array_equal(make(name).fit(masks, scores, prior=0 * guess).coef_, plain)


def test_an_adaptive_lasso_passes_over_a_prior_that_the_scores_belie():
    masks, scores, truth = planted()
    belied = np.where(truth == 0, 1.0, 0.0)
    assert AdaptiveLassoRecovery().fit(masks, scores, prior=belied).prior_power_ == 0
    assert AdaptiveLassoRecovery().fit(masks, scores, prior=truth).prior_power_ > 0


@pytest.mark.parametrize(("name", "most"), [("lasso_bic", 0), ("adaptive_lasso", 0), ("stability", 12)])
def test_where_nothing_is_planted_few_heads_or_none_are_found(name, most):
    counts = []
    for seed in range(5):
        masks, scores, _ = planted({}, seed=seed)
        fitted = make(name).fit(masks, scores)
        counts.append(np.count_nonzero(fitted.coef_))
    assert max(counts) <= most
    if name == "lasso_bic":
        assert fitted.alpha_fraction_ == 1
        np.testing.assert_allclose(fitted.predict(masks), scores.mean())
    if name == "stability":
        assert fitted.expected_false_ > 5
        assert make(name).fit(*planted()[:2]).expected_false_ < 1


@pytest.mark.parametrize("name", ["lasso_bic", "adaptive_lasso", "stability"])
def test_selections_hold_the_plants_and_hardly_more(name):
    for seed in range(3):
        masks, scores, _ = planted(noise=0.3, seed=seed)
        found = set(np.flatnonzero(make(name).fit(masks, scores).coef_))
        assert found >= set(PLANTS)
        assert len(found) <= 7


def test_the_path_by_cross_validation_is_scikit_learns():
    masks, scores, _ = planted(noise=0.5)
    X, z = standardized(masks, scores)
    fitted = LassoPathRecovery("cv", random_state=4).fit(masks, scores)
    alphas = np.abs(X.T @ z).max() / len(z) * FRACTIONS
    folds = KFold(5, shuffle=True, random_state=4)
    oracle = LassoCV(alphas=alphas, cv=folds, fit_intercept=False, max_iter=100_000, tol=1e-6).fit(X, z)
    assert fitted.alpha_ == pytest.approx(oracle.alpha_)
    assert fitted.alpha_fraction_ == pytest.approx(oracle.alpha_ / alphas[0])
    np.testing.assert_allclose(fitted.standardized_, oracle.coef_, atol=1e-6)
    # A fixed penalty of that size is the paper's estimator.
    fixed = LassoRecovery(fitted.alpha_fraction_, relative=True).fit(masks, scores)
    np.testing.assert_allclose(fixed.coef_, fitted.coef_, atol=1e-3)


def test_the_path_by_bic_has_the_least_bic():
    masks, scores, _ = planted(noise=0.5)
    X, z = standardized(masks, scores)
    fitted = LassoPathRecovery("bic").fit(masks, scores)

    def criterion(fraction):
        coef = LassoRecovery(fraction, relative=True).fit(masks, scores).standardized_
        k, n, p = np.count_nonzero(coef), *X.shape
        plain = n * np.log(np.mean((z - X @ coef) ** 2)) + k * np.log(n)
        return plain + 2 * k * (1 - np.log(n) / (2 * np.log(p))) * np.log(p)

    values = [criterion(fraction) for fraction in FRACTIONS[1:]]
    assert fitted.alpha_fraction_ == FRACTIONS[1 + int(np.argmin(values))]


def test_bic_is_the_plain_one_where_masks_far_outnumber_heads():
    assert bic(np.array(50.0), np.array(3), 100, 10) == pytest.approx(100 * np.log(0.5) + 3 * np.log(100))
    assert bic(np.array(50.0), np.array(3), 100, 1000) > 100 * np.log(0.5) + 3 * np.log(100) + 10


def test_other_estimators_are_scikit_learns():
    masks, scores, _ = planted(noise=0.5)
    X, z = standardized(masks, scores)
    alphas = np.abs(X.T @ z).max() / len(z) * FRACTIONS / min(L1_RATIOS)
    oracles = {
        ElasticNetRecovery(): ElasticNetCV(
            l1_ratio=L1_RATIOS,
            alphas=alphas,
            cv=KFold(5, shuffle=True, random_state=0),
            fit_intercept=False,
            max_iter=100_000,
            tol=1e-6,
        ),
        OMPRecovery(7): OrthogonalMatchingPursuit(n_nonzero_coefs=7),
        ARDRecovery(): ARDRegression(fit_intercept=False, threshold_lambda=GREATEST_LAMBDA),
    }
    for estimator, oracle in oracles.items():
        np.testing.assert_allclose(
            estimator.fit(masks, scores).standardized_, oracle.fit(X, z).coef_, atol=1e-6
        )


def test_a_ridge_toward_a_prior_minimizes_its_objective():
    masks, scores, truth = planted(n_masks=80, noise=0.8)
    X, z = standardized(masks, scores)
    prior = truth + np.random.default_rng(0).normal(0, 0.3, N_HEADS)
    fitted = PriorRidgeRecovery().fit(masks, scores, prior=prior)
    deviations = fitted.standardized_ - fitted.prior_scale_ * prior
    residual = z - X @ fitted.standardized_
    # Stationary in s, which is next to free, and in d under some one penalty.
    assert fitted.prior_scale_ > 0
    guess = X @ prior
    assert abs(residual @ guess) < 1e-3 * np.linalg.norm(residual) * np.linalg.norm(guess)
    pull = X.T @ residual
    penalty = pull @ deviations / (deviations @ deviations)
    assert penalty > 0
    np.testing.assert_allclose(pull, penalty * deviations, atol=1e-7)
    plain = PriorRidgeRecovery().fit(masks, scores)
    pull = X.T @ (z - X @ plain.standardized_)
    penalty = pull @ plain.standardized_ / (plain.standardized_ @ plain.standardized_)
    oracle = Ridge(penalty, fit_intercept=False).fit(X, z)
    np.testing.assert_allclose(plain.standardized_, oracle.coef_, atol=1e-7)


def test_omp_chooses_its_number_of_heads_by_cross_validation():
    masks, scores, _ = planted(noise=0.5)
    fitted = OMPRecovery(None).fit(masks, scores)
    assert set(np.flatnonzero(fitted.coef_)) >= set(PLANTS)
    assert fitted.n_nonzero_ == np.count_nonzero(fitted.coef_) <= 8


@pytest.mark.parametrize("seed", range(12))
def test_the_best_subset_is_that_of_exhaustive_enumeration(seed):
    # Exchange reaches a local optimum; with effects above the noise, the global one.
    rng = np.random.default_rng(seed)
    masks = rng.random((40, 12)) < 0.4
    masks[:, 2] = masks[:, 1] ^ (rng.random(40) < 0.15)
    scores = -2.0 * masks[:, 1] - masks[:, 5] + masks[:, 8] + rng.normal(0, 0.5, 40)
    X, z = standardized(masks, scores)

    def rss(members):
        return np.linalg.lstsq(X[:, members], z, rcond=None)[1].sum()

    best = min(combinations(range(12), 3), key=lambda members: rss(list(members)))
    fitted = BestSubsetRecovery(3).fit(masks, scores)
    assert tuple(np.flatnonzero(fitted.coef_)) == best
    oracle = np.linalg.lstsq(X[:, best], z, rcond=None)[0]
    np.testing.assert_allclose(fitted.standardized_[list(best)], oracle, atol=1e-10)


def test_exchange_undoes_what_forward_selection_got_wrong():
    # Head 2 goes with both 0 and 1, and looks best until these two are in.
    rng = np.random.default_rng(0)
    masks = rng.random((200, 6)) < 0.3
    masks[:, 2] = (masks[:, 0] | masks[:, 1]) ^ (rng.random(200) < 0.05)
    scores = -1.0 * masks[:, 0] - masks[:, 1] + rng.normal(0, 0.05, 200)
    assert np.flatnonzero(BestSubsetRecovery(1).fit(masks, scores).coef_).tolist() == [2]
    assert 2 in np.flatnonzero(OMPRecovery(2).fit(masks, scores).coef_)
    fitted = BestSubsetRecovery(2).fit(masks, scores)
    assert np.flatnonzero(fitted.coef_).tolist() == [0, 1]
    assert fitted.n_swaps_ > 0


def test_heads_never_apart_are_not_both_taken():
    masks, scores, _ = planted({3: -2.0})
    masks[:, 4] = masks[:, 3]
    masks[:, 5] = False
    fitted = BestSubsetRecovery(4).fit(masks, scores)
    found = np.flatnonzero(fitted.coef_)
    assert len(found) == 4
    assert 5 not in found
    assert not {3, 4} <= set(found)


def test_stability_counts_the_halves_and_refits_what_lasts():
    masks, scores, _ = planted(noise=0.5)
    fitted = StabilityRecovery(n_pairs=10).fit(masks, scores)
    np.testing.assert_allclose(
        fitted.selection_probability_ * 20, np.round(fitted.selection_probability_ * 20)
    )
    stable = fitted.selection_probability_ >= 0.75
    np.testing.assert_array_equal(stable, fitted.coef_ != 0)
    X = np.column_stack([np.ones(len(scores)), masks[:, stable]])
    oracle = np.linalg.lstsq(X, scores, rcond=None)[0]
    np.testing.assert_allclose(fitted.coef_[stable], oracle[1:], atol=1e-10)
    assert fitted.intercept_ == pytest.approx(oracle[0])


def test_ards_standard_deviations_are_the_size_of_its_errors():
    errors, stds = [], []
    for seed in range(15):
        masks, scores, truth = planted(seed=seed)
        fitted = ARDRecovery().fit(masks, scores)
        assert (fitted.coef_std_[fitted.coef_ == 0] == 0).all()
        errors.extend((fitted.coef_ - truth)[list(PLANTS)])
        stds.extend(fitted.coef_std_[list(PLANTS)])
    assert 0.7 < np.sqrt(np.mean(np.square(errors)) / np.mean(np.square(stds))) < 1.5


class Unconverged(MaskRegression):
    def _solve(self, X, z, prior):  # noqa: ARG002
        return Lasso(alpha=1e-6, max_iter=1).fit(X, z).coef_


def test_a_fit_that_does_not_converge_is_an_error_with_a_remedy():
    masks, scores, _ = planted()
    with pytest.raises(
        CaplocError, match="Unconverged does not converge on 240 masks of 96 heads; raise"
    ) as e:
        Unconverged().fit(masks, scores)
    assert isinstance(e.value.__cause__, ConvergenceWarning)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masks": np.zeros(240)}, "masks .n_masks, n_heads."),
        ({"scores": np.zeros(239)}, "scores .n_masks."),
        ({"scores": np.r_[np.nan, np.zeros(239)]}, "scores must be finite"),
        ({"masks": np.full((240, 96), np.inf)}, "masks must be finite"),
        ({"sample_weight": np.zeros(240)}, "above 0"),
        ({"sample_weight": np.ones(239)}, "n_masks = 240"),
        ({"prior": np.ones(95)}, "n_heads = 96"),
        ({"prior": np.full(96, np.nan)}, "must be finite"),
    ],
)
def test_wrong_input_is_named(change, message):
    masks, scores, _ = planted()
    with pytest.raises(ValueError, match=message):
        LassoRecovery().fit(**({"masks": masks, "scores": scores} | change))


def test_the_registry_hands_out_settings():
    assert make("lasso", alpha=0.3, alpha_relative=True).get_params() == {"alpha": 0.3, "relative": True}
    assert make("lasso_cv", seed=7).get_params() == {"choose": "cv", "random_state": 7}
    assert make("omp", sparsity=9).get_params()["sparsity"] == 9
    with pytest.raises(CaplocError, match='did you mean "lasso_bic"'):
        make("lasso_bik")


def pair_of(table, a, b):
    return table[(table["head_a"] == a) & (table["head_b"] == b)].iloc[0]


def test_backup_heads_are_told_from_independent_ones():
    masks = sample_masks("bernoulli", N_HEADS, 1000, 0.1, 2)
    either, chain = masks[:, 10] & masks[:, 20], masks[:, 30] | masks[:, 40]
    noise = np.random.default_rng(0).normal(0, 0.3, 1000)
    scores = -2.0 * either - 1.0 * chain - 1.0 * masks[:, 50] - 0.5 * masks[:, 60] + noise
    table = pair_interactions(masks, scores, [10, 20, 30, 40, 50, 60])
    assert len(table) == 15
    assert (table.loc[0, "head_a"], table.loc[0, "head_b"]) == (10, 20)
    backup = pair_of(table, 10, 20)
    assert backup["excess"] == pytest.approx(-2, abs=4 * backup["stderr"])
    assert backup["additive"] == pytest.approx(0, abs=0.3)
    assert backup["joint"] == pytest.approx(-2, abs=0.6)
    assert backup["z"] < -5
    assert pair_of(table, 30, 40)["z"] > 5
    assert abs(pair_of(table, 50, 60)["z"]) < 3.3
    assert pair_of(table, 50, 60)["additive"] == pytest.approx(-1.5, abs=0.3)


def test_additive_heads_are_no_backups():
    # 45 pairs an analysis: under the null, z is standard normal, and seldom beyond 3.3.
    z = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        masks = sample_masks("balanced", N_HEADS, 500, 0.1, seed)
        scores = masks @ np.r_[np.full(10, -1.0), rng.normal(0, 0.1, 86)] + rng.normal(0, 0.5, 500)
        z.append(pair_interactions(masks, scores, range(10))["z"].dropna())
    assert 0.9 < np.concatenate(z).std() < 1.1
    assert sum((values.abs() > 3.3).any() for values in z) <= 3


def test_a_pairs_figures_are_those_of_its_own_least_squares():
    masks = sample_masks("bernoulli", N_HEADS, 400, 0.15, 0)
    scores = -2.0 * masks[:, 3] - masks[:, 40] + np.random.default_rng(0).normal(0, 0.3, 400)
    candidates = [3, 17, 40]
    row = pair_of(pair_interactions(masks, scores, candidates), 3, 40)
    product = masks[:, 3] & masks[:, 40]
    X = np.column_stack([np.ones(400), masks[:, candidates], product]).astype(float)
    beta, rss = np.linalg.lstsq(X, scores, rcond=None)[:2]
    covariance = rss[0] / (400 - 5) * np.linalg.inv(X.T @ X)
    assert row["together"] == product.sum() >= 3
    assert row["excess"] == pytest.approx(beta[4])
    assert row["stderr"] == pytest.approx(np.sqrt(covariance[4, 4]))
    assert row["additive"] == pytest.approx(beta[1] + beta[3])
    assert row["joint"] == pytest.approx(beta[1] + beta[3] + beta[4])
    assert row["z"] == pytest.approx(row["excess"] / row["stderr"])


def test_pairs_that_the_design_cannot_tell_have_no_verdict():
    masks = np.random.default_rng(0).random((200, 5)) < 0.3
    masks[:, 1] &= ~masks[:, 0]
    masks[:2, [0, 1]] = True
    masks[:, 4] = masks[:, 3]
    table = pair_interactions(masks, np.random.default_rng(1).normal(size=200), range(5))
    seldom, never_apart = pair_of(table, 0, 1), pair_of(table, 3, 4)
    assert seldom["together"] == 2
    assert never_apart["together"] > 30
    for pair in (seldom, never_apart):
        assert pair[["additive", "joint", "excess", "stderr", "z"]].isna().all()
    assert table["excess"].isna().tolist() == [False] * 8 + [True] * 2


def test_too_few_masks_for_so_many_candidates_are_named():
    masks, scores, _ = planted(n_masks=20)
    with pytest.raises(CaplocError, match=r"raise design\.masks to at least 21"):
        pair_interactions(masks, scores, range(18))
