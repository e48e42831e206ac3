"""Private evaluation: metrics of a model on private rows, with noise and confidence intervals.

All metrics come from one noisy sum: a row is counted in one cell of each table and adds one clipped
loss. With groups a person counts as the mean of its rows; with weights a row counts as its share of
the largest weight. If scores are requested, two small noisy sums before it set the edges of the
cells. Proof: docs/proofs/evaluation.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpsvm_fast import validation as check
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates import Occasion, PrivacyStatement
from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.fit import PrivateEstimator, private_fit
from dpsvm_fast.estimators.frames import label_values
from dpsvm_fast.estimators.inputs import checked_groups, checked_weights, encoded_labels
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.mechanisms.noise import NoisySum, SumRelease, gaussian_parameter, share_of
from dpsvm_fast.mechanisms.plan import Facts, SumsPlan, filled
from dpsvm_fast.rounding import sqrt_up

__all__ = ["CalibrationCurve", "Estimate", "Evaluation", "RocCurve", "evaluate"]

Array = NDArray[np.float64]

# The tables that each metric is computed from. With two classes "confusion" has the outcomes too.
TABLES = {
    "accuracy": ("outcomes",),
    "balanced_accuracy": ("confusion",),
    "precision": ("confusion",),
    "recall": ("confusion",),
    "confusion_matrix": ("confusion",),
    "roc": ("scores",),
    "calibration": ("scores",),
    "log_loss": ("losses", "outcomes"),
}
# Relative weights of the tables, before they are scaled to a joint norm of at most 1.
# Areas and curves add up many cells, so that the table of scores has the largest.
WEIGHTS = {"outcomes": 0.5, "confusion": 0.75, "scores": 1.0, "losses": 0.5}
# Weights are multiples of 2**-10, losses and shares of a person's rows of 2**-14, so sums are
# multiples of 2**-24.
WEIGHT_UNITS, LOSS_UNITS, UNIT = 2**10, 2**14, 2.0**-24
# Cells of scores for each of two outcomes, and how many of them make one point of a calibration.
CELLS, POINT_CELLS = 40, 5
# The first count of scores: by sign and power of two, and its share of the squared mu.
MIN_POWER, MAX_POWER, COARSE_SHARE = -32, 32, 0.03
# The second: by outcome and cell, in cells that follow from the first.
TRIAL_CELLS, TRIAL_SHARE = 64, 0.05
# Share of the ranks in the squared weight of scores, and how far back a sum of cells reaches: 0.5
# is best for curves and 0 for single cells.
RANK_SHARE, MEMORY = 0.4, 0.3
# A coarse cell counts if it exceeds this many standard deviations of its noise.
SIGNIFICANT = 3.0
# Log-odds beyond this are equal.
LARGEST_LOGIT = 40.0
# Intervals have this many standard deviations on either side, for a coverage of at least 95 % also
# where the normal law holds approximately only.
DEVIATIONS = 2.17
# No estimate divides by counts below this many standard deviations of their noise.
USABLE = 4.0


class Estimate(NamedTuple):
    """Noisy number with a confidence interval for noise and sampling.

    Parameters
    ----------
    value : float or ndarray
        The estimate.
    low, high : float or ndarray
        Ends of an interval that covers the population value with probability at least 95 %, for
        each value separately. The interval accounts for noise and sampling.

    Examples
    --------
    >>> from dpsvm_fast.metrics import Estimate
    >>> print(Estimate(0.91, 0.9, 0.92))
    0.9100  [0.9000, 0.9200]
    """

    value: Any
    low: Any
    high: Any

    def __str__(self) -> str:
        if np.ndim(self.value):
            return "\n".join(str(Estimate(*each)) for each in zip(*self, strict=True))
        return f"{self.value:.4f}  [{self.low:.4f}, {self.high:.4f}]"


class RocCurve(NamedTuple):
    """ROC curve: rates at thresholds of the score, from the largest threshold to the smallest.

    Parameters
    ----------
    thresholds : ndarray of shape (39,)
        Thresholds of the probability of the positive class, or of the score without probabilities.
    false_positive_rate, true_positive_rate : Estimate of ndarrays of shape (39,)
        Rates when rows with a score of at least the threshold count as positive.

    Examples
    --------
    >>> from dpsvm_fast.metrics import RocCurve
    >>> RocCurve._fields
    ('thresholds', 'false_positive_rate', 'true_positive_rate')
    """

    thresholds: Array
    false_positive_rate: Estimate
    true_positive_rate: Estimate


class CalibrationCurve(NamedTuple):
    """Calibration curve: shares of positive rows among rows of similar probability.

    Parameters
    ----------
    low, high : ndarray of shape (8,)
        Ends of the ranges of the probability.
    observed : Estimate of ndarrays of shape (8,)
        Share of positive rows in each range. Without a positive class: share of correct
        predictions, by the probability of the predicted class.

    Examples
    --------
    >>> from dpsvm_fast.metrics import CalibrationCurve
    >>> CalibrationCurve._fields
    ('low', 'high', 'observed')
    """

    low: Array
    high: Array
    observed: Estimate


def _shares(
    part: Any, whole: Any, noise_part: Any, noise_whole: Any = 0.0, shared: Any = 0.0
) -> Estimate:
    """Return intervals for p = part / whole, both noisy, clipped to [0, 1]."""
    found = _ratios(part, whole, noise_part, noise_whole, shared)
    value, low, high = (np.clip(x, 0.0, 1.0) for x in found)
    each = np.clip(value, low, high), low, high
    return Estimate(*(float(x) if np.ndim(x) == 0 else np.asarray(x) for x in each))


def _ratios(
    part: Any, whole: Any, noise_part: Any, noise_whole: Any, shared: Any
) -> tuple[Array, Array, Array]:
    """Return the ratio, and all p at which ``part - p whole`` is within its deviation of 0.

    Its variance is ``whole p (1 - p)`` from sampling plus that of the noise: Wilson's interval if
    there is no noise. With noise all three may leave [0, 1].
    """
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    square, rows = DEVIATIONS**2, np.maximum(whole, 0.0)
    a = whole**2 + square * (rows - noise_whole)
    b = part * whole + 0.5 * square * rows - square * shared
    c = part**2 - square * noise_part
    root = b * b - a * c
    known = (whole > 0.0) & (a > 0.0) & (root >= 0.0)
    safe = np.where(known, a, 1.0)
    half = np.sqrt(np.where(known, root, 0.0))
    low, high = np.where(known, (b - half) / safe, 0.0), np.where(known, (b + half) / safe, 1.0)
    return np.clip(part / np.maximum(whole, 1.0), low, high), low, high


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """Result of a private evaluation, from which all metrics are computed.

    A metric that was not requested raises ``AttributeError``. ``str`` returns a table and the
    guarantee; ``privacy_.to_json()`` returns the certificate, which `verify` checks.

    Parameters
    ----------
    metrics : tuple of str
        Requested metrics.
    classes : ndarray of shape (n_classes,)
        Labels, in the order of all tables.
    positive : object or None
        Label of the positive class.
    n_samples : int or None
        Number of rows, or of persons, if it is public ("replace_one") and all have equal weight.
    tables : dict of ndarrays
        Noisy counts: shape (2,) of correct and wrong "outcomes", (n_classes, n_classes) of true and
        predicted labels, (2, 40) of outcomes and scores; and the noisy sum of losses.
    deviations : dict of floats
        Standard deviation of the noise in each entry of a table; for scores see ``covariances``.
    covariances : ndarray of shape (2, 40, 40) or None
        Covariances of the noise in the score counts, for each outcome.
    edges : ndarray of shape (39,) or None
        Edges between the cells of scores.
    are_probabilities : bool
        Whether the scores are log-odds.
    largest_loss : float
        Bound to which the terms of the log-loss were clipped.
    privacy_ : PrivacyStatement
        Privacy statement of the evaluation.
    """

    metrics: tuple[str, ...]
    classes: NDArray[Any]
    positive: Any
    n_samples: int | None
    tables: dict[str, Array]
    deviations: dict[str, float]
    covariances: Array | None
    edges: Array | None
    are_probabilities: bool
    largest_loss: float
    privacy_: PrivacyStatement

    @cached_property
    def accuracy(self) -> Estimate:
        """Share of correct predictions."""
        table, variance = self._table("accuracy")
        cells = table.ravel()
        right = np.eye(table.shape[0]).ravel() if table.ndim == 2 else np.array([1.0, 0.0])
        count, noise = self._count(cells.sum(), cells.size * variance)
        part = right.sum() * variance
        return _shares(right @ cells, count, part, noise, part if noise else 0.0)

    @cached_property
    def balanced_accuracy(self) -> Estimate:
        """Mean recall over all classes."""
        value, low, high = _ratios(*self._diagonal("balanced_accuracy", 1))
        below, above = (float(np.linalg.norm(value - end)) / value.size for end in (low, high))
        middle = float(value.mean())
        return Estimate(*np.clip([middle, middle - below, middle + above], 0.0, 1.0).tolist())

    @cached_property
    def recall(self) -> dict[Any, Estimate]:
        """Share of correct predictions among the rows of each class, by label."""
        return self._by_class("recall", 1)

    @cached_property
    def precision(self) -> dict[Any, Estimate]:
        """Share of correct predictions among the rows predicted as each class, by label."""
        return self._by_class("precision", 0)

    @cached_property
    def confusion_matrix(self) -> Estimate:
        """Number of rows by true label (rows) and predicted label (columns).

        Each interval is for the mean count in samples of this size. With groups each person counts
        1, divided among its rows.
        """
        cells, variance = self._table("confusion_matrix")
        middle = cells + 0.5 * DEVIATIONS**2
        spread = np.maximum(cells, 0.0) + 0.25 * DEVIATIONS**2 + variance
        half = DEVIATIONS * np.sqrt(spread)
        low, high = np.maximum(middle - half, 0.0), np.maximum(middle + half, 0.0)
        return Estimate(np.maximum(cells, 0.0), low, high)

    @cached_property
    def auc(self) -> Estimate:
        """Area under the ROC curve."""
        table, covariances, _ = self._scores("roc")
        (n, p), steps = table.sum(axis=1), np.tri(table.shape[1]) - 0.5 * np.eye(table.shape[1])
        if min(n, p) < USABLE * math.sqrt(covariances.sum(axis=(1, 2)).max()):
            return Estimate(0.5, 0.0, 1.0)
        negatives, positives = table[0] / n, table[1] / p
        area = float(positives @ steps @ negatives)
        # By how much a positive and a negative of each cell move the area, alone and together.
        pairs = (steps - area) / (n * p)
        moves = (pairs.T @ table[1], pairs @ table[0])
        noise = sum(float(m @ own @ m) for m, own in zip(moves, covariances, strict=True))
        noise += float(np.sum((pairs.T @ covariances[1] @ pairs) * covariances[0]))
        counts = np.maximum(table, 0.0)
        # One more row of each outcome in the worst place, for areas near 1.
        worst = max(area, 1.0 - area) ** 2 * (1.0 / p**2 + 1.0 / n**2)
        sampled = counts[0] @ moves[0] ** 2 + counts[1] @ moves[1] ** 2 + worst
        # Inside a cell the order is unknown: at most half of its pairs, and few of a fine cell.
        inside = np.maximum(positives, 0.0) * np.maximum(negatives, 0.0)
        fineness = np.minimum(np.maximum(positives, negatives), 1.0)
        half = DEVIATIONS * math.sqrt(noise + float(sampled)) + 0.5 * float(inside @ fineness)
        area = min(max(area, 0.0), 1.0)
        return Estimate(area, max(area - half, 0.0), min(area + half, 1.0))

    @cached_property
    def roc(self) -> RocCurve:
        """Rates of true and false positives at thresholds of the score."""
        table, covariances, edges = self._scores("roc")
        above = np.triu(np.ones_like(covariances[0]))[::-1]
        rates = [
            _shares(counts[:-1], counts[-1], noise[:-1], noise[-1], shared[:-1])
            for counts, noise, shared in _sums(above, table, covariances)
        ]
        return RocCurve(self._shown(edges[::-1]), *rates)

    @cached_property
    def calibration(self) -> CalibrationCurve:
        """Shares of positive rows in eight ranges of the probability."""
        table, covariances, edges = self._scores("calibration")
        points = np.repeat(np.eye(table.shape[1] // POINT_CELLS), POINT_CELLS, axis=1)
        (others, free, _), (counts, noise, _) = _sums(points, table, covariances)
        observed = _shares(counts, counts + others, noise, noise + free, noise)
        inner = self._shown(edges[POINT_CELLS - 1 :: POINT_CELLS])
        return CalibrationCurve(np.append(0.0, inner), np.append(inner, 1.0), observed)

    @cached_property
    def log_loss(self) -> Estimate:
        """Mean of ``-log p`` of the true labels, clipped at ``largest_loss``.

        The interval is wide, because it holds for every distribution of losses in the range.
        """
        total, variance = self._table("log_loss")
        name = "outcomes" if "outcomes" in self.tables else "confusion"
        cells = self.tables[name]
        count, noise = self._count(cells.sum(), cells.size * self.deviations[name] ** 2)
        found = _shares(total[0], count, variance, noise)
        return Estimate(*(self.largest_loss * x for x in found))

    def to_dict(self) -> dict[str, Any]:
        """Return all estimates and the certificate as plain JSON values."""
        found: dict[str, Any] = {}
        for name in self.metrics:
            found[name] = _plain(getattr(self, name))
            if name == "roc":
                found["auc"] = _plain(self.auc)
        return {
            "classes": self.classes.tolist(),
            "positive": _plain(self.positive),
            "metrics": found,
            "certificate": self.privacy_.to_dict(),
        }

    def __str__(self) -> str:
        s = self.privacy_
        head = "PRIVATE" if s.private else "NOT PRIVATE"
        promised = f"epsilon = {s.epsilon:g}, delta = {s.delta:g}"
        lines = [f"{head}, {promised} ({s.adjacency}, for one {s.unit})"]
        lines.append("estimate [95 % interval for noise and sampling of the rows]")
        for name in self.metrics:
            lines += self._lines(name)
        return "\n".join(lines)

    def _lines(self, name: str) -> Iterator[str]:
        """Yield the printed lines of a metric."""
        title = name.replace("_", " ")
        if name == "roc":
            yield f"{'area under the ROC curve':26s}{self.auc}"
        elif name in ("precision", "recall"):
            for label, one in getattr(self, name).items():
                yield f"{f'{title} of {label}':26s}{one}"
        elif name == "confusion_matrix":
            yield f"{title} (true labels in rows, predicted labels in columns)"
            for label, row in zip(self.classes, self.confusion_matrix.value, strict=True):
                yield f"  {label!s:24s}" + " ".join(f"{x:10.0f}" for x in row)
        elif name == "calibration":
            curve = self.calibration
            yield f"{title}: share of {'right' if self.positive is None else 'positive'} rows"
            for low, high, *own in zip(curve.low, curve.high, *curve.observed, strict=True):
                yield f"  {f'at {low:.3f} to {high:.3f}':24s}{Estimate(*own)}"
        else:
            yield f"{title:26s}{getattr(self, name)}"

    def _table(self, metric: str) -> tuple[Array, float]:
        """Return the table of a metric and the variance of its noise; 0 for scores."""
        if metric not in self.metrics:
            raise AttributeError(f"metrics: {metric!r} was not requested, so it was not measured")
        name = TABLES[metric][0]
        name = name if name in self.tables else "confusion"
        return self.tables[name], self.deviations.get(name, 0.0) ** 2

    def _scores(self, metric: str) -> tuple[Array, Array, Array]:
        """Return the score counts by outcome, the covariances of their noise, and the edges."""
        table, _ = self._table(metric)
        assert self.covariances is not None
        assert self.edges is not None
        return table, self.covariances, self.edges

    def _count(self, noisy: float, variance: float) -> tuple[float, float]:
        """Return the number of rows, and the variance of its noise."""
        if self.n_samples is not None:
            return float(self.n_samples), 0.0
        return noisy, variance

    def _diagonal(self, metric: str, axis: int) -> tuple[Any, ...]:
        """Return the arguments of ``_shares`` for correct predictions along an axis."""
        cells, variance = self._table(metric)
        sums = cells.sum(axis=axis)
        return np.diagonal(cells), sums, variance, cells.shape[0] * variance, variance

    def _by_class(self, metric: str, axis: int) -> dict[Any, Estimate]:
        """Return the shares of the diagonal, one estimate per label."""
        each = zip(*(x.tolist() for x in _shares(*self._diagonal(metric, axis))), strict=True)
        return dict(zip(self.classes.tolist(), (Estimate(*one) for one in each), strict=True))

    def _shown(self, edges: Array) -> Array:
        """Return scores as probabilities, if they are log-odds."""
        return np.asarray(expit(edges) if self.are_probabilities else edges)


def _sums(cells: Array, table: Array, covariances: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Yield sums of counts by outcome, their variances, and covariances with the last sum."""
    for counts, own in zip(table, covariances, strict=True):
        noise = cells @ own @ cells.T
        yield cells @ counts, np.diagonal(noise), noise[-1]


