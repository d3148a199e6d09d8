"""Masks beyond the design, on made-up capabilities."""

from functools import partial

import numpy as np

from caploc import HeadGrid
from caploc.designs import sample_masks
from caploc.localization import choose
from caploc.recovery.fits import BayesFit
from caploc.recovery.observations import Observations
from caploc.refinement import refine

GRID = HeadGrid((8,) * 12)
PLANTED = {"addition": {3: -2.0, 40: -1.5}, "capitals": {77: -2.0, 12: -1.5}}


def observe(masks, noise=1.0):
    """What a mask scores depends on the mask alone, as with a real model."""
    observations = {}
    for name, by_head in PLANTED.items():
        effects = np.zeros((8, len(GRID)))
        effects[:, list(by_head)] = list(by_head.values())
        intact = np.linspace(0.5, 2.5, 8)
        errors = [
            np.random.default_rng([len(name), *np.flatnonzero(mask)]).normal(0, noise, 8) for mask in masks
        ]
        margin = intact + masks.astype(float) @ effects.T + np.array(errors)
        observations[name] = Observations(margin, (margin > 0) * 1.0, margin, intact, intact, np.ones(8))
    return observations


def refined(design, masks=24, rounds=4, seed=0, noise=1.0):
    pick = partial(choose, sparsity=2, objective="joint", weight=1.0)
    return refine(
        design,
        partial(observe, noise=noise),
        BayesFit,
        pick,
        list(PLANTED),
        masks=masks,
        rounds=rounds,
        seed=seed,
    )


def test_new_masks_are_sets_that_might_be_chosen():
    design = sample_masks("balanced", GRID, 60, 0.06, 0)
    result = refined(design)
    np.testing.assert_array_equal(result[:60], design)
    new = result[60:]
    assert 0 < len(new) <= 24
    assert set(new.sum(axis=1)) <= {1, 2}
    assert len({mask.tobytes() for mask in result}) == len(result)
    often = np.argsort(-new.sum(axis=0))[:4]
    assert {3, 77} <= set(often.tolist())


def test_the_same_seed_adds_the_same_masks_and_none_is_added_unasked():
    design = sample_masks("balanced", GRID, 60, 0.06, 0)
    np.testing.assert_array_equal(refined(design), refined(design))
    np.testing.assert_array_equal(refined(design, masks=0), design)


def test_it_ends_when_nothing_is_in_doubt():
    design = sample_masks("balanced", GRID, 200, 0.06, 0)
    assert len(refined(design, masks=80, rounds=8, noise=0.05)) < 280
