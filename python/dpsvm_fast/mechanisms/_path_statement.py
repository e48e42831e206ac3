"""What is promised about all releases of a pipeline together, on the path that was taken."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from dpsvm_fast.accounting import PrivacyStatement
from dpsvm_fast.accounting.words import FLOATING_POINT_CAVEAT, RUNNING_TIME_CAVEAT
from dpsvm_fast.mechanisms._training_path import Solver, Training

if TYPE_CHECKING:
    from dpsvm_fast.mechanisms.linear_pipeline import PrivateLinear

__all__ = ["path_statement"]


def path_statement(
    mechanism: PrivateLinear,
    training: Training,
    facts: dict[str, Any],
    caveats: tuple[str, ...],
) -> PrivacyStatement:
    """The statement about one path.

    Parameters
    ----------
    mechanism : PrivateLinear
    training : Training
        The path.
    facts : dict
        Fields about the fit, as they are.
    caveats : tuple of str
        Beside those of the mechanism.
    """
    whole: dict[str, Any] = {
        "mechanism": mechanism.kind,
        "epsilon": mechanism.epsilon,
        "delta": mechanism.delta,
        "events": training.events,
        "parts": tuple(part.part for part in training.sums),
    }
    if training.solver is not None:
        return _of_solver(training.solver, training, whole, facts | {"caveats": caveats})
    own_caveats: tuple[str, ...] = (RUNNING_TIME_CAVEAT,)
    if mechanism.noise_grid == "float":
        own_caveats += (FLOATING_POINT_CAVEAT,)
    return PrivacyStatement(
        loss=mechanism.loss.name,
        adjacency=mechanism.adjacency,
        caveats=own_caveats + caveats,
        **facts,
        **whole,
    )


def _of_solver(
    solver: Solver, training: Training, whole: dict[str, Any], facts: dict[str, Any]
) -> PrivacyStatement:
    """That of the solver, about the noisy sums before it too."""
    own = solver.statement(**facts)
    if not training.sums:
        # Nothing but the solver's own release.
        return own
    return dataclasses.replace(own, **whole)