def _plain(value: Any) -> Any:
    """Return arrays and named tuples as lists and dicts."""
    if hasattr(value, "_asdict"):
        return {name: _plain(own) for name, own in value._asdict().items()}
    if isinstance(value, dict):
        return [{"class": label} | _plain(own) for label, own in value.items()]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan(SumsPlan):
    """Plan of one noisy sum of weighted tables, and two before it that place the score cells.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in (0, 1)
    adjacency : {"add_remove", "replace_one"}
    n_classes : int >= 2
    tables : tuple of str
        Names of the tables, in the order of ``WEIGHTS``.

    Notes
    -----
    Guarantees: a row is in one cell of each table, so it moves the table by at most the table's
    weight; the squared weights sum to at most 1. Replacing one row moves a table by sqrt(2) times
    its weight. A person adds the mean of its rows' contributions, which has no larger norm and no
    larger distance to another.

    Score counts h are not released cell by cell. They are multiplied by `score_sums`, which gives
    less noise in areas and curves, and estimated from the noisy products by least squares.
    """

    mechanism: str = "private_evaluation"
    n_classes: int
    tables: tuple[str, ...]

    @cached_property
    def weights(self) -> dict[str, Fraction]:
        """Weight of each table."""
        norm = math.sqrt(sum(WEIGHTS[name] ** 2 for name in self.tables))
        units = {name: math.floor(WEIGHT_UNITS * WEIGHTS[name] / norm) for name in self.tables}
        found = {name: Fraction(units[name], WEIGHT_UNITS) for name in self.tables}
        assert sum(weight**2 for weight in found.values()) <= 1
        return found

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tables."""
        k = self.n_classes
        known = {"outcomes": (2,), "confusion": (k, k), "scores": (2, CELLS + 1), "losses": (1,)}
        return {name: known[name] for name in self.tables}

    @cached_property
    def sums(self) -> tuple[NoisySum, ...]:
        """All releases, in order; the last is the sum of all tables.

        With scores two counts precede it: by sign and magnitude, and by outcome, in cells from the
        first.
        """
        size = sum(math.prod(shape) for shape in self.shapes.values())
        if "scores" not in self.tables:
            return (self._sum("metrics", size, 1.0),)
        return (
            self._sum("cells", 2 * (MAX_POWER - MIN_POWER) + 1, COARSE_SHARE),
            self._sum("cells", 2 * TRIAL_CELLS, TRIAL_SHARE),
            self._sum("metrics", size, 1.0 - COARSE_SHARE - TRIAL_SHARE),
        )

    def _sum(self, name: str, size: int, share: float) -> NoisySum:
        """Return a noisy sum to which a row contributes a norm of at most 1."""
        factor = 1.0 if self.adjacency == "add_remove" else sqrt_up(2.0)
        mu = share_of(gaussian_parameter(self.epsilon, self.delta), share)
        facts: dict[str, Any] = {"clip_norm": 1.0, "relation_factor": factor, "shape": (size,)}
        return SumRelease(adjacency=self.adjacency, mu=mu).of_multiples(UNIT, name=name, **facts)

    def run(self, rows: Any, source: Any) -> dict[str, Any]:
        """Make the releases and return fields of an `Evaluation`."""
        placed, total = self._placed(rows, source), self.sums[-1]
        flat = np.concatenate([self._exact(name, rows, *placed) for name in self.tables])
        noisy = total.release(flat, source, rows.n_threads)
        each = np.split(noisy, np.cumsum([math.prod(one) for one in self.shapes.values()])[:-1])
        tables, deviations, covariances = {}, {}, None
        for (name, shape), own in zip(self.shapes.items(), each, strict=True):
            if name == "scores":
                tables[name], covariances = fitted_counts(own.reshape(shape), placed[1])
                covariances *= total.scale**2
            else:
                weight = float(self.weights[name])
                tables[name] = own.reshape(shape) / weight
                deviations[name] = total.scale / weight
        return {
            "tables": tables,
            "deviations": deviations,
            "covariances": covariances,
            "edges": placed[0],
            "n_samples": rows.n_rows if self.adjacency == "replace_one" and rows.alike else None,
        }

    def _placed(self, rows: Any, source: Any) -> tuple[Array | None, Any]:
        """Return the edges between score cells, and the matrices that multiply their counts."""
        if "scores" not in self.tables:
            return None, None
        coarse, trial, _ = self.sums
        counts = rows.counts(coarse_cells(rows.scores), coarse.size)
        noisy = coarse.release(counts, source, rows.n_threads)
        outer = np.ldexp(1.0, np.arange(MIN_POWER, MAX_POWER + 1))
        believed = np.where(noisy > SIGNIFICANT * coarse.scale, noisy, 0.0)
        bounds = cell_edges(believed, np.concatenate([-outer[::-1], outer]), TRIAL_CELLS)
        counts = rows.score_counts(bounds[1:-1]).ravel()
        noisy = trial.release(counts, source, rows.n_threads)
        below = np.array([rising(np.cumsum(one)) for one in noisy.reshape(2, -1)])
        edges = cell_edges(np.diff(below.sum(axis=0), prepend=0.0), bounds, CELLS)[1:-1]
        shares = [
            np.interp(edges, bounds, np.append(0.0, one / max(one[-1], 1.0)), 0.0) for one in below
        ]
        return edges, score_sums(self.weights["scores"], *shares)

    def _exact(self, name: str, rows: Any, edges: Array | None, sums: Any) -> Array:
        """Return a table times its weight, in multiples of 2**-24. Private."""
        if name == "scores":
            assert edges is not None
            units = np.rint(LOSS_UNITS * rows.score_counts(edges)).astype(np.int64)
            return np.concatenate([m @ own for m, own in zip(sums, units, strict=True)]) * UNIT
        if name == "losses":
            found = np.array([rows.total_loss()])
        else:
            cells = (rows.codes != rows.predicted).astype(np.int64)
            if name == "confusion":
                cells = rows.codes * self.n_classes + rows.predicted
            found = rows.counts(cells, math.prod(self.shapes[name]))
        return float(self.weights[name]) * found


def coarse_cells(scores: Array) -> NDArray[np.int64]:
    """Return the cells of scores by sign and power of two; tiny and huge scores share a cell."""
    powers = np.clip(np.frexp(scores)[1] - 1, MIN_POWER - 1, MAX_POWER - 1)
    size = np.where(scores == 0.0, MIN_POWER - 1, powers) - (MIN_POWER - 1)
    return np.asarray(MAX_POWER - MIN_POWER + np.sign(scores) * size, dtype=np.int64)


def cell_edges(counts: Array, bounds: Array, cells: int) -> Array:
    """Return edges of cells with about equal counts, from counts between other edges.

    Each edge is a bound, or divides the interval between two bounds evenly, so that values shared
    by many scores stay separate.
    """
    kept = counts if counts.any() else np.ones_like(counts)
    total = np.append(0.0, np.cumsum(kept))
    wanted = total[-1] * np.arange(1, cells) / cells
    places = np.searchsorted(total, wanted) - 1
    order = np.arange(cells - 1) - np.searchsorted(places, places)
    widths = (bounds[places + 1] - bounds[places]) / np.bincount(places)[places]
    held = np.flatnonzero(kept)
    inner = bounds[places] + order * widths
    return np.concatenate([[bounds[held[0]]], inner, [bounds[held[-1] + 1]]])


def rising(sums: Array) -> Array:
    """Return the nearest non-negative, non-decreasing numbers."""
    from sklearn.isotonic import isotonic_regression  # Slow to import.

    return np.asarray(isotonic_regression(sums, y_min=0.0))


def score_sums(weight: Fraction, negatives: Array, positives: Array) -> NDArray[np.int64]:
    """Return the matrices that multiply score counts for each outcome, in units of 2**-10.

    A row of a matrix sums a cell and, with decreasing weights, the cells below it; the last row is
    roughly a score's contribution to the area under the curve.

    Parameters
    ----------
    weight : Fraction
        Weight of the table.
    negatives, positives : ndarrays of shape (CELLS - 1,)
        Approximate shares below each edge.

    Returns
    -------
    ndarray of shape (2, CELLS + 1, CELLS)
        The norm of a column is at most the weight, and the distance of two columns of one outcome
        at most sqrt(2) times the weight.
    """
    whole = int(weight * WEIGHT_UNITS)
    back = np.cumprod(np.append(1.0, 1.0 - (1.0 - MEMORY) / np.arange(1, CELLS)))
    fades = np.tril(back[np.abs(np.subtract.outer(np.arange(CELLS), np.arange(CELLS)))])
    fades *= whole * math.sqrt((1.0 - RANK_SHARE) / float(back @ back))
    low = np.floor(fades).astype(np.int64)
    room = math.isqrt(whole**2 - int((low**2).sum(axis=0).max()))
    ends = [np.concatenate([[0.0], one, [1.0]]) for one in (negatives, positives)]
    ranks = [0.5 * (one[1:] + one[:-1]) for one in ends]
    area = min(max(float(np.diff(ends[1]) @ ranks[0]), 0.0), 1.0)
    reach = min(math.isqrt(2 * room**2), int(room / max(area, 1.0 - area)))
    found = []
    for own, middle in ((1.0 - ranks[1], area), (ranks[0], area)):
        steps = np.clip(np.rint(reach * own), 0, reach).astype(np.int64)
        steps -= min(max(round(reach * middle), reach - room), room)
        found.append(np.vstack([low, steps]))
    return np.array(found)


def fitted_counts(noisy: Array, sums: NDArray[np.int64]) -> tuple[Array, Array]:
    """Return least-squares counts from noisy products, and their covariances for unit noise."""
    found = []
    for own, units in zip(noisy, sums, strict=True):
        matrix = units / WEIGHT_UNITS
        covariance = np.linalg.inv(matrix.T @ matrix)
        found.append((covariance @ (matrix.T @ own), covariance))
    counts, covariances = zip(*found, strict=True)
    return np.array(counts), np.array(covariances)


class EvaluatedRows:
    """Rows with the predictions of a model. All private.

    Parameters
    ----------
    evaluation : PrivateEvaluation
        With checked parameters.
    batches : callable
        Function that returns rows, labels and, with ``owners``, a dict of these, as tables do.
    owners : sequence of str, default=()
        Which of "groups" and "sample_weight" are given.
    """

    verbose = False
    n_here = 0

    def __init__(
        self,
        evaluation: PrivateEvaluation,
        batches: Callable[[], Iterable[Any]],
        *,
        owners: Sequence[str] = (),
    ) -> None:
        self._asker, self._batches, self._owners = evaluation, batches, owners
        self.n_threads: int = evaluation.n_threads  # type: ignore[assignment]
        self.published: dict[str, Any] = {}
        # For each row: class, predicted class, whether scores count it as positive, score, loss.
        self.codes = self.predicted = self.outcomes = np.empty(0, dtype=np.int64)
        self.losses = np.empty(0, dtype=np.int64)
        self.scores = np.empty(0)
        # Number of the person of each row, and the row's share of it in units of 2**-14. Without
        # groups every row is a person.
        self._persons = np.empty(0, dtype=np.int64)
        self._shares = np.empty(0)
        # True: all rows, or persons, have equal weights.
        self.alike = "sample_weight" not in owners

    @property
    def facts(self) -> Facts:
        """Public facts: number of classes, unit, and whether rows have weights."""
        unit = "person" if "groups" in self._owners else "row"
        return Facts(n_classes=self._asker.classes.size, unit=unit, weighted=not self.alike)

    @property
    def n_rows(self) -> int:
        """Number of rows, or of persons."""
        return int(self._persons.max() + 1)

    def read(self) -> None:
        """Apply the model to all rows; keep only a number for each owner, and the shares."""
        found: list[Any] = []
        ids, weights = [], []
        for X, y, *own in self._batches():
            if len(y):
                found.append(self._asker.judged(X, y))
                given = dict(*own)
                if "groups" in given:
                    ids.append(checked_groups(given["groups"], len(y)))
                if "sample_weight" in given:
                    weights.append(checked_weights(given["sample_weight"], len(y), partial=True))
        if not found:
            raise InvalidParameterError("X: got no rows, expected at least one")
        for name in found[0]:
            setattr(self, name, np.concatenate([one[name] for one in found]))
        n = self.codes.size
        self._persons, self._shares = np.arange(n), np.full(n, float(LOSS_UNITS))
        if ids:
            self._persons = np.unique(np.concatenate(ids), return_inverse=True)[1].ravel()
            self._shares = shares_of(self._persons)
        if weights:
            own = checked_weights(np.concatenate(weights), n)
            self._shares = weighted_shares(self._persons, own, self._asker.max_weight)

    def counts(self, cells: NDArray[np.int64], size: int) -> Array:
        """Return the exact number of rows, or sum of shares of persons, in each cell."""
        return np.bincount(cells, self._shares, minlength=size) / LOSS_UNITS

    def score_counts(self, edges: Array) -> Array:
        """Return the exact number of rows by outcome and score cell."""
        size = edges.size + 1
        cells = self.outcomes * size + np.searchsorted(edges, self.scores, side="right")
        return self.counts(cells, 2 * size).reshape(2, size)

    def total_loss(self) -> float:
        """Return the exact sum of the losses of rows, or of the mean losses of persons."""
        means = np.bincount(self._persons, self._shares * self.losses) // LOSS_UNITS
        return float(means.sum()) / LOSS_UNITS


def shares_of(persons: NDArray[np.int64]) -> Array:
    """Return each row's share of its person: nearly equal integers that sum to 2**14 per person."""
    order, sizes = np.argsort(persons, kind="stable"), np.bincount(persons)
    before = np.empty_like(persons)
    before[order] = np.arange(persons.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    m = sizes[persons]
    found = (before + 1) * LOSS_UNITS // m - before * LOSS_UNITS // m
    return np.asarray(found, dtype=np.float64)


def weighted_shares(persons: NDArray[np.int64], weights: Array, max_weight: float) -> Array:
    """Return each row's share by weight: integers that sum to at most 2**14 per person."""
    own = np.minimum(weights, max_weight) / max_weight
    # The floor of a share is whole, so that no rounding brings a sum above 2**14.
    found = np.floor(LOSS_UNITS * own / np.maximum(np.bincount(persons, own), 1.0)[persons])
    return np.asarray(found, dtype=np.float64)


def checked_metrics(name: str, value: object) -> tuple[str, ...] | None:
    """Accept None, or names of metrics."""
    if value is None:
        return None
    value = (value,) if isinstance(value, str) else value
    if not isinstance(value, Sequence) or not value:
        raise InvalidTypeError(f"{name}: expected None, a name, or a list of at least one")
    for one in value:
        check.check_option(name, one, tuple(TABLES))
    return tuple(dict.fromkeys(value))


@dataclass(eq=False, repr=False)
class PrivateEvaluation(PrivateEstimator):
    """Evaluation as a private fit; parameters as in `evaluate`."""

    model: Any
    epsilon: param.Epsilon = 1.0
    delta: param.Delta = 1e-6
    _: KW_ONLY
    metrics: Annotated[Any, checked_metrics] = None
    positive: Any = None
    largest_loss: Annotated[float, param.real(0.5, 40.0)] = 5.0
    adjacency: param.Adjacency = "add_remove"
    max_weight: param.Positive = 1.0
    random_state: param.Seed = None
    ledger: PrivacyLedger | None = None
    n_threads: param.Threads = None

    def __post_init__(self) -> None:
        """Read the classes of the model; they are public, like the model."""
        if not (hasattr(self.model, "predict") and hasattr(self.model, "classes_")):
            raise InvalidTypeError(
                f"model: got {type(self.model).__name__}, expected a fitted classifier with "
                "predict and classes_"
            )
        self.classes = np.asarray(self.model.classes_)

    _rests_on = "model"

    @property
    def has_probabilities(self) -> bool:
        """Whether the model has probabilities."""
        return hasattr(self.model, "predict_proba")

    @cached_property
    def place(self) -> int | None:
        """Column of the positive class; None for the predicted class."""
        labels = self.classes.tolist()
        if self.positive is None:
            return 1 if len(labels) == 2 else None
        if np.ndim(self.positive) or self.positive not in labels:
            raise InvalidParameterError("positive: expected a label of the model's classes_")
        return int(labels.index(self.positive))

    @property
    def asked(self) -> tuple[str, ...]:
        """Requested metrics in standard order; by default all that the model allows."""
        scored = self.has_probabilities or hasattr(self.model, "decision_function")
        allowed = {
            "roc": self.place is not None and scored,
            "calibration": self.has_probabilities,
            "log_loss": self.has_probabilities,
        }
        if self.metrics is None:
            return tuple(name for name in TABLES if allowed.get(name, True))
        for name in self.metrics:
            if not allowed.get(name, True):
                needs = "positive=, one class of several" if name == "roc" and scored else ""
                raise InvalidParameterError(
                    f"metrics: got {name!r}, which needs {needs or 'a model with predict_proba'}"
                )
        return tuple(name for name in TABLES if name in self.metrics)

    def plan(self, facts: Facts) -> EvaluationPlan:
        """Return the sums that the metrics need."""
        if self.delta == 0.0:
            raise InvalidParameterError.of("delta", got=0.0, accepted="a number in (0, 1)")
        needed = {table for name in self.asked for table in TABLES[name]}
        if facts.n_classes == 2 and "confusion" in needed:
            needed.discard("outcomes")
        tables = tuple(name for name in WEIGHTS if name in needed)
        return filled(EvaluationPlan, self, n_classes=facts.n_classes, tables=tables)

    def judged(self, X: Any, y: Any) -> dict[str, NDArray[Any]]:
        """Return the table entries of some rows, each computed from its row alone."""
        asked = {table for name in self.asked for table in TABLES[name]}
        labels = np.asarray(label_values(y))
        outputs = np.asarray(self.model.predict(X))
        if labels.shape != outputs.shape or labels.ndim != 1:
            raise InvalidParameterError("y: expected one label for each row of X")
        codes = encoded_labels(labels, self.classes)
        predicted = encoded_labels(outputs, self.classes)
        found = {"codes": codes, "predicted": predicted}
        chances = None
        if self.has_probabilities and asked & {"scores", "losses"}:
            chances = np.asarray(self.model.predict_proba(X), dtype=np.float64)
            if not (chances >= 0.0).all():
                raise InvalidParameterError("model: a probability is outside [0, 1]")
        if "losses" in asked:
            assert chances is not None
            with np.errstate(divide="ignore"):
                own = -np.log(np.take_along_axis(chances, codes[:, None], axis=1)[:, 0])
            terms = np.clip(own / self.largest_loss, 0.0, 1.0)
            found["losses"] = np.rint(LOSS_UNITS * terms).astype(np.int64)
        if "scores" in asked:
            found |= self._scored(X, codes, predicted, chances)
        return found

    def _scored(
        self, X: Any, codes: NDArray[Any], predicted: NDArray[Any], chances: Array | None
    ) -> dict[str, NDArray[Any]]:
        """Return the scores of rows, and whether the rows are positive."""
        place = self.place
        if chances is None:
            scores = np.asarray(self.model.decision_function(X), dtype=np.float64)
            if scores.ndim == 2:
                scores = scores[:, place]
            elif place == 0:
                scores = -scores
            if np.isnan(scores).any():
                raise InvalidParameterError("model: a score is not a number")
        else:
            own = chances.max(axis=1) if place is None else chances[:, place]
            with np.errstate(divide="ignore"):
                odds = np.log(own) - np.log1p(-np.minimum(own, 1.0))
            scores = np.clip(odds, -LARGEST_LOGIT, LARGEST_LOGIT)
        outcomes = codes == (predicted if place is None else place)
        return {"scores": scores, "outcomes": outcomes.astype(np.int64)}

    def _occasion(self, **facts: Any) -> Occasion:
        """Return facts about these rows that the statement adds to the plan."""
        names = [one.name for one in fields(self) if one.name != "ledger"]
        return super()._occasion(parameters=names, **facts)

    def _attributes(self, plan: EvaluationPlan, released: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an `Evaluation`."""
        place = self.place
        return released | {
            "metrics": self.asked,
            "classes": self.classes,
            "positive": None if place is None else self.classes[place],
            "are_probabilities": self.has_probabilities,
            "largest_loss": self.largest_loss,
        }


@in_usual_arithmetic
def evaluate(
    model: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    sample_weight: Any = None,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    metrics: str | Sequence[str] | None = None,
    positive: Any = None,
    largest_loss: float = 5.0,
    adjacency: str = "add_remove",
    max_weight: float = 1.0,
    random_state: int | None = None,
    ledger: PrivacyLedger | None = None,
    n_threads: int | None = None,
) -> Evaluation:
    """Measure a model on private rows, with noise and confidence intervals.

    Parameters
    ----------
    model : classifier
        Fitted, with ``predict`` and ``classes_``; metrics of scores need ``decision_function`` or
        ``predict_proba``. The model must be public or already released.
    X : array-like, sparse matrix or table
        Input of ``model.predict``.
    y : array-like of shape (n_samples,)
        Labels, each one of ``model.classes_``.
    groups : array-like of shape (n_samples,), optional
        Id of the person that each row belongs to: ints, strings or bools. Whole persons are then
        protected, and each counts once, as the mean of its rows: metrics are those of a random row
        of a random person. Ids are private and not kept.
    sample_weight : array-like of shape (n_samples,), optional
        Private non-negative weights, clipped to the public ``max_weight``: metrics are those of a
        row drawn with probability proportional to its weight. The weights of a person sum to at
        most one full row.
    epsilon : float, default=1.0
        Epsilon for all metrics together, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1.
    metrics : str, list of str or None, default=None
        Any of "accuracy", "balanced_accuracy", "precision", "recall", "confusion_matrix", "roc"
        (curve and area), "calibration" and "log_loss"; None for all that the model allows. Fewer
        metrics have less noise.
    positive : label or None, default=None
        Positive class for ROC and calibration. None takes the second of two classes; with more
        classes, calibration is for the predicted class and there is no ROC.
    largest_loss : float, default=5.0
        Bound on one term of the log-loss, from 0.5 to 40. Noise grows with it.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed, or by one row replaced, which
        makes the number of rows public. With groups persons take the place of rows.
    max_weight : float > 0, default=1.0
        Public upper limit on ``sample_weight``, which counts as a full row. Noise is scaled to full
        rows: choose a limit near your weights.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the numbers reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger of these rows, checked before they are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Number of threads for the noise; None for all cores of this process. Never changes the
        result.

    Returns
    -------
    Evaluation
        Estimates with intervals, and ``privacy_``.

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter is outside its range, or the model lacks what a metric needs. Nothing was read
        or spent.
    BudgetExceededError
        The ledger refuses. Nothing was read or spent.
    ValueError
        X, y, groups or weights are invalid; the message does not quote them. Nothing was spent.

    Notes
    -----
    Guarantees: all estimates together are (epsilon, delta)-differentially private for the relation
    ``adjacency``, provided that the model and every other parameter were chosen without looking at
    these rows (or by releases that are counted too), and that the model maps each row
    independently, to the last bit, as estimators of this library do. Proof:
    docs/proofs/evaluation.md. Not covered: running time, and errors that the model raises because
    of a row.

    The rows may be those of the training set: the budgets of both releases then add up.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from dpsvm_fast import PrivateLinearSVC, PrivacyLedger
    >>> from dpsvm_fast.metrics import evaluate
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = PrivateLinearSVC(4.0, classes=[0, 1]).fit(X[:300], y[:300])
    >>> budget = PrivacyLedger(epsilon=2.0, delta=1e-5)
    >>> found = evaluate(model, X[300:], y[300:], metrics=["accuracy"], ledger=budget)
    >>> 0.0 <= found.accuracy.low <= found.accuracy.value <= found.accuracy.high <= 1.0
    True
    """
    asker = PrivateEvaluation(
        model,
        epsilon,
        delta,
        metrics=metrics,
        positive=positive,
        largest_loss=largest_loss,
        adjacency=adjacency,
        max_weight=max_weight,
        random_state=random_state,
        ledger=ledger,
        n_threads=n_threads,
    ).checked()
    owners = {"groups": groups, "sample_weight": sample_weight}
    owners = {name: own for name, own in owners.items() if own is not None}
    rows: Any = EvaluatedRows(asker, lambda: [(X, y, owners)], owners=tuple(owners))
    return Evaluation(**private_fit(asker, rows))
