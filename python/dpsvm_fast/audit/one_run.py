"""Audits in one run: guess from the release which random canaries are in the data.

Of m canaries r are guessed to be in or out, and C guesses are correct. A trade-off function f
limits C: docs/proofs/one_run_audit.md bounds P[C >= c] from f alone, for any dependence between the
canaries. If only (epsilon, delta) is known, the bound of Steinke, Nasr and Jagielski (2023) is
computed too, and the smaller probability is used.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats
from scipy.special import ndtr, ndtri

from dpsvm_fast import _core
from dpsvm_fast import validation as check
from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.audit.bounds import Claim, boundary, largest, resolved_method
from dpsvm_fast.audit.pair_audit import (
    AuditReport,
    OutputWorld,
    Pair,
    TrainedWorld,
    alpha_of,
    labels_of,
    prepared,
    subject_of,
)
from dpsvm_fast.certificates import GaussianEvent, PrivacyEvent
from dpsvm_fast.estimators import GradientPerturbationSVC, OutputPerturbationSVC
from dpsvm_fast.exceptions import InvalidParameterError

# Names of the methods in reports.
ONE_RUN = {
    "clopper_pearson": "one_run",
    "gaussian": "one_run_gaussian",
    "profile": "one_run_profile",
}

# Shares of the canaries that may be guessed, and the largest parameter of a curve to try.
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)

LARGEST_EPSILON = 100.0

# Every step of the recursion is rounded down by this; SciPy's normal law errs by less.
ROUNDED_DOWN = 1e-12
# Number of epsilons at which a profile is turned into a trade-off curve, and the largest.
N_NODES, LARGEST_NODE = 64, 20.0

Array = NDArray[np.float64]

Inverse = Callable[[float], float]


def tail_refuted(
    inverse: Inverse, n_canaries: int, n_guesses: int, right: int, alpha: float
) -> bool:
    r"""Return whether a trade-off curve makes this many correct guesses rarer than ``alpha``.

    Parameters
    ----------
    inverse : callable
        :math:`y \mapsto \min\{x : 1 - f(x) \ge y\}` on [0, 1], or a function below it; f is convex
        and holds for either order of the worlds.
    n_canaries, n_guesses, right : int
        0 <= right <= n_guesses <= n_canaries.
    alpha : float in (0, 1)

    Returns
    -------
    bool
        True if P[C >= right] < alpha for every program with this curve. False if nothing is known.

    Notes
    -----
    ``s`` is a lower bound on P[C >= i] that follows from P[C >= right] >= alpha; above 1 it is a
    contradiction. Steps and sums are rounded down, so it stays a lower bound.
    """
    if right == 0:
        return False
    s = total = alpha
    for i in range(right - 1, -1, -1):
        # Here s bounds P[C >= i + 1], and total the sum of all such probabilities from there on.
        met = min(1.0, (i * s + total) / n_canaries * (1.0 - ROUNDED_DOWN))
        step = (n_canaries * inverse(met) * (1.0 - ROUNDED_DOWN) + total) / (n_guesses - i)
        if step <= s:
            # Nothing changes from here on.
            return False
        s = step * (1.0 - ROUNDED_DOWN)
        if s > 1.0:
            return True
        total = (total + s) * (1.0 - ROUNDED_DOWN)
    return False


def gaussian_inverse(mu: float) -> Inverse:
    """Return the inverse trade-off curve of Gaussian differential privacy."""
    return lambda y: float(ndtr(ndtri(y) - mu))


def profile_inverse(epsilons: Array, deltas: Array) -> Inverse:
    """Return the inverse trade-off curve of a profile, or of one (epsilon, delta)."""
    shrunk = np.exp(-epsilons)
    return lambda y: max(0.0, float(((y - deltas) * shrunk).max()))


def log_p_value(n_canaries: int, n_guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the log-probability of this many correct guesses under (epsilon, delta).

    Parameters
    ----------
    n_canaries, n_guesses, right : int
        0 <= right <= n_guesses <= n_canaries.
    epsilon : float >= 0
    delta : float in [0, 1]

    Returns
    -------
    float <= 0
        Log of an upper bound on the probability.
    """
    if right == 0:
        return 0.0
    # Log of e^epsilon / (1 + e^epsilon).
    chance = math.exp(-math.log1p(math.exp(-epsilon)))
    law = stats.binom(n_guesses, chance)
    log_tail = float(law.logsf(right - 1))
    if delta == 0.0:
        return min(0.0, log_tail)
    below = law.logpmf(np.arange(right - 1, -1, -1))
    averages = np.logaddexp.accumulate(below) - np.log(np.arange(1, right + 1))
    slack = math.log(2.0) + math.log(n_canaries) + math.log(delta) + float(averages.max())
    return min(0.0, float(np.logaddexp(log_tail, slack)))


