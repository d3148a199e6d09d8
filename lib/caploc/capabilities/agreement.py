"""Subject-verb agreement across a noun that may pull the verb the wrong way."""

from itertools import product

import numpy as np

from caploc.capabilities.prompts import Family, Item, Metric, Prompt

SUBJECTS = (
    "key", "picture", "report", "letter", "author", "teacher", "window", "road", "book", "price",
    "result", "label", "painting", "song", "wheel", "door", "bottle", "lamp", "poster", "doctor",
    "player", "singer", "friend", "guard", "driver", "manager", "pilot", "farmer", "answer", "story",
    "bridge", "path", "gift", "ticket", "sign", "machine", "tool", "shirt", "cake", "chair",
)  # fmt: skip

LINKS = ("near", "behind", "beside", "next to")

ATTRACTORS = (
    "cabinet", "house", "garden", "river", "table", "building", "car", "tree", "shop", "station",
    "office", "church", "fence", "lake", "wall", "tower",
)  # fmt: skip

VERBS = (("is", "are"), ("was", "were"), ("has", "have"))


def _plural(noun: str) -> str:
    if noun.endswith(("ch", "sh")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"


def _items(rng: np.random.Generator) -> list[Item]:
    items = []
    for subject, plural_subject, plural_attractor in product(SUBJECTS, (False, True), (False, True)):
        attractor = ATTRACTORS[rng.integers(len(ATTRACTORS))]
        link = LINKS[rng.integers(len(LINKS))]
        verbs = VERBS[rng.integers(len(VERBS))]
        head = _plural(subject) if plural_subject else subject
        near = _plural(attractor) if plural_attractor else attractor
        prompt = Prompt(
            text=f"The {head} {link} the {near} that we saw",
            answer=f" {verbs[plural_subject]}",
            others=(f" {verbs[not plural_subject]}",),
        )
        items.append(Item(subject, prompt))
    return items


FAMILY = Family(
    name="agreement",
    summary="the verb form that agrees with its subject, past another noun",
    metric=Metric.CHOICE,
    chance=0.5,
    items=_items,
)
