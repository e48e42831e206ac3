r"""One fit, many canaries: each is in the data or not by a coin of its own, and the model is asked.

Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023, Theorem
5.2: for an (epsilon, delta)-private program, with m independent coins and r guesses of them made
from its output, the number of right guesses is at least v with a probability of at most

.. math:: P[B \ge v] + 2 m \delta \max_{1 \le i \le v} \frac{P[v > B \ge v - i]}{i}, \qquad
          B \sim \mathrm{Binomial}(r, e^\epsilon / (1 + e^\epsilon)).
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

from dpsvm_fast import _core
from dpsvm_fast import _validation as check
from dpsvm_fast.audit.bounds import Claim
from dpsvm_fast.audit.report import AuditReport, alpha_of
from dpsvm_fast.audit.subjects import Pair, prepared, subject_of
from dpsvm_fast.audit.worlds import OutputWorld, TrainedWorld
from dpsvm_fast.estimators import GradientPerturbationSVC, OutputPerturbationSVC
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["audit_one_run", "log_p_value", "one_run_bound"]

# Shares of the canaries that may be guessed, and the largest epsilon that is tried.
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
LARGEST_EPSILON = 100.0
HALVINGS = 60


def log_p_value(n_canaries: int, n_guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Log of the probability that an (epsilon, delta)-private program lets so many be right.

    Parameters
    ----------
    n_canaries, n_guesses, right : int
        0 <= right <= n_guesses <= n_canaries.
    epsilon : float >= 0
    delta : float in [0, 1]

    Returns
    -------
    float <= 0
        Log of an upper bound of the probability.
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
    """Lower bound of epsilon, wrong with probability at most ``alpha``.

    Proof: the probability above grows with epsilon, so where it is below ``alpha`` every smaller
    epsilon would have made what was seen as unlikely.
    """
    log_alpha = math.log(alpha)

    def refuted(epsilon: float) -> bool:
        return log_p_value(n_canaries, n_guesses, right, epsilon, delta) < log_alpha

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, LARGEST_EPSILON
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def audit_one_run(
    estimator: Any,
    n_canaries: int = 1000,
    *,
    confidence: float = 0.95,
    n_guesses: int | None = None,
    n_threads: int | None = None,
    random_state: int | None = None,
) -> AuditReport:
    """Try to refute a claim by one fit with many canaries, orthogonal to each other.

    Canary i is the i-th unit vector times the bound of the norm. With "add_remove" a coin decides
    whether it is in the data, with "replace_one" which label it has. The weight of its feature is
    its score; the highest are guessed to be in, the lowest to be out, the rest is not guessed.

    Parameters
    ----------
    estimator : OutputPerturbationSVC or GradientPerturbationSVC
        Of two classes. Canaries far from their margin say most: a small C, or a small clip and
        short steps. It is not changed.
    n_canaries : int >= 2, default=1000
        Also the number of features.
    confidence : float in (0, 1), default=0.95
        The theorem adds up to 2 m delta to the probability of being wrong: with a confidence so
        high that this alone is more than what is left of 1, nothing is certified.
    n_guesses : int or None, default=None
        None: the share of the canaries for which an ideal program with Gaussian noise of the
        claimed size would give the largest bound; a public choice.
    n_threads : int or None, default=None
    random_state : int or None, default=None
        Of the coins and the noise; None takes entropy of the operating system.

    Returns
    -------
    AuditReport

    Notes
    -----
    Guarantees: as of ``audit``. One run certifies much less than many do, whatever the program: at
    epsilon 4 and 95 percent about 1.5 with 1,000 canaries and 2.7 with 100,000. It is for programs
    too slow to be run more than once.

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.

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
        raise InvalidParameterError(
            f"estimator: got {type(estimator).__name__}, expected an OutputPerturbationSVC or a "
            "GradientPerturbationSVC"
        )
    seed = check.check_random_state(random_state)
    model = prepared(estimator).set_params(fit_intercept=False)
    model.set_params(n_threads=check.check_n_threads(n_threads))
    # A public choice of the audit, not noise: a coin for each canary.
    coins = np.random.default_rng(seed).random(m) < 0.5
    data, classes = _canaries(model, coins)
    model.set_params(classes=classes)
    claim = subject_of(model, pair=Pair(data, data, model.adjacency)).claim
    guesses = _planned_guesses(m, claim, alpha) if n_guesses is None else n_guesses
    guesses = check.check_integer("n_guesses", guesses, 1, m)
    right = _right_guesses(_scores(model, data, seed), coins, guesses)
    return AuditReport(
        mechanism=type(model).__name__,
        adjacency=claim.adjacency,
        epsilon=claim.epsilon,
        delta=claim.delta,
        certified=one_run_bound(m, guesses, right, claim.delta, alpha),
        method="one_run",
        confidence=1.0 - alpha,
        n_trials=m,
        seconds=time.monotonic() - started,
        statistic="the weight of each canary's feature",
        counts=(right, guesses - right),
    )