def one_run_bound(n_canaries: int, n_guesses: int, right: int, delta: float, alpha: float) -> float:
    """Return a lower bound on epsilon from the definition alone.

    Both probabilities increase with epsilon, so what refutes an epsilon refutes every smaller one.
    Each bounds P[C >= right], so their minimum does.
    """
    log_alpha = math.log(alpha)

    counts = n_canaries, n_guesses, right

    def refuted(epsilon: float) -> bool:
        curve = profile_inverse(np.array([epsilon]), np.array([delta]))
        rare = log_p_value(*counts, epsilon, delta) < log_alpha
        return rare or tail_refuted(curve, *counts, alpha)

    return largest(refuted, LARGEST_EPSILON)


def one_run_separation(n_canaries: int, n_guesses: int, right: int, alpha: float) -> float:
    """Return a lower bound on mu for a Gaussian trade-off curve."""
    counts = n_canaries, n_guesses, right
    return largest(lambda mu: tail_refuted(gaussian_inverse(mu), *counts, alpha), LARGEST_EPSILON)


def one_run_epsilon(
    method: str, n_canaries: int, n_guesses: int, right: int, claim: Claim, alpha: float
) -> float:
    """Return a lower bound on epsilon at the claimed delta by ``method``."""
    if method == "clopper_pearson":
        return one_run_bound(n_canaries, n_guesses, right, claim.delta, alpha)
    if method == "gaussian":
        return claim.epsilon_of_mu(one_run_separation(n_canaries, n_guesses, right, alpha))
    epsilons = np.linspace(0.0, min(LARGEST_NODE, 4.0 * max(claim.epsilon, 1.0)), N_NODES)

    def refuted(factor: float) -> bool:
        profile = claim.profile(factor)
        curve = profile_inverse(epsilons, np.array([profile(e) for e in epsilons]))
        return tail_refuted(curve, n_canaries, n_guesses, right, alpha)

    return claim.certified_by(refuted)


