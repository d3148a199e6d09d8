"""What a capability is made of: prompts with a right answer, in two splits that share no item."""

import hashlib
import json
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np


class Metric(StrEnum):
    """How a prompt is scored, beside the log-probability of its answer."""

    EXACT = "exact"
    """Correct if greedy decoding yields the answer."""
    CHOICE = "choice"
    """Correct if the answer is more probable than every other choice."""
    LOGPROB = "logprob"
    """Never right or wrong: a control, judged by log-probability a token alone."""


@dataclass(frozen=True)
class Prompt:
    """A text, the answer that continues it, and (for choices) the wrong answers.

    The answer starts with the space that separates it from the text, if there is one.
    """

    text: str
    answer: str
    others: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """Twelve hex digits of the content's hash."""
        content = json.dumps(asdict(self), ensure_ascii=True, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class PromptSet:
    """Prompts scored together by one metric."""

    metric: Metric
    prompts: tuple[Prompt, ...]

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that change when a prompt, their order or the metric does."""
        content = ":".join([self.metric, *(prompt.id for prompt in self.prompts)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Item:
    """A prompt, and the thing it tests: items of one group never stand in different splits."""

    group: Hashable
    prompt: Prompt


@dataclass(frozen=True)
class Family:
    """Where a capability's prompts come from.

    Parameters
    ----------
    items : callable
        From a random generator to every item that can be asked, in a fixed order. The generator
        serves to dress the items (names, objects), not to choose among them.
    """

    name: str
    summary: str
    metric: Metric
    chance: float
    items: Callable[[np.random.Generator], list[Item]]


@dataclass(frozen=True)
class Capability:
    """A capability as sampled for one experiment.

    Parameters
    ----------
    name : str
        The name in params.yaml.
    summary : str
        What it tests, in a few words.
    metric : Metric
        How its prompts are scored.
    chance : float
        Share of correct prompts that guessing reaches.
    splits : dict of str to PromptSet
        ``measure`` (for recovery) and ``validate`` (for the proof); they share no item.
    """

    name: str
    summary: str
    metric: Metric
    chance: float
    splits: dict[str, PromptSet]

    @property
    def is_control(self) -> bool:
        """Whether it has no right or wrong, and so no heads of its own."""
        return self.metric is Metric.LOGPROB
