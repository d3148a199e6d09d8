"""Batches hold every sequence once, within the budget, without needless padding."""

from hypothesis import given
from hypothesis import strategies as st

from caploc.encoding import by_length, pad_right, shared_prefix

sequences = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12).map(tuple), min_size=1, max_size=30)


@given(sequences, st.integers(1, 60), st.integers(0, 40))
def test_groups_partition_the_sequences_within_the_budget(given_sequences, batch_tokens, padding):
    groups = by_length(given_sequences, batch_tokens, padding=padding)
    assert sorted(s for group in groups for s in group) == sorted(given_sequences)
    for group in groups:
        assert len(group) == 1 or len(group) * len(group[0]) <= batch_tokens
        assert max(map(len, group)) == len(group[0])


@given(sequences)
def test_without_padding_a_group_has_one_length(given_sequences):
    for group in by_length(given_sequences, 10_000, padding=0):
        assert len(set(map(len, group))) == 1


@given(sequences, st.integers(0, 5))
def test_padding_is_on_the_right_and_masked(given_sequences, prefix):
    ids, mask = pad_right(given_sequences, prefix)
    for row, sequence in enumerate(given_sequences):
        assert ids[row, : len(sequence)].tolist() == list(sequence)
        assert mask[row].tolist() == [1] * (prefix + len(sequence)) + [0] * (ids.shape[1] - len(sequence))


@given(sequences, st.lists(st.integers(0, 9), max_size=20).map(tuple))
def test_a_shared_prefix_begins_every_context_and_leaves_a_token(given_sequences, beginning):
    contexts = [beginning + sequence for sequence in given_sequences]
    prefix = shared_prefix(contexts)
    assert all(context[: len(prefix)] == prefix and len(context) > len(prefix) for context in contexts)
    if len(contexts) > 1 and len(beginning) >= 8:
        assert len(prefix) >= len(beginning)