def audit_one_run(
    estimator: Any,
    n_canaries: int = 1000,
    *,
    confidence: float = 0.95,
    method: str = "auto",
    n_guesses: int | None = None,
    n_threads: int | None = None,
    random_state: int | None = None,
) -> AuditReport:
    """Audit an estimator by a single fit with many orthogonal canaries.

    Canary i is the i-th unit vector times the norm bound. With "add_remove" a coin decides whether
    it is in the data, with "replace_one" which label it has. Its score is the weight of its
    feature. The highest scores are guessed to be in, the lowest to be out; the rest are not
    guessed.

    Parameters
    ----------
    estimator : OutputPerturbationSVC or GradientPerturbationSVC
        Estimator of two classes, which is not changed. Canaries far from their margin reveal most:
        use a small C, or a small clip norm and short steps.
    n_canaries : int >= 2, default=1000
        Number of canaries and of features.
    confidence : float in (0, 1), default=0.95
        Confidence of the bound. A program may leak everything in one of many runs; a high
        confidence detects only leaks in nearly all runs.
    method : {"auto", "gaussian", "profile", "clopper_pearson"}, default="auto"
        Assumption about the privacy law, as in ``audit``.
    n_guesses : int or None, default=None
        Number of guesses. None takes the number with the largest bound for an ideal Gaussian
        mechanism of the claimed size; a public choice.
    n_threads : int or None, default=None
    random_state : int or None, default=None
        Seed of coins and noise; None takes entropy from the operating system.

    Returns
    -------
    AuditReport

    Notes
    -----
    Guarantees: as for ``audit``. One run certifies less than many, for any program: of epsilon 4 at
    95 percent confidence about 2.2 with 1,000 canaries and 3.1 with 100,000. It is for programs too
    slow to run more than once.

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023;
    Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run", ICML 2025.

    Examples
    --------
    >>> from dpsvm_fast import OutputPerturbationSVC
    >>> from dpsvm_fast.audit import audit_one_run
    >>> report = audit_one_run(OutputPerturbationSVC(4.0, 1e-6, C=0.01), n_canaries=200)
    >>> report.n_trials, report.exceeds_claim
    (200, False)
    """
    started = time.monotonic()
    m = check.check_integer("n_canaries", n_canaries, 2, 2**24)
    alpha = alpha_of(confidence)
    if not isinstance(estimator, (OutputPerturbationSVC, GradientPerturbationSVC)):
        accepted = "an OutputPerturbationSVC or a GradientPerturbationSVC"
        raise InvalidParameterError(
            f"estimator: got {type(estimator).__name__}, expected {accepted}"
        )
    seed = check.check_random_state("random_state", random_state)
    n_threads = check.check_n_threads("n_threads", n_threads)
    model = prepared(estimator).set_params(fit_intercept=False, n_threads=n_threads)
    # A public choice of the audit, not noise: a coin for each canary.
    coins = np.random.default_rng(seed).random(m) < 0.5
    data, classes = _canaries(model, coins)
    model.set_params(classes=classes)
    claim = subject_of(model, pair=Pair(data, data, model.adjacency)).claim
    kind = OutputWorld if isinstance(model, OutputPerturbationSVC) else TrainedWorld
    method = resolved_method(method, claim)
    # The second class's weight for every feature.
    scores = kind(model, *data).draw(1, _core.NoiseSource(seed))[0][:m]
    statistic = "the weight of each canary's feature"
    found = _guessed(scores, coins, claim, method, alpha, n_guesses)
    return AuditReport.on(type(model).__name__, claim, started, statistic=statistic, **found)


def audit_scores(
    scores: Any,
    coins: Any,
    claim: tuple[float, float],
    *,
    method: str = "gaussian",
    confidence: float = 0.95,
    n_guesses: int | None = None,
    adjacency: str = "add_remove",
) -> AuditReport:
    """Audit any program by the scores of its canaries in a single run.

    Parameters
    ----------
    scores : array-like of shape (n_canaries,)
        Scores, functions of the release only; higher for canaries that look present in the data.
    coins : array-like of bool of shape (n_canaries,)
        Whether each canary was in the data (or had the second label). The caller must ensure that
        these are independent fair coins, used only to build the training data.
    claim : tuple (epsilon, delta)
        Claimed privacy parameters.
    method : {"gaussian", "clopper_pearson"}, default="gaussian"
        "gaussian" assumes a Gaussian trade-off curve; "clopper_pearson" assumes only (epsilon,
        delta).
    confidence : float in (0, 1), default=0.95
    n_guesses : int or None, default=None
        As in ``audit_one_run``; must be fixed before the scores are seen.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Whether a coin decides if a canary is in the data, or which of two records it is.

    Returns
    -------
    AuditReport

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter is outside its range, or scores and coins differ in length.

    Notes
    -----
    Guarantees: as for ``audit_one_run``. Half of the guesses are for the highest scores and half
    for the lowest. Ties are broken by position, so canaries must not be sorted by their coins.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.audit import audit_scores
    >>> rng = np.random.default_rng(0)
    >>> coins = rng.random(10_000) < 0.5
    >>> scores = rng.normal(0.9 * coins)  # an exact mechanism of epsilon 3.9
    >>> report = audit_scores(scores, coins, (4.0, 1e-5))
    >>> 2.0 < report.certified < 4.0
    True
    """
    started = time.monotonic()
    values = np.asarray(scores, dtype=np.float64)
    inside = np.asarray(coins)
    if values.ndim != 1 or not np.isfinite(values).all() or values.size < 2:
        raise InvalidParameterError.of(
            "scores", got=f"shape {values.shape}", accepted="a vector of finite numbers"
        )
    if inside.dtype != np.bool_ or inside.shape != values.shape:
        got = f"{inside.dtype} of shape {inside.shape}"
        accepted = f"bool of shape {values.shape}"
        raise InvalidParameterError.of("coins", got=got, accepted=accepted)
    alpha = alpha_of(confidence)
    epsilon = check.check_positive("claim", claim[0])
    delta = check.check_fraction("claim", claim[1]) if claim[1] != 0.0 else 0.0
    events: tuple[PrivacyEvent, ...] = ()
    if method == "gaussian" and delta > 0.0:
        events = (GaussianEvent(gaussian_sigma(epsilon, delta), 1.0, adjacency),)
    what = Claim(epsilon, delta, adjacency, events)
    found = _guessed(values, inside, what, resolved_method(method, what), alpha, n_guesses)
    statistic = "the score of each canary"
    return AuditReport.on("scores", what, started, statistic=statistic, **found)


