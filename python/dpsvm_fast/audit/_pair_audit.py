"""The audit of a pair of neighbouring data sets: many runs in both worlds, one certified number."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _validation as check
from dpsvm_fast.audit._bounds import Counts
from dpsvm_fast.audit._claims import certified_epsilon, resolved_method
from dpsvm_fast.audit._pairs import Pair
from dpsvm_fast.audit._report import AuditReport, alpha_of, histogram_of
from dpsvm_fast.audit._runner import Runner
from dpsvm_fast.audit._subjects import subject_of

__all__ = ["audit"]

Array = NDArray[np.float64]

DEFAULT_SECONDS = 60.0


def audit(
    estimator: Any,
    *,
    n_trials: int | None = None,
    seconds: float | None = None,
    confidence: float = 1.0 - 1e-6,
    method: str = "auto",
    adjacency: str | None = None,
    pair: Pair | None = None,
    claim: tuple[float, float] | None = None,
    part: str | None = None,
    n_threads: int | None = None,
    random_state: int | None = None,
) -> AuditReport:
    """Try to refute what ``estimator`` claims, by many runs on two neighbouring data sets.

    Parameters
    ----------
    estimator : estimator, transformer, pipeline, or callable
        Anything of this library is run by the hundred thousand through its own mechanism. Anything
        else with ``fit`` is cloned and fitted as a whole, and a callable of (X, y) that returns
        numbers is called: both are slower, and need ``pair``. It is not changed; a ledger and a
        seed of its own are left out.
    n_trials : int >= 100 or None, default=None
        Counted runs of each world. None: as many as ``seconds`` allow, 1,000,000 at most.
    seconds : float > 0 or None, default=None
        Time to spend; None: 60, or what ``n_trials`` take.
    confidence : float in (0, 1), default=1 - 1e-6
        Of the bound. Both ends of it, the two proportions, have half of the rest each.
    method : {"auto", "gaussian", "profile", "clopper_pearson"}, default="auto"
        What is taken to be known of the law: that its trade-off curve is Gaussian; that it is the
        claimed one but for the size of its noise; or nothing. "auto" is the first that applies, and
        the last for pure mechanisms, for which it is as sharp.
    adjacency : {"add_remove", "replace_one"} or None, default=None
        Relation of ``pair``, for what does not have one; None takes the estimator's.
    pair : Pair or None, default=None
        Two neighbouring data sets (owed by the caller: nobody checks that they are). None takes
        those on which the mechanism is known to spend most.
    claim : tuple (epsilon, delta) or None, default=None
        What is claimed; None asks the fitted object for ``privacy_``.
    part : str or None, default=None
        Audit one release of a pipeline by its own share of the budget: "centre",
        "whitening" or "training".
    n_threads : int or None, default=None
        Threads; None is all cores. Never changes the result.
    random_state : int or None, default=None
        None: noise of the operating system. An int makes audits of this library's estimators
        reproducible (with ``n_trials``).

    Returns
    -------
    AuditReport

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter outside its range, or nothing known about the claim or the pair.

    Notes
    -----
    Guarantees: if the program is as private as it claims, ``certified`` exceeds the claim with a
    probability of at most ``1 - confidence``, whatever was learned on the pilot runs. The reverse
    does not hold: a small bound proves nothing about privacy.

    References
    ----------
    Jagielski, Ullman and Oprea, NeurIPS 2020; Nasr, Hayes, Steinke, Balle, Tramer, Jagielski,
    Carlini and Terzis, USENIX Security 2023.

    Examples
    --------
    >>> from dpsvm_fast import OutputPerturbationSVC
    >>> from dpsvm_fast.audit import audit
    >>> report = audit(OutputPerturbationSVC(1.0, 1e-5, C=0.1), n_trials=20_000)
    >>> report.exceeds_claim
    False
    """
    started = time.monotonic()
    if n_trials is not None:
        n_trials = check.check_integer("n_trials", n_trials, 100, 2**40)
    if seconds is not None:
        seconds = check.check_positive("seconds", seconds)
    alpha = alpha_of(confidence)
    subject = subject_of(estimator, adjacency=adjacency, pair=pair, claim=claim, part=part)
    method = resolved_method(method, subject.claim)
    runner = Runner(
        subject, check.check_n_threads(n_threads), check.check_random_state(random_state)
    )
    budget = seconds if seconds is not None or n_trials is not None else DEFAULT_SECONDS
    deadline = math.inf if budget is None else started + budget
    n_pilot = runner.learn(n_trials, deadline, method)
    values = runner.values(n_trials, deadline)
    n = min(v.size for v in values)
    return _report(runner, method, alpha, values, n, n_pilot, time.monotonic() - started)


def _report(
    runner: Runner,
    method: str,
    alpha: float,
    values: tuple[Array, Array],
    n: int,
    n_pilot: int,
    seconds: float,
) -> AuditReport:
    """The bound and everything it rests on."""
    claim, event = runner.subject.claim, runner.event
    inside = [event.count(v[:n]) for v in values]
    counts = Counts(inside[event.likely], inside[1 - event.likely], n)
    return AuditReport(
        mechanism=runner.subject.name,
        adjacency=claim.adjacency,
        epsilon=claim.epsilon,
        delta=claim.delta,
        certified=certified_epsilon(method, counts, claim, alpha),
        method=method,
        confidence=1.0 - alpha,
        n_trials=n,
        n_pilot=n_pilot,
        seconds=seconds,
        statistic=runner.statistic.name,
        threshold=event.threshold,
        counts=(counts.likely, counts.rare),
        histogram=histogram_of(*values),
    )
