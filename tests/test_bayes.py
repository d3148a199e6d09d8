"""The Gaussian model of effects, against the same model written out in full."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone

from caploc.designs import sample_masks
from caploc.recovery.bayes import BayesianRecovery, Spread

SPREAD = Spread(trust=0.8, floor=0.3, power=1.25, shared=0.6, own=0.4, mask_noise=0.2, noise=0.5)
HEADS, PROMPTS, MASKS = 12, 3, 9


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    masks = (rng.random((MASKS, HEADS)) < 0.3).astype(float)
    return masks, rng.normal(size=(MASKS, PROMPTS)), rng.normal(size=(PROMPTS, HEADS))


def in_full(masks, guess, spread):
    """The covariances of all effects (prompt-major), of effects and scores, and of all scores."""
    rms = np.sqrt((guess**2).mean())
    sd = rms * (spread.floor + np.sqrt((guess**2).mean(0)) / rms) ** spread.power
    effects = np.kron(
        spread.shared**2 * np.ones((PROMPTS, PROMPTS)) + spread.own**2 * np.eye(PROMPTS), np.diag(sd**2)
    )
    X = np.kron(np.eye(PROMPTS), masks)
    noise = np.kron(
        spread.mask_noise**2 * np.ones((PROMPTS, PROMPTS)) + spread.noise**2 * np.eye(PROMPTS),
        np.eye(len(masks)),
    )
    return effects, effects @ X.T, X @ effects @ X.T + noise


def test_its_posterior_is_the_textbooks(problem):
    masks, scores, guess = problem
    model = BayesianRecovery(SPREAD).fit(masks, scores, guess)
    _, cross, total = in_full(masks, guess, SPREAD)
    residual = (scores - SPREAD.trust * masks @ guess.T).T.ravel()
    mean = SPREAD.trust * guess.ravel() + cross @ np.linalg.solve(total, residual)
    np.testing.assert_allclose(model.effects_.ravel(), mean, atol=1e-10)
    np.testing.assert_allclose(model.coef_, mean.reshape(PROMPTS, HEADS).mean(0), atol=1e-10)
    np.testing.assert_allclose(model.predict(masks), masks @ model.effects_.T)


def test_its_draws_have_the_posteriors_mean_and_covariance(problem):
    masks, scores, guess = problem
    model = BayesianRecovery(SPREAD).fit(masks, scores, guess)
    rng = np.random.default_rng(0)
    draws = np.array([model.sample(rng).ravel() for _ in range(4000)])
    effects, cross, total = in_full(masks, guess, SPREAD)
    expected = effects - cross @ np.linalg.solve(total, cross.T)
    np.testing.assert_allclose(draws.mean(0), model.effects_.ravel(), atol=0.1)
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.1 * expected.max())


def test_its_spread_maximizes_the_likelihood_written_out(problem):
    masks, _, guess = problem
    rng = np.random.default_rng(1)
    masks = (rng.random((40, HEADS)) < 0.3).astype(float)
    _, _, total = in_full(masks, guess, SPREAD)
    noise = rng.multivariate_normal(np.zeros(len(total)), total).reshape(PROMPTS, -1).T
    scores = SPREAD.trust * masks @ guess.T + noise
    found = BayesianRecovery().fit(masks, scores, guess).spread_

    def likelihood(spread):
        _, _, covariance = in_full(masks, guess, spread)
        residual = (scores - spread.trust * masks @ guess.T).T.ravel()
        return multivariate_normal(cov=covariance).logpdf(residual)

    assert likelihood(found) > likelihood(SPREAD) - 3  # weak priors and a grid of shapes cost little
    for change in ({"noise": found.noise * 1.5}, {"noise": found.noise / 1.5}, {"trust": found.trust + 0.7}):
        assert likelihood(Spread(**(vars(found) | change))) < likelihood(found)


def planted(seed, n_masks=60, n_heads=96, n_prompts=8, *, informed=True):
    """Effects that the model's own prior would draw, or gradients that say nothing about them."""
    rng = np.random.default_rng(seed)
    guess = rng.normal(size=(n_prompts, n_heads)) * rng.exponential(size=n_heads) ** 2
    rms, size = np.sqrt((guess**2).mean()), np.sqrt((guess**2).mean(0))
    sd = 0.5 * (0.1 * rms + size)
    effects = guess + sd * rng.normal(size=n_heads) + 0.5 * sd * rng.normal(size=guess.shape)
    masks = sample_masks("balanced", n_heads, n_masks, 0.05, seed).astype(float)
    noise = 0.3 * rng.normal(size=(n_masks, 1)) + 0.5 * rng.normal(size=(n_masks, n_prompts))
    told = guess if informed else rng.permuted(guess, axis=1)
    return masks, masks @ effects.T + noise, told, effects


def test_gradients_help_when_they_are_right_and_are_forgotten_when_they_are_not():
    def error(seed, guess_of):
        masks, scores, told, effects = planted(seed, informed=guess_of != "wrong")
        guess = np.zeros_like(told) if guess_of == "none" else told
        return np.abs(BayesianRecovery().fit(masks, scores, guess).effects_ - effects).mean()

    errors = {of: np.mean([error(seed, of) for seed in range(5)]) for of in ("right", "none", "wrong")}
    assert errors["right"] < 0.6 * errors["none"]
    assert errors["wrong"] < 1.5 * errors["none"]
    masks, scores, told, _ = planted(0, informed=False)
    assert abs(BayesianRecovery().fit(masks, scores, told).spread_.trust) < 0.3


def test_intervals_cover_what_was_planted():
    covered = []
    for seed in range(12):
        masks, scores, told, effects = planted(seed, n_masks=100)
        model, rng = BayesianRecovery().fit(masks, scores, told), np.random.default_rng(seed)
        draws = np.array([model.sample(rng).mean(0) for _ in range(200)])
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        truth = effects.mean(0)
        covered.append(((low <= truth) & (truth <= high)).mean())
    assert 0.85 <= np.mean(covered) <= 0.95


def test_it_does_not_depend_on_the_order_of_heads_or_prompts_and_repeats_itself():
    masks, scores, told, _ = planted(3)
    model = BayesianRecovery().fit(masks, scores, told)
    again = clone(model).fit(masks, scores, told)
    np.testing.assert_array_equal(again.effects_, model.effects_)
    heads, prompts = (np.random.default_rng(0).permutation(n) for n in (96, 8))
    moved = BayesianRecovery(model.spread_).fit(masks[:, heads], scores[:, prompts], told[prompts][:, heads])
    np.testing.assert_allclose(moved.effects_, model.effects_[prompts][:, heads], atol=1e-8)
    refitted = BayesianRecovery().fit(masks[:, heads], scores[:, prompts], told[prompts][:, heads])
    np.testing.assert_allclose(refitted.effects_, model.effects_[prompts][:, heads], atol=1e-3)


def test_scores_must_be_finite_and_fit_the_masks():
    masks, scores, told, _ = planted(0)
    with pytest.raises(ValueError, match="not \\(60, 96\\), \\(59, 8\\)"):
        BayesianRecovery().fit(masks, scores[:-1], told)
    scores[4, 2] = np.nan
    with pytest.raises(ValueError, match="finite"):
        BayesianRecovery().fit(masks, scores, told)
