"""The built-in capabilities: right answers, splits that share nothing, and samples that stay put."""

import calendar
import json
import re
import string
import subprocess
import sys
import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caploc.capabilities import addition, agreement, antonyms, capitals, past_tense
from caploc.capabilities.prompts import Item, Metric
from caploc.capabilities.registry import FAMILIES, MEASURE_SHARE, build, build_all
from caploc.errors import CaplocError

NAMES = list(FAMILIES)
MEASURE, VALIDATE = 32, 48
SHOWN = {
    "addition": [(f"{left} + {right} =", f" {left + right}") for left, right in addition.SHOTS],
    "capitals": [(f"Country: {country}. Capital:", f" {city}") for country, city in capitals.SHOTS],
    "antonyms": [(f"The opposite of {word} is", f" {answer}") for word, answer in antonyms.SHOTS],
    "past_tense": [(f"Today I {verb}. Yesterday I", f" {past}") for verb, past in past_tense.SHOTS],
}
COUNTED = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
]  # fmt: skip
TENS = ["ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
IRREGULAR = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth", "twenty": "twentieth",
}  # fmt: skip
ORDINALS = [IRREGULAR.get(word, f"{word}th") for word in COUNTED[1:]]

seeds = st.integers(0, 2**32 - 1)
names = st.sampled_from(NAMES)


def pool(name: str, seed: int = 0) -> list[Item]:
    return FAMILIES[name].items(np.random.default_rng([seed, zlib.crc32(name.encode())]))


def sample(name: str, seed: int, measure: int = MEASURE, validate: int = VALIDATE):
    return build(name, seed=seed, measure=measure, validate=validate)


def room(name: str, seed: int, split: str) -> int:
    """How many prompts a split has, by its own refusal."""
    with pytest.raises(CaplocError) as refused:
        build(name, seed=seed, **{"measure": 1, "validate": 1, split: 10**6})
    return int(re.search(r"has (\d+) prompts", str(refused.value))[1])


@given(names, seeds)
@settings(max_examples=60, deadline=None)
def test_splits_share_neither_group_nor_prompt(name, seed):
    group = {item.prompt: item.group for item in pool(name, seed)}
    splits = sample(name, seed).splits
    measure, validate = splits["measure"].prompts, splits["validate"].prompts
    assert (len(measure), len(validate)) == (MEASURE, VALIDATE)
    assert len({*measure, *validate}) == MEASURE + VALIDATE
    assert not {group[prompt] for prompt in measure} & {group[prompt] for prompt in validate}


@given(names, seeds)
@settings(max_examples=60, deadline=None)
def test_pool_holds_each_prompt_once_and_is_well_formed(name, seed):
    family, items = FAMILIES[name], pool(name, seed)
    assert len({item.prompt.text for item in items}) == len(items)
    for prompt in (item.prompt for item in items):
        assert prompt.text == prompt.text.strip()
        assert re.fullmatch(r" \S.*\S| \S", prompt.answer)
        assert bool(prompt.others) == (family.metric is Metric.CHOICE)
        assert prompt.answer not in prompt.others


@given(names, seeds)
@settings(max_examples=40, deadline=None)
def test_asking_for_more_keeps_the_earlier_prompts(name, seed):
    few, many = sample(name, seed, 5, 7), sample(name, seed)
    assert many.splits["measure"].prompts[:5] == few.splits["measure"].prompts
    assert many.splits["validate"].prompts[:7] == few.splits["validate"].prompts


@pytest.mark.parametrize("name", NAMES)
def test_every_item_falls_into_one_split_by_the_named_share(name):
    measure, validate = (room(name, 3, split) for split in ("measure", "validate"))
    items = pool(name, 3)
    assert measure + validate == len(items)
    biggest = max(sum(other.group == item.group for other in items) for item in items)
    assert 0 <= measure - MEASURE_SHARE * len(items) < biggest


@given(names, seeds, seeds)
@settings(max_examples=40, deadline=None)
def test_another_seed_samples_otherwise(name, seed, other):
    same = sample(name, seed).splits["measure"] == sample(name, other).splits["measure"]
    assert same == (seed == other)


