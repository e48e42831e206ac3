"""One fit of one candidate, in whatever thread or process it is made."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sklearn.base import clone

from dpsvm_fast import _core
from dpsvm_fast.estimators._enclosing_search import within_search
from dpsvm_fast.estimators._pipeline_steps import leaf_steps
from dpsvm_fast.estimators._planned_events import private_steps
from dpsvm_fast.model_selection._budgets import Allotment
from dpsvm_fast.model_selection._purse import CandidateLedger
from dpsvm_fast.model_selection._scores import Scoring

# What a fit is given and gives back.
GIVEN = frozenset({"ledger", "random_state", "n_threads"})

# Seconds between two looks of a worker at its parent.
LOOK = 0.5
# The process that looks; a fork of it does not.
_looking = 0

__all__ = ["Fit", "fitted", "fitted_and_scored", "release_only", "seeds"]


@dataclass(frozen=True)
class Fit:
    """How a candidate is to be fitted.

    Parameters
    ----------
    allotment : Allotment
        Its copy is not touched: runs of one candidate share it.
    seed : int or None
        None for entropy of the operating system.
    n_threads : int or None
        For estimators that leave it open; does not change the result.
    process : int
        Number of the process that searches.
    """

    allotment: Allotment
    seed: int | None
    n_threads: int | None
    process: int = field(default_factory=os.getpid)


def seeds(random_state: int | None, n: int) -> list[int | None]:
    """Seeds of so many fits, different ones, or None for each."""
    if random_state is None:
        return [None] * n
    source = _core.NoiseSource(random_state)
    return [source.public_seed() for _ in range(n)]


def fitted(how: Fit, X: Any, y: Any) -> Any:
    """A fitted copy of the candidate, that can spend what the search has paid for and no more."""
    estimator = clone(how.allotment.estimator)
    with _prepared(estimator, how), within_search():
        estimator.fit(X, y)
    return estimator


def fitted_and_scored(
    how: Fit, X: Any, y: Any, X_scored: Any, y_scored: Any, scoring: Scoring
) -> tuple[Any, int]:
    """A fitted copy and its score on other rows. The score is private."""
    _end_with(how.process)
    estimator = fitted(how, X, y)
    return estimator, scoring.score(estimator.predict(X_scored), y_scored)


def _end_with(process: int) -> None:
    """Make a worker end when the process that searches does, also by SIGTERM or SIGKILL.

    A worker that is left alone would hold rows in memory, and the pipes of its parent open, for as
    long as its fit takes and minutes more. Threads, and workers of another parent, are let be.
    """
    global _looking
    if os.getppid() == process and _looking != os.getpid():
        _looking = os.getpid()
        threading.Thread(target=_look, args=(process,), daemon=True).start()


def _look(parent: int) -> None:
    """Wait until the parent has ended, and end too."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


@contextmanager
def _prepared(estimator: Any, how: Fit) -> Iterator[None]:
    """Gives the steps inside ledger, seed and threads, and takes them away again."""
    allotment = how.allotment
    budget = allotment.budget
    ledger = CandidateLedger(budget.epsilon, budget.delta, budget.adjacency, allotment.events)
    spending = {id(step.estimator) for step in private_steps(estimator)}
    leaves = [leaf.estimator for leaf in leaf_steps(estimator, "")]
    silent = _silent(estimator)
    before = [(estimator, {name: estimator.get_params()[name] for name in silent})]
    for leaf in leaves:
        own = leaf.get_params(deep=False) if hasattr(leaf, "get_params") else {}
        before.append((leaf, {name: own[name] for name in own if name in GIVEN}))
    estimator.set_params(**silent)
    for leaf, seed in zip(leaves, seeds(how.seed, len(leaves)), strict=True):
        own = leaf.get_params(deep=False) if hasattr(leaf, "get_params") else {}
        given: dict[str, Any] = {}
        if id(leaf) in spending and "ledger" in own:
            given["ledger"] = ledger
        if "random_state" in own and own["random_state"] is None:
            given["random_state"] = seed
        if "n_threads" in own and own["n_threads"] is None:
            given["n_threads"] = how.n_threads
        if given:
            leaf.set_params(**given)
    try:
        yield
    finally:
        for owner, parameters in before:
            if parameters:
                owner.set_params(**parameters)


def _silent(estimator: Any) -> dict[str, Any]:
    """What keeps an estimator and all inside from telling how many fits there are, by name.

    Neither a line for each fit nor a copy of every step's rows in a cache may be left behind.
    """
    found: dict[str, Any] = {}
    for name, value in estimator.get_params().items():
        last = name.rpartition("__")[2]
        if last == "memory" and value is not None:
            found[name] = None
        if last == "verbose" and value:
            found[name] = False if isinstance(value, bool) else 0
    return found


def release_only(estimator: Any, statement: Any) -> Any:
    """The fitted estimator with the promise of the search in place of that of its own fit.

    Its own would be about one fit, and whoever reads it would leave out the search. What a fit
    keeps to be continued from goes too: a continuation would account for that fit alone.
    """
    for leaf in leaf_steps(estimator, ""):
        leaf.estimator.__dict__.pop("_continuation", None)
    steps = private_steps(estimator)
    if steps and "privacy_" in vars(steps[-1].estimator):
        steps[-1].estimator.privacy_ = statement
    return estimator
