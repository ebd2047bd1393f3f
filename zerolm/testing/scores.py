"""Rules that every score must satisfy, for authors of plug-ins: ``check_score``."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np

from zerolm.architecture import Architecture
from zerolm.scores import ClosedForm, make_score
from zerolm.spaces import make_space, space_names
from zerolm.testing.spaces import architectures

SCORES_TOLERANCE: Final = 1e-9
"""Relative difference within which scores are equal."""
FEW: Final = 5


def check_score(name: str, **options: Any) -> None:
    """Check a registered score, with these options; ``AssertionError`` says which rule it breaks.

    Scores are finite, the same at every call, and independent of the other architectures in a call; of a
    closed form they do not depend on the order of layers. It is tried on every space.
    """
    score = make_score(name, **options)
    for space_name in space_names():
        space = make_space(space_name)
        drawn = list(architectures(space, list(islice(space.backbones(), 50)), FEW))
        scores = np.asarray(score.of_many(drawn))
        where = f"on {space_name}"
        _demand(name, scores.shape == (len(drawn),), f"one score an architecture {where}, not {scores.shape}")
        _demand(name, bool(np.isfinite(scores).all()), f"finite scores {where}, not {scores.tolist()}")
        again = score.of_many(drawn)
        _demand(name, np.array_equal(scores, again), f"the same scores at every call {where}")
        alone = [score.of(architecture) for architecture in drawn]
        _demand(name, _close(scores, alone), f"the same scores alone as among others {where}")
        if isinstance(score, ClosedForm):
            turned = score.of_many([_turned(architecture) for architecture in drawn])
            _demand(name, _close(scores, turned), f"the same scores whatever the order of layers {where}")


def _turned(architecture: Architecture) -> Architecture:
    return replace(architecture, layers=architecture.layers[::-1])


def _close(one: Any, other: Any) -> bool:
    return bool(np.allclose(one, other, rtol=SCORES_TOLERANCE, atol=0.0))


def _demand(name: str, is_so: bool, rule: str) -> None:
    if not is_so:
        raise AssertionError(f"score {name!r} must give {rule}")