def test_a_fresh_process_samples_the_same():
    code = (
        "import json; from caploc.capabilities.registry import FAMILIES, build_all;"
        "built = build_all(list(FAMILIES), seed=11, measure=32, validate=48);"
        "print(json.dumps({n: [s.fingerprint for s in c.splits.values()] for n, c in built.items()}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = build_all(NAMES, seed=11, measure=32, validate=48)
    assert json.loads(done.stdout) == {
        name: [split.fingerprint for split in capability.splits.values()] for name, capability in here.items()
    }


def test_a_built_capability_carries_its_family():
    built = build_all(["prose", "agreement"], seed=0, measure=2, validate=3)
    assert list(built) == ["prose", "agreement"]
    assert built["prose"].is_control
    assert built["agreement"].chance == 0.5
    assert built["agreement"].metric is built["agreement"].splits["measure"].metric is Metric.CHOICE


@pytest.mark.parametrize("name", SHOWN)
def test_one_header_and_none_of_its_examples_is_an_item(name):
    shown = SHOWN[name]
    stop = "." if name in {"antonyms", "past_tense"} else ""
    header = "".join(f"{question}{answer}{stop}\n" for question, answer in shown)
    for prompt in (item.prompt for item in pool(name)):
        assert prompt.text.startswith(header)
        question = prompt.text.removeprefix(header)
        assert "\n" not in question
        assert question not in dict(shown)


@pytest.mark.parametrize(
    ("family", "pairs"),
    [(capitals, capitals.CAPITALS), (antonyms, antonyms.ANTONYMS), (past_tense, past_tense.VERBS)],
)
def test_no_shown_word_is_asked_for(family, pairs):
    shown = {word for pair in family.SHOTS for word in pair}
    assert not shown & {word for pair in pairs for word in pair}
    assert len({word for word, _ in pairs}) == len(pairs)


def test_a_word_and_its_reverse_stand_in_one_group():
    group = {}
    for item, pair in zip(pool("antonyms"), antonyms.ANTONYMS, strict=True):
        for word in pair:
            assert group.setdefault(word, item.group) == item.group


def test_sums_are_right():
    for item in pool("addition"):
        left, right = map(int, re.search(r"(\d+) \+ (\d+) =$", item.prompt.text).groups())
        assert int(item.prompt.answer) == left + right
        assert item.group == (min(left, right), max(left, right))
        assert item.group not in {(min(shot), max(shot)) for shot in addition.SHOTS}


def test_the_receiver_is_the_person_named_once():
    for item in pool("indirect_object"):
        named = re.findall(r"\b[A-Z]\w+", item.prompt.text.split(" ", 1)[1])
        assert {item.prompt.answer.strip()} == {name for name in named if named.count(name) == 1}
        assert set(item.group) == set(named)


def test_neither_place_tells_the_receiver():
    first = [
        re.findall(r"\b[A-Z]\w+", item.prompt.text.split(" ", 1)[1])[0] == item.prompt.answer.strip()
        for item in pool("indirect_object")
    ]
    assert 0.4 < np.mean(first) < 0.6


def test_series_go_on_as_calendars_and_counting_do():
    cycles = [calendar.day_name, calendar.day_abbr, calendar.month_name[1:], calendar.month_abbr[1:]]
    lines = [string.ascii_uppercase, COUNTED, TENS, ORDINALS]
    steps = [dict(pairwise([*cycle, cycle[0]])) for cycle in cycles] + [
        dict(pairwise(line)) for line in lines
    ]
    for item in pool("sequences"):
        shown = item.prompt.text.removeprefix("In order: ").removesuffix(",").split(", ")
        window = list(pairwise([*shown, item.prompt.answer.strip()]))
        assert any(all(step.get(word) == after for word, after in window) for step in steps), window


def test_past_tenses_in_ed_follow_the_rule():
    regular = [
        (verb, past) for verb, past in past_tense.VERBS if past.endswith("ed") and len(past) > len(verb)
    ]
    assert len(regular) > 40
    for verb, past in regular:
        assert past in {f"{verb.removesuffix('e')}ed", f"{verb}{verb[-1]}ed", f"{verb[:-1]}ied"}


def test_the_verb_agrees_with_the_first_noun():
    singular, plural = {"is", "was", "has"}, {"are", "were", "have"}
    tally = {True: 0, False: 0}
    for item in pool("agreement"):
        head = item.prompt.text.split()[1]
        answer, other = (form.strip() for form in (item.prompt.answer, *item.prompt.others))
        many = head not in agreement.SUBJECTS
        tally[many] += 1
        assert answer in (plural if many else singular)
        assert other in (singular if many else plural)
        assert item.group in agreement.SUBJECTS
        assert head.startswith(item.group[:-1])
    assert tally[True] == tally[False]


def test_prose_sentences_are_whole_and_of_even_length():
    for item in pool("prose"):
        sentence = item.prompt.text + item.prompt.answer
        assert item.group == sentence
        assert 10 <= len(sentence.split()) <= 18


@pytest.mark.parametrize("split", ["measure", "validate"])
@pytest.mark.parametrize("count", [10**6, 0, -1])
def test_a_split_gives_no_more_than_it_has(split, count):
    with pytest.raises(CaplocError, match=rf'"capitals" has \d+ prompts in its {split} .*prompts\.{split}'):
        build("capitals", seed=0, **{"measure": 1, "validate": 1, split: count})
    most = room("capitals", 0, split)
    built = build("capitals", seed=0, **{"measure": 1, "validate": 1, split: most})
    assert len(built.splits[split].prompts) == most


def test_an_unknown_name_is_told_the_likely_one():
    with pytest.raises(
        CaplocError, match=r'unknown capability "captials" .did you mean "capitals"'
    ) as refused:
        build("captials", seed=0, measure=1, validate=1)
    assert all(name in str(refused.value) for name in NAMES)
    with pytest.raises(CaplocError, match=r'unknown capability "zzzz"; known: indirect_object'):
        build("zzzz", seed=0, measure=1, validate=1)


def test_a_name_given_twice_is_refused():
    with pytest.raises(CaplocError, match="twice: addition"):
        build_all(["addition", "prose", "addition"], seed=0, measure=1, validate=1)


def test_no_name_is_refused():
    with pytest.raises(CaplocError, match="no capability"):
        build_all([], seed=0, measure=1, validate=1)