def _guessed(
    scores: Array,
    coins: NDArray[np.bool_],
    claim: Claim,
    method: str,
    alpha: float,
    n_guesses: int | None,
) -> dict[str, Any]:
    """Return the bound that the guesses prove, as fields of a report."""
    m = coins.size
    planned = _planned_guesses(m, claim, method, alpha) if n_guesses is None else n_guesses
    guesses = check.check_integer("n_guesses", planned, 1, m)
    # Guesses on the highest and lowest scores.
    order, lowest = np.argsort(scores, kind="stable"), guesses // 2
    highest = order[m - (guesses - lowest) :]
    right = int((~coins[order[:lowest]]).sum() + coins[highest].sum())
    return {
        "certified": one_run_epsilon(method, m, guesses, right, claim, alpha),
        "method": ONE_RUN[method],
        "confidence": 1.0 - alpha,
        "n_trials": m,
        "counts": (right, guesses - right),
    }


def _canaries(model: Any, coins: NDArray[np.bool_]) -> tuple[tuple[Any, Any], NDArray[Any]]:
    """Return sparse unit vectors with labels from the coins, and a row of zeros."""
    labels = labels_of(model)
    if labels.size != 2:
        raise InvalidParameterError.of("classes", got=labels.size, accepted="two classes")
    m = coins.size
    rows = sparse.eye(m + 1, m, k=-1, format="csr") * float(model.data_norm)
    if model.adjacency == "replace_one":
        codes = np.append(0, coins.astype(np.int64))
        return (rows, labels[codes]), labels
    kept = np.append(True, coins)
    return (rows[kept], labels[np.flatnonzero(kept).clip(max=1)]), labels


def _planned_guesses(m: int, claim: Claim, method: str, alpha: float) -> int:
    """Return the best number of guesses for an ideal Gaussian mechanism at the claim.

    Scores are normal with means mu apart. Guesses for the share r of highest scores, and as many
    lowest, are correct for canaries of that side.
    """
    mu = claim.gaussian_mu or min(claim.epsilon, 4.0) / 2.0
    by = "gaussian" if method == "gaussian" else "clopper_pearson"
    best = (-1.0, m)

    def tails(x: float) -> tuple[float, float]:
        return float(stats.norm.sf(x - 0.5 * mu)), float(stats.norm.sf(x + 0.5 * mu))

    for share in SHARES:
        guesses = max(2, int(share * m))
        # Half of that share of an even mixture of two normals is above this.
        cut = boundary(lambda x: sum(tails(x)) > share, -20.0, 20.0)  # noqa: B023
        own, other = tails(cut)
        expected = int(own / (own + other) * guesses)
        bound = one_run_epsilon(by, m, guesses, expected, claim, alpha)
        if bound > best[0]:
            best = (bound, guesses)
    return best[1]
