"""The statement of one search."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dpsvm_fast.accounting import PureEvent
from dpsvm_fast.accounting.selection import SelectionStatement
from dpsvm_fast.accounting.words import (
    CLASS_WEIGHTS,
    DECLARED,
    FLOATING_POINT_CAVEAT,
    FUNCTION,
    MAX_ITER_CAVEAT,
    PARTS_CAVEAT,
    PRECISION_CAVEAT,
    RUNNING_TIME_CAVEAT,
    RUNS_CAVEAT,
)
from dpsvm_fast.estimators._pipeline_steps import leaf_steps
from dpsvm_fast.estimators._planned_events import private_steps
from dpsvm_fast.estimators._training import promise_facts
from dpsvm_fast.model_selection._declared import DeclaredTrainer
from dpsvm_fast.model_selection._grid import described
from dpsvm_fast.model_selection._plan import Plan

__all__ = ["learned_in", "search_statement"]


def learned_in(candidates: list[Any]) -> tuple[str, ...]:
    """Steps inside the candidates that learn from the rows without privacy."""
    leaves = (leaf for candidate in candidates for leaf in leaf_steps(candidate, ""))
    private = {id(s.estimator) for candidate in candidates for s in private_steps(candidate)}
    found = [str(f) for f in leaves if f.role == "learned" and id(f.estimator) not in private]
    return tuple(dict.fromkeys(found))


def search_statement(settings: SimpleNamespace, plan: Plan) -> SelectionStatement:
    """What the search promises.

    Parameters
    ----------
    settings : SimpleNamespace
        Checked parameters of the search.
    plan : Plan
    """
    facts = promise_facts(settings, "param_grid")
    public = facts.pop("assumed_public")
    if settings.class_weight is not None:
        public += (CLASS_WEIGHTS,)
    leaves = [leaf for candidate in settings.candidates for leaf in leaf_steps(candidate, "")]
    public += tuple(
        dict.fromkeys(FUNCTION.format(step=leaf) for leaf in leaves if leaf.maps_by_function)
    )
    steps = [leaf.estimator for leaf in leaves]
    if any(isinstance(step, DeclaredTrainer) for step in steps):
        public += (DECLARED,)
    return SelectionStatement(
        epsilon=settings.epsilon,
        delta=settings.delta,
        adjacency=settings.adjacency,
        strategy=settings.strategy,
        candidates=tuple(map(described, settings.parameters)),
        branches=tuple(branch.events for branch in plan.branches),
        selection=plan.selection,
        stopping=plan.stopping,
        refit=plan.refit,
        assumed_public=public,
        caveats=_caveats(settings, plan, steps),
        **facts,
    )


def _caveats(settings: SimpleNamespace, plan: Plan, steps: list[Any]) -> tuple[str, ...]:
    """What no candidate's promise covers, and what the search adds to that."""
    partition = settings.strategy == "partition"
    caveats = [RUNNING_TIME_CAVEAT if partition else RUNS_CAVEAT]
    if partition:
        caveats.append(PARTS_CAVEAT)
    events = [event for branch in plan.branches for event in branch.events]
    floating = any(getattr(step, "noise_grid", "exact") == "float" for step in steps)
    if floating or any(isinstance(event, PureEvent) for event in events):
        caveats.append(FLOATING_POINT_CAVEAT)
    if any(map(_minimises, steps)):
        caveats.append(PRECISION_CAVEAT)
    if any(getattr(step, "max_iter", None) is not None for step in steps):
        caveats.append(MAX_ITER_CAVEAT)
    return tuple(caveats)


def _minimises(step: Any) -> bool:
    """Whether a fit certifies the minimum of a smooth loss, which it may fail to do."""
    trainer = getattr(step, "mechanism", None)
    if trainer is not None:
        return bool(trainer in ("objective", "output") or (trainer == "auto" and step.delta == 0.0))
    certifies = hasattr(step, "max_iter") and getattr(step, "solver", "exact") == "exact"
    return bool(certifies and getattr(step, "loss", None) != "crammer_singer")
