import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from caploc import HeadGrid
from caploc.design_checks import advise_density, diagnose, predicted_accuracy
from caploc.designs import (
    design_heads,
    design_masks,
    design_table,
    inclusion_probabilities,
    never_knocked_out,
    sample_masks,
    systematic_mask,
)
from caploc.errors import CaplocError

GRIDS = st.lists(st.integers(1, 20), min_size=2, max_size=15).map(lambda sizes: HeadGrid(tuple(sizes)))
DENSITIES = st.floats(0.01, 0.5)
SEEDS = st.integers(0, 2**31)


@st.composite
def designs(draw, schemes=("balanced", "bernoulli", "layer_balanced", "weighted", "single")):
    """The arguments of sample_masks but for the number of masks, and the most masks there are."""
    scheme, grid = draw(st.sampled_from(schemes)), draw(GRIDS)
    weights = draw(arrays(float, len(grid), elements=st.floats(0.01, 5))) if scheme == "weighted" else None
    density = min(draw(DENSITIES), (len(grid) // 2) / len(grid))
    seed = draw(SEEDS)

    def sample(n_masks):
        return sample_masks(scheme, grid, n_masks, density, seed, weights=weights)

    return sample, grid, scheme, max(1, round(density * len(grid)))


@given(designs(), st.integers(1, 30), st.integers(0, 30))
def test_more_masks_never_change_the_earlier_ones(design, n, more):
    sample, grid, scheme, _ = design
    if scheme == "single":
        n, more = min(n, len(grid)), min(more, len(grid) - min(n, len(grid)))
    np.testing.assert_array_equal(sample(n + more)[:n], sample(n))


@given(designs(), st.integers(1, 60))
def test_no_mask_is_empty_and_the_table_says_the_same(design, n):
    sample, grid, scheme, _ = design
    masks = sample(min(n, len(grid)) if scheme == "single" else n)
    assert masks.any(axis=1).all()
    np.testing.assert_array_equal(design_masks(design_table(masks), len(grid)), masks)


@given(designs(("balanced", "layer_balanced", "weighted")), st.integers(1, 60))
def test_masks_have_one_size(design, n):
    sample, _, _, size = design
    assert set(sample(n).sum(axis=1)) == {size}


@given(designs(("balanced",)), st.integers(1, 60))
def test_balanced_heads_appear_equally_often(design, n):
    sample, *_ = design
    assert np.ptp(sample(n).sum(axis=0)) <= 1


@given(designs(("layer_balanced",)), st.integers(1, 60))
def test_layers_are_knocked_out_evenly_in_every_mask_and_in_all(design, n):
    sample, grid, _, size = design
    masks = sample(n)
    widths = np.array(grid.heads_per_layer)
    by_layer = np.array([masks[:, heads].sum(axis=1) for heads in grid.slices()])  # [n_layers, n_masks]
    share = size * widths / len(grid)
    assert (by_layer >= np.floor(share)[:, None]).all()
    assert (by_layer <= np.ceil(share)[:, None]).all()
    assert (np.abs(by_layer.sum(axis=1) - n * share) < 2).all()
    assert all(np.ptp(masks[:, heads].sum(axis=0)) <= 1 for heads in grid.slices())
    if len(set(widths)) == 1:
        assert np.ptp(masks.sum(axis=0)) <= 1


def test_balanced_masks_are_what_they_were_and_one_layer_of_heads_is_balanced():
    heads = design_heads(design_table(sample_masks("balanced", 20, 3, 0.15, 7)))
    assert heads == {0: (3, 6, 12), 1: (1, 2, 11), 2: (8, 10, 14)}
    np.testing.assert_array_equal(
        sample_masks("layer_balanced", 270, 40, 0.05, 3), sample_masks("balanced", 270, 40, 0.05, 3)
    )


def test_single_is_the_sweep():
    np.testing.assert_array_equal(sample_masks("single", 6, 4, 0.5, 0), np.eye(4, 6, dtype=bool))
    with pytest.raises(CaplocError, match="7 masks of one head each are more than the 6 heads"):
        sample_masks("single", 6, 7, 0.5, 0)


def test_bernoulli_masks_have_the_density_asked_for():
    masks = sample_masks("bernoulli", 500, 400, 0.05, 0)
    assert masks.mean() == pytest.approx(0.05, abs=0.002)


@given(arrays(float, st.integers(4, 60), elements=st.floats(0.01, 100)), DENSITIES)
def test_probabilities_follow_the_weights_and_leave_no_head_out(weights, density):
    size = max(1, int(density * len(weights)))
    probabilities = inclusion_probabilities(weights, size)
    assert probabilities.sum() == pytest.approx(size)
    assert (probabilities <= 0.5).all()
    assert (probabilities >= np.minimum(0.5, 0.25 * size / len(weights) - 1e-12)).all()
    order = np.argsort(weights)
    assert (np.diff(probabilities[order]) >= -1e-12).all()


def test_weighted_heads_are_knocked_out_as_often_as_they_should():
    weights = np.r_[np.zeros(30), np.arange(1.0, 31), 500]
    probabilities = inclusion_probabilities(weights, 6)
    assert probabilities[-1] == 0.5
    masks = sample_masks("weighted", 61, 4000, 0.1, 0, weights=weights)
    np.testing.assert_allclose(masks.mean(axis=0), probabilities, atol=0.03)
    with pytest.raises(CaplocError, match="40 of 61 heads a mask are more than half"):
        inclusion_probabilities(weights, 40)
    with pytest.raises(ValueError, match="lacks its weights"):
        sample_masks("weighted", 61, 4, 0.1, 0)


@given(arrays(float, st.integers(4, 60), elements=st.floats(1e-6, 1)), SEEDS)
def test_a_systematic_mask_has_the_size_its_probabilities_add_up_to(weights, seed):
    size = len(weights) // 2
    probabilities = inclusion_probabilities(weights, size, uniform=0)
    assert systematic_mask(probabilities, np.random.default_rng(seed)).sum() == size


def test_seeds_differ():
    for scheme in ("balanced", "bernoulli", "layer_balanced", "weighted"):
        first, second = (sample_masks(scheme, 270, 20, 0.02, seed, weights=np.ones(270)) for seed in (0, 1))
        assert (first != second).any()


def test_heads_in_no_mask_are_counted():
    masks = np.zeros((3, 5), dtype=bool)
    masks[0, 1] = masks[2, 4] = True
    assert never_knocked_out(masks) == 3
    assert design_heads(design_table(masks)) == {0: (1,), 1: (), 2: (4,)}
    assert never_knocked_out(sample_masks("balanced", 270, 54, 0.02, 0)) == 0
    assert never_knocked_out(sample_masks("bernoulli", 270, 54, 0.02, 0)) > 0


def test_diagnostics():
    masks = np.array([[1, 1, 0, 1, 0], [0, 0, 0, 1, 1], [1, 1, 0, 1, 0], [0, 0, 0, 1, 0]], dtype=bool)
    found = diagnose(masks)
    assert (found.least, found.median, found.most, found.never) == (0, 2, 4, 1)
    assert found.coherence == pytest.approx(1)  # heads 0 and 1 go together
    assert found.heads_a_mask == 2.25
    random = diagnose(sample_masks("balanced", 60, 400, 0.2, 0))
    assert 0 < random.coherence < 0.35
    assert diagnose(np.eye(4, 5, dtype=bool)).coherence == pytest.approx(1 / 3)


def test_what_masks_leave_correct_is_predicted():
    masks = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]], dtype=bool)
    left = predicted_accuracy(masks, np.array([0.0, 9.0]), np.array([[0.0, 0.0, 5.0], [9.0, 90.0, 0.0]]))
    np.testing.assert_allclose(left, [0.75, 0.5, 0.25], atol=1e-3)


def test_a_density_is_advised_only_where_masks_destroy():
    masks = sample_masks("balanced", 100, 50, 0.2, 0)
    margins = np.full(10, 4.0)
    harmless, harmful = np.full((10, 100), 0.1), np.full((10, 100), 0.5)
    assert advise_density(masks, margins, harmless) is None
    advised = advise_density(masks, margins, harmful)
    assert advised == 0.08  # 8 heads of half a nat take what the answer is ahead
    assert advise_density(sample_masks("balanced", 100, 50, advised, 0), margins, harmful) is None
    assert advise_density(masks, margins, np.full((10, 100), 50.0)) == 0.01
