import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from caploc.adaptive import adaptive_masks, best_subset, doubts, found, next_masks
from caploc.designs import sample_masks
from caploc.errors import CaplocError
from caploc.recovery.lasso import LassoRecovery

N_HEADS, SPARSITY, NOISE = 270, 5, 0.3


class Planted:
    """Scores masks as benchmarks/planted.py does; the same mask has the same score whenever it is asked for."""

    def __init__(self, seed, n_heads=N_HEADS, planted=SPARSITY, noise=NOISE, nuisance=0.03):
        rng = np.random.default_rng([seed, n_heads])
        self.heads = np.sort(rng.choice(n_heads, planted, replace=False))
        self.effects, self.noise = rng.normal(0, nuisance, n_heads), noise
        self.effects[self.heads] = -rng.uniform(0.5, 1.5, planted)
        self.asked = []

    def __call__(self, masks):
        self.asked += [tuple(np.flatnonzero(mask).tolist()) for mask in masks]
        jitter = [np.random.default_rng([3, *np.flatnonzero(mask)]).normal(0, self.noise) for mask in masks]
        return (masks @ self.effects + jitter)[:, None]


def run(planted, masks, seed, **settings):
    settings = {"density": 0.05, "sparsity": SPARSITY, "seed": seed} | settings
    return adaptive_masks(planted, len(planted.effects), masks=masks, **settings)


@pytest.mark.parametrize(("n_heads", "masks", "seeds"), [(270, 120, 20), (1024, 200, 8)])
def test_adaptive_rounds_recover_exactly_from_half_of_the_masks_that_are_too_few_for_the_papers_lasso(
    n_heads, masks, seeds
):
    ours = papers = 0
    for seed in range(seeds):
        planted = Planted(seed, n_heads)
        ours += np.array_equal(run(planted, masks, seed).chosen[0], planted.heads)
        design = sample_masks("balanced", n_heads, 2 * masks, 0.02, seed)
        effects = LassoRecovery(alpha=0.01).fit(design, planted(design)[:, 0]).coef_
        papers += np.array_equal(np.sort(np.argsort(effects)[:SPARSITY]), planted.heads)
    assert ours >= 0.95 * seeds
    assert papers < 0.95 * seeds


def test_nothing_is_found_where_nothing_is_planted_and_the_plant_where_it_is():
    false = true = 0
    for seed in range(40):
        null = run(Planted(seed, planted=0), 180, seed)
        false += len(found(null.masks, null.scores[:, 0], SPARSITY)) > 0
    for seed in range(10):
        planted = Planted(seed)
        result = run(planted, 220, seed)
        true += np.array_equal(found(result.masks, result.scores[:, 0], SPARSITY), planted.heads)
    assert false <= 2
    assert true >= 9


def test_too_few_masks_find_nothing():
    planted = Planted(0, noise=0.01, nuisance=0)
    masks = sample_masks("balanced", N_HEADS, 400, 0.05, 0)
    scores = planted(masks)[:, 0]
    np.testing.assert_array_equal(found(masks, scores, SPARSITY), planted.heads)
    assert found(masks[:121], scores[:121], SPARSITY).size == 0  # 3 * 5 * log2(270) = 121.2
    positive = found(masks, -scores, SPARSITY)
    assert positive.size == 0, "heads whose knockout helps are not needed"


def test_rounds_are_the_same_for_the_same_scores_and_a_killed_run_resumes():
    first, second = (run(Planted(4), 100, 4) for _ in range(2))
    np.testing.assert_array_equal(first.masks, second.masks)
    np.testing.assert_array_equal(first.scores, second.scores)
    planted = Planted(4)

    def killed(masks):
        if len(planted.asked) >= 70:
            raise KeyboardInterrupt
        return planted(masks)

    with pytest.raises(KeyboardInterrupt):
        adaptive_masks(killed, N_HEADS, masks=100, density=0.05, sparsity=SPARSITY, seed=4)
    asked = [tuple(np.flatnonzero(mask).tolist()) for mask in first.masks]
    assert planted.asked == asked[: len(planted.asked)]


