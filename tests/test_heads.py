import pytest
from hypothesis import given
from hypothesis import strategies as st

from caploc import HeadGrid
from caploc.errors import CaplocError


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20))
def test_names_pairs_and_indices_are_the_same_head(sizes):
    grid = HeadGrid(tuple(sizes))
    assert len(grid) == sum(sizes) == len(grid.heads)
    for index, head in enumerate(grid.heads):
        assert grid.index(head) == grid.index(grid.name(index)) == grid.index(index) == index


def test_missing_layers_keep_their_true_numbers():
    grid = HeadGrid((2, 3), layers=(4, 9))
    assert grid.names(range(5)) == ["L4H0", "L4H1", "L9H0", "L9H1", "L9H2"]
    assert grid.slices() == [slice(0, 2), slice(2, 5)]
    with pytest.raises(CaplocError, match="no head L5H0"):
        grid.index("L5H0")


@pytest.mark.parametrize(
    "wrong", ["L2H0", (0, 8), 16, -1, "16.21", "L1", "head 3", (0, -1), 1.5, True, (0, 0.5), None]
)
def test_heads_the_model_lacks_are_refused(wrong):
    with pytest.raises(CaplocError, match="head"):
        HeadGrid((8, 8)).index(wrong)


def test_a_grid_needs_heads():
    for sizes in [(), (0,), (3, 0)]:
        with pytest.raises(ValueError, match="head grid"):
            HeadGrid(sizes)
