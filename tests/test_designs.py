import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caploc.designs import design_heads, design_masks, design_table, never_knocked_out, sample_masks

DESIGNS = st.tuples(
    st.sampled_from(["balanced", "bernoulli"]),
    st.integers(2, 300),
    st.floats(0.01, 0.6),
    st.integers(0, 2**31),
)


@given(DESIGNS, st.integers(1, 30), st.integers(0, 30))
def test_more_masks_never_change_the_earlier_ones(design, n, more):
    scheme, n_heads, density, seed = design
    longer = sample_masks(scheme, n_heads, n + more, density, seed)
    np.testing.assert_array_equal(longer[:n], sample_masks(scheme, n_heads, n, density, seed))


@given(DESIGNS, st.integers(1, 60))
def test_no_mask_is_empty_and_the_table_says_the_same(design, n):
    scheme, n_heads, density, seed = design
    masks = sample_masks(scheme, n_heads, n, density, seed)
    assert masks.any(axis=1).all()
    np.testing.assert_array_equal(design_masks(design_table(masks), n_heads), masks)


@given(st.integers(2, 300), st.floats(0.01, 0.6), st.integers(1, 60), st.integers(0, 99))
def test_balanced_masks_have_one_size_and_heads_appear_equally_often(n_heads, density, n, seed):
    masks = sample_masks("balanced", n_heads, n, density, seed)
    assert set(masks.sum(axis=1)) == {max(1, round(density * n_heads))}
    assert np.ptp(masks.sum(axis=0)) <= 1


def test_bernoulli_masks_have_the_density_asked_for():
    masks = sample_masks("bernoulli", 500, 400, 0.05, 0)
    assert masks.mean() == pytest.approx(0.05, abs=0.002)


def test_seeds_differ():
    for scheme in ("balanced", "bernoulli"):
        first, second = (sample_masks(scheme, 270, 20, 0.02, seed) for seed in (0, 1))
        assert (first != second).any()


def test_heads_in_no_mask_are_counted():
    masks = np.zeros((3, 5), dtype=bool)
    masks[0, 1] = masks[2, 4] = True
    assert never_knocked_out(masks) == 3
    assert design_heads(design_table(masks)) == {0: (1,), 1: (), 2: (4,)}
    assert never_knocked_out(sample_masks("balanced", 270, 54, 0.02, 0)) == 0
    assert never_knocked_out(sample_masks("bernoulli", 270, 54, 0.02, 0)) > 0