def _canaries(model: Any, coins: NDArray[np.bool_]) -> tuple[tuple[Any, Any], NDArray[Any]]:
    """Sparse unit vectors, and the labels that the coins gave them; a row of zeros besides."""
    labels = np.array([0, 1]) if model.classes is None else np.sort(np.asarray([*model.classes]))
    if labels.size != 2:
        raise InvalidParameterError.of("classes", got=labels.size, accepted="two classes")
    m = coins.size
    rows = sparse.vstack([sparse.csr_matrix((1, m)), sparse.identity(m, format="csr")], "csr")
    rows = rows * float(model.data_norm)
    if model.adjacency == "replace_one":
        codes = np.append(0, coins.astype(np.int64))
        return (rows, labels[codes]), labels
    kept = np.flatnonzero(np.append(True, coins))
    codes = np.append(0, np.ones(kept.size - 1, dtype=np.int64))
    return (rows[kept], labels[codes]), labels


def _scores(model: Any, data: tuple[Any, Any], seed: int | None) -> NDArray[np.float64]:
    """One release: the weight of the second class on every feature."""
    kind = OutputWorld if isinstance(model, OutputPerturbationSVC) else TrainedWorld
    world = kind(model, *data, ())
    vector: NDArray[np.float64] = world.draw(1, _core.NoiseSource(seed))[0]
    return vector[: data[0].shape[1]]


def _right_guesses(scores: NDArray[np.float64], coins: NDArray[np.bool_], guesses: int) -> int:
    """How many of the guesses on the highest and lowest scores are right."""
    order = np.argsort(scores)
    lowest, highest = guesses // 2, guesses - guesses // 2
    return int((~coins[order[:lowest]]).sum() + coins[order[scores.size - highest :]].sum())


def _planned_guesses(m: int, claim: Claim, alpha: float) -> int:
    """How many guesses an ideal Gaussian mechanism at the claim would best be asked for.

    Its scores are normal with means mu apart. Of the share r with the highest scores and as many
    with the lowest, the right ones are those of their own side.
    """
    mu = claim.gaussian_mu or min(claim.epsilon, 4.0) / 2.0
    best = (-1.0, m)
    for share in SHARES:
        guesses = max(2, int(share * m))
        cut = _cut(mu, 0.5 * share)
        right = stats.norm.sf(cut - 0.5 * mu) / (
            stats.norm.sf(cut - 0.5 * mu) + stats.norm.sf(cut + 0.5 * mu)
        )
        expected = int(right * guesses)
        bound = one_run_bound(m, guesses, expected, claim.delta, alpha)
        if bound > best[0]:
            best = (bound, guesses)
    return best[1]


def _cut(mu: float, share: float) -> float:
    """Where so large a share of an even mixture of two normals lies above."""
    low, high = -20.0, 20.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        above = 0.5 * (stats.norm.sf(middle - 0.5 * mu) + stats.norm.sf(middle + 0.5 * mu))
        low, high = (middle, high) if above > share else (low, middle)
    return low
