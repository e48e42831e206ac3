"""The scikit-learn Pipelines that an estimator is being fitted in.

An estimator is not told that it is a step of a Pipeline, and the rows that it gets say nothing
about the steps before it. So the frames of the callers are looked at, here and nowhere else: those
that run the fit of a Pipeline of which one of the objects below them is a step.
"""

from __future__ import annotations

import contextlib
import sys
from types import FrameType
from typing import Any

from sklearn.pipeline import Pipeline

from dpsvm_fast.estimators._pipeline_steps import Step, learned_steps

__all__ = ["steps_learned_before"]

# Methods of a Pipeline in which its steps are fitted.
FITTING = frozenset({"fit", "_fit", "fit_transform", "fit_predict"})
# No fit lies deeper below the first Pipeline than this many calls.
DEEPEST = 500


def steps_learned_before() -> tuple[str, ...]:
    """Earlier steps, of all Pipelines around the caller, that learned without privacy.

    Returns
    -------
    tuple of str
        Name and class of each; empty outside a Pipeline, and where nothing can be found out, as in
        a worker process that was handed an estimator without its Pipeline. Never raises.
    """
    found: list[Step] = []
    with contextlib.suppress(Exception):
        _collect(sys._getframe(1), found)
    return tuple(dict.fromkeys(map(str, found)))


def _collect(frame: FrameType | None, found: list[Step]) -> None:
    """Adds the steps, those of the outermost Pipeline first."""
    below: set[int] = set()
    for _ in range(DEEPEST):
        if frame is None:
            return
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            owner = frame.f_locals.get("self")
            fitting = code.co_name in FITTING and id(owner) not in below
            # Of one Pipeline several methods are running; the innermost tells.
            if fitting and isinstance(owner, Pipeline):
                place = _place(owner, below, frame.f_locals)
                found[:0] = learned_steps(list(owner.steps[:place]))
            below.add(id(owner))
        frame = frame.f_back


def _place(pipeline: Pipeline, below: set[int], local: Any) -> int:
    """Number of the step that is being fitted; 0 where that cannot be told."""
    for number, (_, step) in enumerate(pipeline.steps):
        if id(step) in below:
            return number
    # A Pipeline that caches its steps fits copies of them.
    number = local.get("step_idx")
    return number if isinstance(number, int) else 0