def test_the_first_half_is_balanced_and_all_masks_have_one_size():
    result = run(Planted(1), 80, 1)
    np.testing.assert_array_equal(result.masks[:40], sample_masks("balanced", N_HEADS, 40, 0.05, 1))
    assert set(result.masks.sum(axis=1)) == {round(0.05 * N_HEADS)}


def test_it_stops_early_only_where_nothing_is_in_doubt():
    easy = run(Planted(2, noise=0.05, nuisance=0), 400, 2)
    assert easy.settled
    assert len(easy.masks) < 400
    np.testing.assert_array_equal(easy.chosen[0], Planted(2).heads)
    hard = run(Planted(2, noise=3.0), 100, 2)
    assert not hard.settled
    assert len(hard.masks) == 100


def test_several_capabilities_share_their_masks():
    one, other = Planted(5), Planted(6)
    result = adaptive_masks(
        lambda masks: np.hstack([one(masks), other(masks)]),
        N_HEADS,
        masks=240,
        density=0.05,
        sparsity=5,
        seed=5,
    )
    np.testing.assert_array_equal(result.chosen[0], one.heads)
    np.testing.assert_array_equal(result.chosen[1], other.heads)


@pytest.mark.parametrize("masks", [4, 9])
def test_fewer_masks_than_rounds_will_do(masks):
    assert len(run(Planted(7, n_heads=24), masks, 7, sparsity=1, density=0.1).masks) == masks


def test_more_than_half_of_the_heads_a_mask_are_refused():
    with pytest.raises(CaplocError, match="14 of 24 heads a mask are more than half"):
        run(Planted(7, n_heads=24), 30, 7, density=0.6)


def test_doubts():
    planted = Planted(8, noise=0.1, nuisance=0)
    masks = sample_masks("balanced", N_HEADS, 400, 0.05, 0)
    chosen, doubt = doubts(masks, planted(masks)[:, 0], SPARSITY)
    np.testing.assert_array_equal(chosen, planted.heads)
    assert doubt.max() < 1e-3
    # a head without knockouts may do anything, and one that goes with a planted head may be the planted one
    unseen, twin = (head for head in range(2) if head not in chosen)
    masks[:, unseen], masks[:, twin] = False, masks[:, chosen[2]]
    with_twin, doubt = doubts(
        masks, masks @ planted.effects + np.random.default_rng(0).normal(0, 0.1, 400), SPARSITY
    )
    assert {twin, chosen[2]} & set(with_twin)
    assert doubt[[twin, chosen[2]]] == pytest.approx(0.5)
    assert doubt[unseen] > 0.2
    assert np.sort(doubt)[-4] < 1e-3


def test_doubts_follow_the_order_of_heads_and_no_unit():
    planted = Planted(9)
    masks = sample_masks("balanced", N_HEADS, 150, 0.05, 0)
    scores = planted(masks)[:, 0]
    chosen, doubt = doubts(masks, scores, SPARSITY)
    np.testing.assert_array_equal(chosen, best_subset(masks, scores, SPARSITY))
    order = np.random.default_rng(0).permutation(N_HEADS)
    moved, moved_doubt = doubts(masks[:, order], scores, SPARSITY)
    np.testing.assert_array_equal(np.sort(order[moved]), chosen)
    np.testing.assert_allclose(moved_doubt, doubt[order], atol=1e-9)
    np.testing.assert_allclose(doubts(masks, 50 * scores - 3, SPARSITY)[1], doubt, atol=1e-9)


@given(
    arrays(float, st.integers(10, 60), elements=st.floats(1e-6, 0.5)), st.integers(1, 5), st.integers(0, 99)
)
def test_next_masks_have_one_size_and_prefer_the_doubtful(doubt, size, seed):
    masks = next_masks(doubt, size, 20, np.random.default_rng(seed))
    assert masks.shape == (20, len(doubt))
    assert set(masks.sum(axis=1)) == {size}


def test_no_head_is_in_more_than_half_of_the_next_masks():
    doubt = np.full(50, 1e-6)
    doubt[:3] = 0.5
    masks = next_masks(doubt, 4, 2000, np.random.default_rng(0))
    np.testing.assert_allclose(masks[:, :3].mean(axis=0), 0.5, atol=0.03)
    np.testing.assert_allclose(masks[:, 3:].mean(axis=0), 2.5 / 47, atol=0.03)
