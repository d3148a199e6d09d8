import numpy as np
import pytest

from caploc.strategies import exhaustive, greedy, thompson

N_HEADS = 40
PLANT = {31: 3.0, 4: 2.0, 17: 1.0}


class Store:
    """Values of sets, each computed once; counts those it had to compute."""

    def __init__(self, value, least=None):
        self.value, self.kept, self.computed, self.least = value, {}, 0, least

    def __call__(self, sets):
        for heads in sets:
            assert heads == tuple(sorted(set(heads)))
            if heads not in self.kept:
                if self.computed == self.least:
                    raise KeyboardInterrupt
                self.kept[heads] = self.value(heads)
                self.computed += 1
        return np.array([self.kept[heads] for heads in sets])


def additive(noise=0.1):
    def value(heads):
        jitter = np.random.default_rng([9, *heads]).normal(0, noise)
        return sum(PLANT.get(head, 0.0) for head in heads) + jitter

    return value


def backed_up(heads):
    """Heads 5 and 6 stand in for each other, and so only both of them matter; 20 matters alone."""
    return 1.0 * (20 in heads) + 4.0 * ({5, 6} <= set(heads)) + 0.01 * (5 in heads)


STRATEGIES = {
    "exhaustive": lambda values: exhaustive(values, N_HEADS, 3),
    "greedy": lambda values: greedy(values, N_HEADS, 3),
    "thompson": lambda values: thompson(values, N_HEADS, 3, rounds=120, seed=0),
}


@pytest.mark.parametrize("search", STRATEGIES.values(), ids=STRATEGIES)
def test_the_plant_is_found_in_rank_order_and_evaluations_are_counted(search):
    store = Store(additive())
    found = search(store)
    assert found.heads == (31, 4, 17)
    assert found.evaluations == store.computed == len(store.kept)
    assert dict(found.trace) == store.kept
    assert search(Store(additive())) == found


@pytest.mark.parametrize("search", STRATEGIES.values(), ids=STRATEGIES)
def test_a_killed_search_resumes_and_values_nothing_twice(search):
    whole = search(Store(additive()))
    store = Store(additive(), least=whole.evaluations // 2)
    with pytest.raises(KeyboardInterrupt):
        search(store)
    store.least = None
    assert search(store) == whole
    assert store.computed == whole.evaluations
    search(store)
    assert store.computed == whole.evaluations


def test_thompson_finds_the_plant_from_other_seeds_with_fewer_evaluations_than_greedy():
    for seed in range(5):
        found = thompson(Store(additive()), N_HEADS, 3, rounds=80, seed=seed)
        assert found.heads == (31, 4, 17)
        assert found.evaluations < greedy(Store(additive()), N_HEADS, 3).evaluations
    first, second = (thompson(Store(additive()), N_HEADS, 3, rounds=9, seed=seed) for seed in (0, 1))
    assert first.trace != second.trace


def test_greedy_finds_a_backup_that_the_sweep_misses():
    sweep = exhaustive(Store(backed_up), N_HEADS, 3)
    assert 6 not in sweep.heads
    assert greedy(Store(backed_up), N_HEADS, 3).heads == (20, 5, 6)


def test_greedy_counts_a_round_a_head_and_keeps_to_the_candidates():
    store = Store(additive())
    found = greedy(store, N_HEADS, 5, candidates=[17, 4, 0])
    assert found.heads == (4, 17, 0)
    assert found.evaluations == 3 + 2 + 1


def test_values_that_are_all_zero_leave_a_search_going():
    assert len(thompson(Store(lambda _: 0.0), N_HEADS, 3, rounds=5, seed=0).heads) == 3
