"""What a fit will charge, known before it: of any estimator here, and of Pipelines of them.

A mechanism is built without data, and its law does not depend on the number of columns: what a
wider sum costs in rounding is paid by its noise. So a Pipeline can be planned as a whole, though
only its fit knows how many columns each step hands on. The last bits of a noise scale may depend on
that number; events planned here are larger by more than that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpsvm_fast._rounding import mul_down
from dpsvm_fast.accounting import (
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    SubsampledGaussianEvent,
)
from dpsvm_fast.estimators._pipeline_steps import Step, leaf_steps
from dpsvm_fast.estimators._training import PrivatelyTrained

__all__ = ["Planned", "planned_events", "private_steps"]

# Relative; far above what rounding does to the parameter of a Gaussian mechanism, and far below
# what a ledger forgives.
MARGIN = 2.0**-42


@dataclass(frozen=True)
class Planned:
    """Public facts about the rows of a fit.

    Parameters
    ----------
    n_classes : int
        For estimators whose label set is not a parameter.
    n_samples : int or None
        Number of rows where it is public, with ``replace_one``; None where it is not.
    sparse : bool
    """

    n_classes: int = 2
    n_samples: int | None = None
    sparse: bool = False


def private_steps(estimator: Any) -> list[Step]:
    """The estimators inside that will spend budget, in the order of their fits."""
    return [leaf for leaf in leaf_steps(estimator, "") if _spends(leaf)]


def planned_events(estimator: Any, rows: Planned) -> tuple[PrivacyEvent, ...]:
    """Events of one fit of an estimator or of all steps of a Pipeline.

    Parameters
    ----------
    estimator : object
        With the parameters of the fit; reads no data and spends nothing.
    rows : Planned

    Returns
    -------
    tuple of PrivacyEvent
        In the order of the fits. Each is at least as large as the one that will be spent, by a
        relative 2**-42 at most.

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter is outside its range.
    """
    return tuple(
        _widened(event)
        for leaf in private_steps(estimator)
        for event in _events_of(leaf.estimator, rows)
    )


def _spends(leaf: Step) -> bool:
    """Whether a fit of this step makes releases, also where the class is a user's own."""
    step = leaf.estimator
    return leaf.role == "private" or hasattr(type(step), "_planned_events") or _is_ours(step)


def _is_ours(step: Any) -> bool:
    """Whether a step is made like the estimators here."""
    return isinstance(step, PrivatelyTrained) or (
        hasattr(step, "_mechanism") and hasattr(step, "_checked_parameters")
    )


def _events_of(step: Any, rows: Planned) -> tuple[PrivacyEvent, ...]:
    """Events of a fit of one estimator."""
    if hasattr(type(step), "_planned_events"):
        declared: tuple[PrivacyEvent, ...] = step._planned_events(rows)
        return declared
    if not _is_ours(step):
        raise TypeError(
            f"estimator: got {type(step).__name__}, expected an estimator of this library that "
            "fits once, or a DeclaredTrainer"
        )
    settings = step._checked_parameters()
    if not isinstance(step, PrivatelyTrained):
        return (step._mechanism(settings, 1).event,)
    classes = getattr(settings, "classes", None)
    if settings.adjacency == "replace_one":
        settings.n_samples = rows.n_samples
    if hasattr(settings, "sparse"):
        settings.sparse = rows.sparse
    n_classes = rows.n_classes if classes is None else classes.size
    events: tuple[PrivacyEvent, ...] = step._mechanism(settings, n_classes, 1).events
    return events


def _widened(event: PrivacyEvent) -> PrivacyEvent:
    """The event with a little less noise, where rounding has a say in how much there is."""
    if isinstance(event, (GaussianEvent, ObjectiveEvent)):
        return replace(event, sigma=mul_down(event.sigma, 1.0 - MARGIN))
    if isinstance(event, SubsampledGaussianEvent):
        multiplier = mul_down(event.noise_multiplier, 1.0 - MARGIN)
        return replace(event, noise_multiplier=multiplier)
    return event
