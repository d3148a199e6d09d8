"""Heads chosen from responses that are known, against every set there is."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from caploc.localization import choose, worth
from caploc.recovery.response import Link, Response


def linear(**effects):
    """Responses of ten heads, in standard deviations; given as {head: effect} by capability."""
    responses = {}
    for name, by_head in effects.items():
        row = np.zeros((1, 10))
        row[0, list(by_head)] = list(by_head.values())
        responses[name] = Response(np.zeros(1), row, Link.LINEAR, 1.0)
    return responses


def random_responses(seed, n_heads=8):
    rng = np.random.default_rng(seed)
    return {
        name: Response(rng.normal(1, 1, 6), rng.normal(-0.3, 1, (6, n_heads)), Link.LOGISTIC, 0.1)
        for name in ("addition", "capitals", "antonyms")
    }


def test_contrast_passes_universal_heads_over_and_target_takes_them():
    responses = linear(
        addition={0: -5.0, 3: -3.0, 4: -1.0}, capitals={0: -5.0, 7: -2.0}, prose={0: -4.0, 4: -9.0}
    )
    assert choose(responses, "addition", sparsity=3, objective="contrast", weight=2.0) == [3]
    assert choose(responses, "addition", sparsity=3, objective="joint", weight=2.0) == [3]
    assert choose(responses, "addition", sparsity=3, objective="target", weight=2.0) == [0, 3, 4]
    assert choose(responses, "capitals", sparsity=3, objective="contrast", weight=2.0) == [7]


@pytest.mark.parametrize("objective", ["target", "contrast", "joint"])
def test_harmful_heads_are_never_chosen(objective):
    responses = linear(addition={5: 9.0, 6: -1.0}, capitals={7: -1.0})
    assert choose(responses, "addition", sparsity=3, objective=objective, weight=2.0) == [6]


@pytest.mark.parametrize("objective", ["target", "contrast", "joint"])
def test_ranks_follow_sizes_and_ties_follow_the_grid(objective):
    responses = linear(addition={9: -1.0, 2: -1.0, 5: -3.0, 6: -0.5})
    assert choose(responses, "addition", sparsity=3, objective=objective, weight=2.0) == [5, 2, 9]


@pytest.mark.parametrize("objective", ["target", "contrast", "joint"])
def test_a_capability_that_needs_no_head_gets_none(objective):
    assert choose(linear(addition={3: 2.0}), "addition", sparsity=3, objective=objective, weight=2.0) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_a_joint_choice_is_nearly_the_best_set_there_is(seed):
    responses = random_responses(seed)
    chosen = choose(responses, "addition", sparsity=3, objective="joint", weight=1.5)
    needed = np.flatnonzero(responses["addition"].single_drops() > 0).tolist()
    sets = [s for k in range(4) for s in combinations(needed, k)]
    best = max(worth(responses, "addition", s, weight=1.5) for s in sets)
    assert len(chosen) <= 3
    assert worth(responses, "addition", chosen, weight=1.5) >= best - 0.05


def test_a_joint_choice_sees_what_single_heads_hide():
    """Two heads that hurt the others by the same prompts cost less together than apart."""
    other = Response(
        np.array([0.1, 0.0]), np.array([[-9.0, -9.0, 0.0], [0.0, 0.0, -4.0]]), Link.LOGISTIC, 0.1
    )
    responses = {"own": Response(np.ones(2), np.full((2, 3), -2.0), Link.LOGISTIC, 0.1), "other": other}
    assert choose(responses, "own", sparsity=2, objective="contrast", weight=1.0) == [2, 0]
    assert choose(responses, "own", sparsity=2, objective="joint", weight=1.0) == [0, 1]


def test_drops_are_those_of_the_links_written_out():
    rng = np.random.default_rng(0)
    intact, effects = rng.normal(size=5), rng.normal(size=(5, 4))
    shifted = intact + effects[:, 1] + effects[:, 3]
    logistic = Response(intact, effects, Link.LOGISTIC, 1.0)
    assert logistic.drop([1, 3]) == pytest.approx((expit(intact) - expit(shifted)).mean())
    relative = Response(np.zeros(5), effects, Link.RELATIVE, 1.0)
    expected = 1 - np.exp(np.minimum(effects[:, 1] + effects[:, 3], 0)).mean()
    assert relative.drop([1, 3]) == pytest.approx(expected)
    assert Response(np.zeros(5), effects, Link.LINEAR, 1.0).drop([2]) == pytest.approx(-effects[:, 2].mean())
    assert logistic.drop([]) == 0
    np.testing.assert_allclose(logistic.drops_with([1], np.array([3])), [logistic.drop([1, 3])])
    np.testing.assert_allclose(logistic.single_drops(), [logistic.drop([head]) for head in range(4)])
    masks = np.array([[1, 1, 0, 0], [0, 1, 0, 1]])
    np.testing.assert_allclose(
        logistic.scores_under(masks, [1, 3])[1], expit(intact).mean() - logistic.drop([1, 3])
    )


def test_permuted_heads_give_permuted_choices():
    responses = random_responses(5)
    order = np.random.default_rng(1).permutation(8)
    moved = {n: Response(r.intact, r.effects[:, order], r.link, r.scale) for n, r in responses.items()}
    for objective in ("target", "contrast", "joint"):
        plain = choose(responses, "addition", sparsity=3, objective=objective, weight=2.0)
        there = choose(moved, "addition", sparsity=3, objective=objective, weight=2.0)
        assert [int(order[head]) for head in there] == plain
