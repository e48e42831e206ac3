"""Private evaluation: what a row can change, what it costs, and whether the intervals hold."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, ndtr
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss, roc_auc_score

import dpsvm_fast as dp
from dpsvm_fast import PrivacyLedger, _core, metrics, verify
from dpsvm_fast.accounting import gaussian_delta
from dpsvm_fast.exceptions import (
    BudgetExceededError,
    InvalidParameterError,
    LedgerError,
    NotPrivateWarning,
)
from dpsvm_fast.mechanisms.noise import NoisySum, gaussian_parameter
from dpsvm_fast.metrics import (
    CELLS,
    TABLES,
    TRIAL_CELLS,
    WEIGHTS,
    EvaluatedRows,
    Evaluation,
    EvaluationPlan,
    PrivateEvaluation,
    cell_edges,
    coarse_cells,
    evaluate,
    score_sums,
    shares_of,
    weighted_shares,
)

RELATIONS = ("add_remove", "replace_one")


class Scored:
    """A public model whose rows are their own scores: log-odds, one for each class."""

    def __init__(self, classes: Any = (0, 1)) -> None:
        self.classes_ = np.asarray(classes)

    def predict_proba(self, X: Any) -> Any:
        if len(self.classes_) == 2:
            return np.stack([expit(-X[:, 0]), expit(X[:, 0])], axis=1)
        shares = np.exp(X - X.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def sample(
    n: int, rng: np.random.Generator, *, prior: float = 0.5, gap: float = 2.0
) -> tuple[Any, Any]:
    """Normal scores of two classes."""
    y = (rng.random(n) < prior).astype(int)
    return (rng.normal(size=n) + gap * (y - 0.5))[:, None], y


def visits(
    n: int, rng: np.random.Generator, *, prior: float, gap: float
) -> tuple[Any, Any, NDArray[Any]]:
    """Persons of 1 to 30 rows that are alike, each row with the law of `sample`."""
    persons = np.repeat(np.arange(n), rng.integers(1, 31, n))
    own, theirs = rng.random(persons.size), rng.random(n)[persons]
    y = (np.where(rng.random(persons.size) < 0.5, own, theirs) < prior).astype(int)
    noise = math.sqrt(0.3) * rng.normal(size=persons.size)
    noise += math.sqrt(0.7) * rng.normal(size=n)[persons]
    return (noise + gap * (y - 0.5))[:, None], y, persons


def read(
    model: Any, X: Any, y: Any, *owners: Any, **options: Any
) -> tuple[EvaluationPlan, EvaluatedRows]:
    """The plan of an evaluation, and its rows once they are read."""
    asker = PrivateEvaluation(model, **options).checked()
    own = dict(zip(("groups", "sample_weight"), owners, strict=False))
    own = {name: value for name, value in own.items() if value is not None}
    rows = EvaluatedRows(asker, lambda: [(X, y, own)], owners=tuple(own))
    rows.read()
    return asker.plan(rows.facts), rows


def exact(plan: EvaluationPlan, rows: EvaluatedRows, bounds: Any, *placed: Any) -> tuple[Any, ...]:
    """What noise is added to: the weighted tables, before them coarse cells, cells by outcome."""
    tables = np.concatenate([plan._exact(name, rows, *placed) for name in plan.tables])
    if len(plan.sums) == 1:
        return (tables,)
    coarse = rows.counts(coarse_cells(rows.scores), plan.sums[0].size)
    trial = rows.score_counts(bounds[1:-1]).ravel()
    return coarse, trial, tables


def rows_of(n: int, classes: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows of all sizes, and labels."""
    X = rng.normal(size=(n, 1 if classes == 2 else classes))
    return X * 10.0 ** rng.uniform(-12, 3, size=(n, 1)), rng.integers(0, classes, n)


@pytest.mark.proof("evaluation", "Cells")
def test_weights_have_a_norm_of_nearly_one() -> None:
    for size in range(1, len(WEIGHTS) + 1):
        for tables in itertools.combinations(WEIGHTS, size):
            plan = EvaluationPlan(
                epsilon=1.0, delta=1e-6, adjacency="add_remove", n_classes=3, tables=tables
            )
            assert 0.99 < sum(weight**2 for weight in plan.weights.values()) <= 1


def largest_moves(plan: EvaluationPlan, pairs: Any) -> tuple[float, ...]:
    """Largest distances of what noise is added to, over pairs of neighbours."""
    rng = np.random.default_rng(3)
    found = [0.0 for _ in plan.sums]
    for left, right in pairs:
        scale = 10.0 ** rng.integers(-3, 3)
        bounds, edges = (np.sort(scale * rng.normal(size=k)) for k in (TRIAL_CELLS + 1, CELLS - 1))
        shares = np.sort(rng.random((2, CELLS - 1)) ** rng.uniform(0.1, 10.0, (2, 1)))
        sums = score_sums(plan.weights.get("scores", Fraction(1)), *shares)
        both = (exact(plan, rows, bounds, edges, sums) for rows in (left, right))
        for k, (a, b) in enumerate(zip(*both, strict=True)):
            found[k] = max(found[k], float(np.linalg.norm(a - b)))
    return tuple(found)


def neighbours(
    classes: int, adjacency: str, *, persons: bool = False, weighted: bool = False, **options: Any
) -> tuple[EvaluationPlan, list[Any]]:
    """A plan and rows of neighbours that are read, each by itself."""
    rng = np.random.default_rng(classes)
    model, found = Scored(range(classes)), []
    options["adjacency"] = adjacency

    def weights(n: int) -> Any:
        """Some of less than a full row, and many of more."""
        return rng.choice([0.0, 0.3, 2.0, 5.0], n, p=[0.1, 0.2, 0.4, 0.3]) if weighted else None

    options |= {"max_weight": 2.0} if weighted else {}
    for k in range(60):
        if persons:
            # Two persons like the others, or the last two: of rows that differ, or are copies.
            ids = np.repeat(np.arange(6), [1, 3, 70, 2, *rng.integers(1, 51, 2)])
            X, y = rows_of(ids.size, classes, rng)
            if k % 2:
                X, y = X[ids], y[ids]
            mixed = rng.permutation(ids.size)
            X, y, ids = X[mixed], y[mixed], ids[mixed]
            pair = [ids < 5, ids < 6] if adjacency == "add_remove" else [ids != 4, ids != 5]
            w = weights(ids.size)
            both = [
                read(model, X[one], y[one], ids[one], w if w is None else w[one], **options)
                for one in pair
            ]
            plan = both[0][0]
            found.append((both[0][1], both[1][1]))
            continue
        X, y = rows_of(6, classes, rng)
        # One of the last two rows, or none of them.
        pair = [[*range(5)], [*range(6)]]
        pair = pair if adjacency == "add_remove" else [[0, 1, 2, 3, 5], [*range(5)]]
        w = weights(6)
        both = [
            read(model, X[one], y[one], None, w if w is None else w[one], **options) for one in pair
        ]
        plan = both[0][0]
        found.append((both[0][1], both[1][1]))
    return plan, found


@pytest.mark.proof("evaluation", "Cells")
@pytest.mark.proof("evaluation", "Persons")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("classes", [2, 3])
def test_neighbours_move_the_sum_by_at_most_the_sensitivity(
    classes: int, adjacency: str, persons: bool, weighted: bool
) -> None:
    how: dict[str, Any] = {"persons": persons, "weighted": weighted}
    plan, pairs = neighbours(classes, adjacency, **how, largest_loss=2.0)
    moved = largest_moves(plan, pairs)
    assert all(move <= one.sensitivity for move, one in zip(moved, plan.sums, strict=True))
    # Two full rows are rare where weights are.
    reached = 0.75 if weighted else 0.85
    assert moved[2] > reached * plan.sums[-1].sensitivity
    # The privacy loss of a Gaussian release is known exactly: delta is that of the budget.
    mu = math.hypot(*(move / one.scale for move, one in zip(moved, plan.sums, strict=True)))
    assert gaussian_delta(plan.epsilon, 1.0 / mu) <= plan.delta
    assert mu > (reached + 0.05) * gaussian_parameter(plan.epsilon, plan.delta)


@pytest.mark.proof("evaluation", "Cells")
@pytest.mark.proof("evaluation", "Persons")
@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("metric", TABLES)
def test_neighbours_move_a_single_metric_by_at_most_the_sensitivity(
    metric: str, persons: bool
) -> None:
    for adjacency in RELATIONS:
        plan, pairs = neighbours(2, adjacency, persons=persons, metrics=[metric], largest_loss=2.0)
        moved = largest_moves(plan, pairs)
        assert all(move <= one.sensitivity for move, one in zip(moved, plan.sums, strict=True))
        mu = math.hypot(*(move / one.scale for move, one in zip(moved, plan.sums, strict=True)))
        assert gaussian_delta(plan.epsilon, 1.0 / mu) <= plan.delta
        assert mu > 0.7 * gaussian_parameter(plan.epsilon, plan.delta)


@pytest.mark.proof("evaluation", "Cells")
def test_unscaled_weights_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    weights = {name: Fraction(one) for name, one in WEIGHTS.items()}
    monkeypatch.setattr(EvaluationPlan, "weights", weights)
    plan, pairs = neighbours(3, "add_remove")
    assert largest_moves(plan, pairs)[2] > 1.2 * plan.sums[-1].sensitivity


@pytest.mark.proof("evaluation", "Persons")
def test_persons_that_count_with_all_their_rows_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control."""
    monkeypatch.setattr(metrics, "shares_of", lambda p: np.full(p.size, 2.0**14))
    plan, pairs = neighbours(3, "add_remove", persons=True)
    assert largest_moves(plan, pairs)[2] > 10.0 * plan.sums[-1].sensitivity


@pytest.mark.proof("evaluation", "Persons")
@pytest.mark.parametrize("persons", [False, True])
def test_weights_that_are_not_clipped_are_noticed(
    monkeypatch: pytest.MonkeyPatch, persons: bool
) -> None:
    """Negative control."""
    honest = weighted_shares
    monkeypatch.setattr(
        metrics,
        "weighted_shares",
        lambda p, w, m: honest(np.arange(p.size), np.ones(p.size), 1.0) * w,
    )
    plan, pairs = neighbours(3, "add_remove", persons=persons, weighted=True)
    assert largest_moves(plan, pairs)[2] > 2.0 * plan.sums[-1].sensitivity


@pytest.mark.proof("evaluation", "Cells")
@pytest.mark.parametrize("weight", [Fraction(1, 64), Fraction(380, 1024), Fraction(1)])
def test_sums_of_scores_move_by_no_more_than_their_weight(weight: Fraction) -> None:
    """Exactly, in integers: all cells and all pairs of cells, for areas from 0 to 1."""
    rng, whole = np.random.default_rng(0), int(1024 * weight)
    powers = [(1.0, 1.0), (1e-9, 1e9), (1e9, 1e-9), *10.0 ** rng.uniform(-2, 2, (40, 2))]
    for a, b in powers:
        shares = np.sort(rng.random((2, CELLS - 1)), axis=1)
        for own in score_sums(weight, shares[0] ** a, shares[1] ** b).tolist():
            columns = list(zip(*own, strict=True))
            assert max(sum(x * x for x in one) for one in columns) <= whole**2
            for one, other in itertools.combinations(columns, 2):
                assert sum((x - y) ** 2 for x, y in zip(one, other, strict=True)) <= 2 * whole**2
        if whole > 100:
            assert max(sum(x * x for x in one) for one in columns) > 0.5 * whole**2


@pytest.mark.proof("evaluation", "Cells")
def test_ranks_of_twice_the_reach_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: two rows of one outcome are then too far apart, or one too long."""

    def stretched(*given: Any) -> Any:
        found = honest(*given)
        found[:, -1] *= 2
        return found

    honest = score_sums
    monkeypatch.setitem(globals(), "score_sums", stretched)
    with pytest.raises(AssertionError):
        test_sums_of_scores_move_by_no_more_than_their_weight(Fraction(1))


@pytest.mark.proof("evaluation", "Persons")
@pytest.mark.parametrize("sizes", [[1], [3, 1, 7], [2**14 + 5, 2], [40_000, 16_383, 16_385]])
def test_shares_of_a_person_add_up_to_one(sizes: list[int]) -> None:
    persons = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    shares = shares_of(persons)
    assert np.bincount(persons, shares).tolist() == [2.0**14] * len(sizes)
    apart = [np.ptp(shares[persons == k]) for k in range(len(sizes))]
    assert max(apart) <= 1.0
    assert shares.min() >= 0.0


@pytest.mark.proof("evaluation", "Persons")
@pytest.mark.parametrize("seed", range(20))
def test_weights_of_a_person_add_up_to_at_most_one(seed: int) -> None:
    """Whole numbers, so that sums are exact; also where quotients round up."""
    rng = np.random.default_rng(seed)
    persons = rng.integers(0, 50, 20_000)
    persons[: 20_000 * (seed % 2)] = 0
    weights = rng.choice([0.0, 1e-300, 0.1, 1.0 / 3.0, rng.random(), 1e300], persons.size)
    shares = weighted_shares(persons, weights, 10.0 ** rng.uniform(-3.0, 3.0))
    assert (shares == np.floor(shares)).all()
    assert shares.min() >= 0.0
    assert np.bincount(persons, shares).max() <= 2.0**14


@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_weights_count_as_in_scikit_learn_up_to_a_full_row(adjacency: str) -> None:
    rng = np.random.default_rng(0)
    X, y = sample(4000, rng)
    how: dict[str, Any] = {"adjacency": adjacency, "random_state": 1}
    plain = evaluate(Scored(), X, y, **how)
    full = evaluate(Scored(), X, y, sample_weight=np.full(4000, 7.0), max_weight=3.0, **how)
    assert all(np.array_equal(plain.tables[name], full.tables[name]) for name in plain.tables)
    # Their number is public, their weights are not.
    assert full.n_samples is None
    weights, right = rng.random(4000) * 4.0, Scored().predict(X) == y
    weights[right] *= 0.3
    how = {"epsilon": 500.0, "adjacency": adjacency, "max_weight": 2.0}
    found = evaluate(Scored(), X, y, sample_weight=weights, **how)
    clipped = np.minimum(weights, 2.0)
    expected = accuracy_score(y, Scored().predict(X), sample_weight=clipped)
    assert found.accuracy.value == pytest.approx(expected, abs=5e-3)
    assert abs(expected - right.mean()) > 0.1
    cells = confusion_matrix(y, Scored().predict(X), sample_weight=clipped / 2.0)
    assert np.abs(found.confusion_matrix.value - cells).max() < 5.0
    area = roc_auc_score(y, X[:, 0], sample_weight=clipped)
    assert found.auc.low <= area <= found.auc.high
    assert verify(found.privacy_.to_json()).ok
    assert "max_weight" in found.privacy_.occasion.parameters


def test_one_metric_needs_no_list() -> None:
    X, y = sample(50, np.random.default_rng(0))
    assert evaluate(Scored(), X, y, metrics="accuracy").metrics == ("accuracy",)


@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_persons_of_one_row_count_like_rows_and_others_once(adjacency: str) -> None:
    X, y, persons = visits(400, np.random.default_rng(0), prior=0.4, gap=2.0)
    first = np.unique(persons, return_index=True)[1]
    how: dict[str, Any] = {"adjacency": adjacency, "random_state": 1}
    rows = evaluate(Scored(), X[first], y[first], **how)
    single = evaluate(Scored(), X[first], y[first], groups=persons[first].astype(str), **how)
    # All rows of a person alike: they count like one.
    alike = evaluate(Scored(), X[first][persons], y[first][persons], groups=persons, **how)
    for found in (single, alike):
        for name, table in rows.tables.items():
            assert np.array_equal(table, found.tables[name])
        assert found.n_samples == rows.n_samples
        assert found.privacy_.unit == "person"
        assert found.privacy_.events == rows.privacy_.events
    ids = np.array([f"patient {p}" for p in persons])
    # The noise has a standard deviation of 3.1e-4: a false alarm lies 16 of them away.
    own = evaluate(Scored(), X, y, groups=ids, epsilon=500.0, adjacency=adjacency)
    right = (Scored().predict(X) == y).astype(float)
    means = np.bincount(persons, right) / np.bincount(persons)
    assert own.accuracy.value == pytest.approx(means.mean(), abs=5e-3)
    assert verify(own.privacy_.to_json()).ok
    assert "person and all their rows" in own.privacy_.protected
    assert b"patient" not in pickle.dumps(own)


@pytest.mark.parametrize("groups", [[1] * 49, [float("nan")] * 50, [(1, 2)] * 50, None])
def test_bad_persons_and_a_ledger_of_rows_cost_nothing(groups: Any) -> None:
    X, y = sample(50, np.random.default_rng(0))
    ledger = PrivacyLedger(1.0, 1e-5, unit="row" if groups is None else "person")
    with pytest.raises((InvalidParameterError, LedgerError)) as told:
        evaluate(Scored(), X, y, groups=[1] * 50 if groups is None else groups, ledger=ledger)
    assert groups is None or told.value.parameter == "groups"
    assert ledger.history == ()


def right_guesses(n_runs: int, *, persons: bool = False) -> tuple[float, float]:
    """Share of right guesses of the neighbour by the likelihood, and what mu allows."""
    X, y = sample(40, np.random.default_rng(0))
    # One row of one person more, or seven rows of one person that are alike.
    own, others = np.zeros(7 if persons else 1, dtype=int), np.arange(1, 40)
    together = np.concatenate([own, others])
    (plan, larger), (_, smaller) = (
        read(Scored(), X[i], y[i], *([i] if persons else []), epsilon=6.0, n_threads=1)
        for i in (together, others)
    )
    worlds, seen, right = (smaller, larger), [], 0
    release, place, split = NoisySum.release, EvaluationPlan._placed, cell_edges
    placed: list[Any] = []

    def watched(*given: Any) -> Any:
        seen.append(release(*given))
        return seen[-1]

    def split_at(*given: Any) -> Any:
        found = split(*given)
        if not placed:
            placed.append(found)
        return found

    def placed_at(*given: Any) -> Any:
        found = place(*given)
        placed.extend(found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoisySum, "release", watched)
        patch.setattr(metrics, "cell_edges", split_at)
        patch.setattr(EvaluationPlan, "_placed", placed_at)
        for seed in range(n_runs):
            truth = seed % 2
            seen.clear()
            placed.clear()
            plan.run(worlds[truth], _core.NoiseSource(seed))
            distances = []
            for world in worlds:
                means = exact(plan, world, *placed)
                scaled = zip(seen, means, plan.sums, strict=True)
                distances.append(
                    sum(float(((a - b) ** 2).sum()) / s.scale**2 for a, b, s in scaled)
                )
            right += (distances[1] < distances[0]) == truth
    return right / n_runs, float(ndtr(0.5 * gaussian_parameter(6.0, 1e-6)))


@pytest.mark.proof("evaluation", "Composition")
@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("persons", [False, True])
def test_the_best_guesser_gains_what_was_paid_and_no_more(persons: bool) -> None:
    """Whoever knows all but one row, or one person, and weighs both releases by their density."""
    share, allowed = right_guesses(1500, persons=persons)
    # Three standard deviations of the share.
    assert allowed - 0.055 < share < allowed + 0.04


@pytest.mark.slow
@pytest.mark.proof("evaluation", "Composition")
def test_noise_of_half_the_size_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the same guesser wins more often than what was paid for allows."""
    release = NoisySum.release

    def weaker(self: NoisySum, total: Any, *given: Any) -> Any:
        return total + 0.5 * (release(self, total, *given) - total)

    monkeypatch.setattr(NoisySum, "release", weaker)
    share, allowed = right_guesses(600)
    assert share > allowed + 0.06


@pytest.mark.proof("evaluation", "Cells")
def test_edges_follow_from_noisy_counts_and_cut_scores_evenly() -> None:
    rng, outer = np.random.default_rng(0), np.ldexp(1.0, np.arange(-32, 33))
    bounds = np.concatenate([-outer[::-1], outer])
    for scores in (1e-5 * rng.normal(size=20_000), 5.0 + 0.01 * rng.normal(size=20_000)):
        own = bounds
        for cells in (64, 40):
            places = np.searchsorted(own[1:-1], scores, side="right")
            own = cell_edges(np.bincount(places, minlength=own.size - 1).astype(float), own, cells)
            assert own.size == cells + 1
            assert (np.diff(own) >= 0).all()
        shares = np.bincount(np.searchsorted(own, scores), minlength=40) / scores.size
        assert shares.max() < 4.0 / 40
    # Values that many scores share stay apart, and nothing but noise has public cells.
    steps = rng.integers(-2, 3, 20_000).astype(float)
    counts = np.bincount(coarse_cells(steps), minlength=129).astype(float)
    edges = cell_edges(counts, bounds, 64)[1:-1]
    assert np.unique(np.searchsorted(edges, np.arange(-2.0, 3.0), side="right")).size == 5
    assert np.isfinite(cell_edges(np.zeros(129), bounds, 64)).all()
    ends = coarse_cells(np.array([-1e300, -1e-300, 0.0, 1e-300, 1e300, 1.0]))
    assert ends.tolist() == [0, 64, 64, 64, 128, 97]


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_estimates_are_close_where_noise_is_small(adjacency: str) -> None:
    rng = np.random.default_rng(1)
    X, y = sample(20_000, rng, prior=0.3)
    X = 1e-3 * X
    model = Scored(["no", "yes"])
    labels = model.classes_[y]
    found = evaluate(model, X, labels, epsilon=50.0, adjacency=adjacency)
    assert (found.n_samples == 20_000) == (adjacency == "replace_one")
    said = model.predict(X)
    table = confusion_matrix(labels, said)
    recalls = np.diagonal(table) / table.sum(axis=1)
    chances = model.predict_proba(X)
    for estimate, truth, slack in (
        (found.accuracy, accuracy_score(labels, said), 1e-3),
        (found.balanced_accuracy, recalls.mean(), 1e-3),
        (found.recall["yes"], recalls[1], 2e-3),
        (found.precision["no"], table[0, 0] / table[:, 0].sum(), 2e-3),
        (found.auc, roc_auc_score(y, X[:, 0]), 2e-3),
        (found.log_loss, log_loss(y, chances[:, 1]), 2e-3),
    ):
        assert estimate.value == pytest.approx(truth, abs=slack)
        assert estimate.low <= truth <= estimate.high
    assert np.abs(found.confusion_matrix.value - table).max() < 10
    roc, above = found.roc, chances[:, 1] >= found.roc.thresholds[9]
    assert roc.true_positive_rate.value[9] == pytest.approx(above[y == 1].mean(), abs=5e-3)
    assert roc.false_positive_rate.value[9] == pytest.approx(above[y == 0].mean(), abs=5e-3)
    curve = found.calibration
    inside = (chances[:, 1] >= curve.low[3]) & (chances[:, 1] < curve.high[3])
    assert curve.observed.value[3] == pytest.approx(y[inside].mean(), abs=1e-2)
    assert verify(found.privacy_.to_json()).ok


def test_several_classes() -> None:
    rng = np.random.default_rng(2)
    y = rng.integers(0, 4, 20_000)
    X = rng.normal(size=(20_000, 4)) + 2.0 * np.eye(4)[y]
    model = Scored(range(4))
    found = evaluate(model, X, y, epsilon=50.0)
    assert "roc" not in found.metrics
    right = model.predict(X) == y
    assert found.accuracy.value == pytest.approx(right.mean(), abs=1e-3)
    largest = model.predict_proba(X).max(axis=1)
    curve = found.calibration
    inside = (largest >= curve.low[5]) & (largest < curve.high[5])
    assert curve.observed.value[5] == pytest.approx(right[inside].mean(), abs=1e-2)
    of_two = evaluate(model, X, y, epsilon=50.0, metrics=["roc"], positive=2)
    scores = model.predict_proba(X)[:, 2]
    assert of_two.auc.value == pytest.approx(roc_auc_score(y == 2, scores), abs=2e-3)


@pytest.mark.parametrize("labels", [[0, 1], [1, 0]])
def test_either_of_two_classes_is_positive(labels: list[int]) -> None:
    """Also by scores, which are those of the second."""

    class ByScore:
        classes_ = np.array([0, 1])

        def decision_function(self, X: Any) -> Any:
            return X[:, 0]

        def predict(self, X: Any) -> Any:
            return (X[:, 0] > 0).astype(int)

    X, y = sample(20_000, np.random.default_rng(4), gap=1.0)
    found = evaluate(ByScore(), X, y, epsilon=50.0, metrics=("roc",), positive=labels[0])
    assert found.auc.value == pytest.approx(roc_auc_score(y, X[:, 0]), abs=3e-3)
    with pytest.raises(AttributeError, match="accuracy"):
        _ = found.accuracy
    with pytest.raises(InvalidParameterError) as told:
        evaluate(ByScore(), X, y, metrics=("log_loss",))
    assert told.value.parameter == "metrics"


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("prior", "scale", "middle", "mean"),
    # The mean error of plain counts of scores is 0.005, 0.07 and 0.025.
    [(0.5, 1.0, 0.0, 0.004), (0.5, 0.05, 5.0, 0.004), (0.1, 1.0, 0.0, 0.013)],
)
def test_the_area_is_within_a_hundredth_at_half_an_epsilon(
    prior: float, scale: float, middle: float, mean: float
) -> None:
    errors = []
    rng = np.random.default_rng(5)
    for seed in range(60):
        X, y = sample(10_000, rng, prior=prior)
        plan, rows = read(Scored(), middle + scale * X, y, epsilon=0.5)
        fields = plan.run(rows, _core.NoiseSource(seed))
        asked = {"metrics": tuple(TABLES), "classes": np.arange(2), "positive": 1}
        known = {"are_probabilities": True, "largest_loss": 5.0, "privacy_": None}
        found = Evaluation(**fields, **asked, **known)
        errors.append(found.auc.value - roc_auc_score(y, X[:, 0]))
    assert np.abs(errors).mean() < mean
    assert abs(np.mean(errors)) < 0.5 * mean
    if prior == 0.5:
        assert np.mean(np.abs(errors) < 0.01) > 0.96


def population(prior: float, gap: float) -> dict[str, Any]:
    """The truth about `sample`, by formulas and by a fine integral for the losses."""
    low, high = ndtr(-0.5 * gap), ndtr(0.5 * gap)
    cells = np.array([[(1 - prior) * high, (1 - prior) * low], [prior * low, prior * high]])
    grid = np.linspace(-9.0, 9.0, 200_001)
    weight = np.exp(-0.5 * grid**2)
    weight /= weight.sum()
    terms = [
        weight @ np.minimum(-np.log(np.maximum(expit(sign * (grid + sign * 0.5 * gap)), 1e-300)), 5)
        for sign in (-1, 1)
    ]
    return {
        "accuracy": high,
        "balanced_accuracy": high,
        "auc": ndtr(gap / math.sqrt(2.0)),
        "log_loss": (1 - prior) * terms[0] + prior * terms[1],
        "recall": [high, high],
        "precision": (np.diagonal(cells) / cells.sum(axis=0)).tolist(),
        "cells": cells,
    }


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.proof("evaluation", "Intervals")
@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.parametrize(
    ("n", "epsilon", "prior", "gap", "owners"),
    [
        (10_000, 0.5, 0.5, 2.0, "rows"),
        (10_000, 0.5, 0.1, 2.0, "rows"),
        (10_000, 0.5, 0.5, 6.0, "rows"),
        (1000, 2.0, 0.3, 3.0, "rows"),
        (300, 1.0, 0.5, 2.0, "rows"),
        (1000, 2.0, 0.3, 3.0, "persons"),
        (300, 1.0, 0.5, 2.0, "persons"),
        (1000, 2.0, 0.3, 3.0, "weights"),
    ],
)
def test_intervals_cover(n: int, epsilon: float, prior: float, gap: float, owners: str) -> None:
    """At least 95 % of a thousand samples, each with new noise."""
    truth, n_runs = population(prior, gap), 1000
    covered: dict[str, list[float]] = {}
    rng = np.random.default_rng(n)
    for seed in range(n_runs):
        X, y, *ids = (visits if owners == "persons" else sample)(n, rng, prior=prior, gap=gap)
        own: dict[str, Any] = {"groups": ids[0]} if ids else {}
        counted = float(n)
        if owners == "weights":
            own, counted = {"sample_weight": rng.random(n)}, 0.5 * n
        found = evaluate(Scored(), X, y, **own, epsilon=epsilon, random_state=seed)
        pairs = [(name, getattr(found, name), truth[name]) for name in list(truth)[:4]]
        for name in ("recall", "precision"):
            each = zip(getattr(found, name).items(), truth[name], strict=True)
            pairs += [(f"{name} {label}", own, p) for (label, own), p in each]
        pairs.append(("cells", found.confusion_matrix, counted * truth["cells"]))
        chances = np.clip(found.roc.thresholds, 1e-300, 1.0 - 1e-16)
        scores = np.log(chances) - np.log1p(-chances)
        pairs.append(("tpr", found.roc.true_positive_rate, ndtr(0.5 * gap - scores)))
        pairs.append(("fpr", found.roc.false_positive_rate, ndtr(-0.5 * gap - scores)))
        curve = found.calibration
        with np.errstate(divide="ignore"):
            low, high = (np.log(p) - np.log1p(-p) for p in (curve.low, curve.high))
        inside = [ndtr(high - s * 0.5 * gap) - ndtr(low - s * 0.5 * gap) for s in (-1, 1)]
        share = prior * inside[1] / np.maximum((1 - prior) * inside[0] + prior * inside[1], 1e-300)
        pairs.append(("calibration", curve.observed, share))
        for name, own, p in pairs:
            hit = np.mean((own.low <= p) & (p <= own.high))
            covered.setdefault(name, []).append(float(hit))
    shares = {name: np.mean(hits) for name, hits in covered.items()}
    assert min(shares.values()) >= 0.95, shares


def of_three(n: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scores of three classes, and labels."""
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    return rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y], y


def shares_above(ordered: NDArray[Any], cuts: NDArray[Any]) -> NDArray[Any]:
    """Share of the values that are at least each of the cuts."""
    return 1.0 - np.searchsorted(ordered, cuts) / ordered.size


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.proof("evaluation", "Intervals")
@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
def test_intervals_cover_with_three_classes() -> None:
    """As above; the truth is measured on a million rows."""
    rng, n, n_runs = np.random.default_rng(0), 2000, 1000
    X, y = of_three(1_000_000, rng)
    chances = Scored(range(3)).predict_proba(X)
    said, middle = chances.argmax(axis=1), chances[:, 1]
    cells = confusion_matrix(y, said) / y.size
    losses = np.minimum(-np.log(chances[np.arange(y.size), y]), 5.0)
    right, sides = np.diagonal(cells), (cells.sum(axis=1), cells.sum(axis=0))
    truth: dict[str, Any] = {
        "accuracy": right.sum(),
        "balanced_accuracy": (right / sides[0]).mean(),
        "auc": roc_auc_score(y == 1, middle),
        "log_loss": losses.mean(),
        "confusion_matrix": n * cells,
        "recall": dict(enumerate(right / sides[0])),
        "precision": dict(enumerate(right / sides[1])),
    }
    positive, negative = (np.sort(middle[chosen]) for chosen in (y == 1, y != 1))
    covered: dict[str, list[Any]] = {}
    for seed in range(n_runs):
        rows = of_three(n, rng)
        found = evaluate(Scored(range(3)), *rows, epsilon=1.0, positive=1, random_state=seed)
        pairs = []
        for name, true in truth.items():
            own = getattr(found, name)
            many = (
                [(own[k], t) for k, t in true.items()] if isinstance(true, dict) else [(own, true)]
            )
            pairs += [(f"{name} {i}", one, t) for i, (one, t) in enumerate(many)]
        at = found.roc.thresholds
        pairs.append(("tpr", found.roc.true_positive_rate, shares_above(positive, at)))
        pairs.append(("fpr", found.roc.false_positive_rate, shares_above(negative, at)))
        curve = found.calibration
        inside = [
            shares_above(own, curve.low) * own.size - shares_above(own, curve.high) * own.size
            for own in (positive, negative)
        ]
        pairs.append(("calibration", curve.observed, inside[0] / np.maximum(sum(inside), 1.0)))
        for name, own, p in pairs:
            covered.setdefault(name, []).append(np.mean((own.low <= p) & (p <= own.high)))
    shares = {name: np.mean(hits) for name, hits in covered.items()}
    assert min(shares.values()) >= 0.95, shares


@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.proof("evaluation", "Intervals")
def test_intervals_without_the_noise_would_not_cover() -> None:
    """Negative control of coverage: deviations of nothing."""
    truth, hits, blind = population(0.5, 2.0), 0, 0
    rng = np.random.default_rng(7)
    for seed in range(60):
        X, y = sample(400, rng)
        found = evaluate(Scored(), X, y, epsilon=0.1, random_state=seed, metrics=["accuracy"])
        without = replace(found, deviations=dict.fromkeys(found.deviations, 0.0))
        hits += found.accuracy.low <= truth["accuracy"] <= found.accuracy.high
        blind += without.accuracy.low <= truth["accuracy"] <= without.accuracy.high
    assert hits >= 54
    assert blind <= 40


def test_the_ledger_is_charged_once_and_before_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sample(50, np.random.default_rng(0))
    ledger = PrivacyLedger(1.0, 1e-5)
    found = evaluate(Scored(), X, y, epsilon=0.9, ledger=ledger)
    assert tuple(record.event for record in ledger.history) == found.privacy_.events
    with pytest.raises(BudgetExceededError):
        evaluate(Scored(), X, y, epsilon=0.9, ledger=ledger)
    assert len(ledger.history) == 3
    stopped = PrivacyLedger(1.0, 1e-5)

    def interrupt(*given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(NoisySum, "release", interrupt)
    with pytest.raises(KeyboardInterrupt):
        evaluate(Scored(), X, y, ledger=stopped)
    assert len(stopped.history) == 3


class Faulty(Scored):
    """A model with probabilities that are no numbers."""

    def predict_proba(self, X: Any) -> Any:
        return np.full((len(X), 2), np.nan)

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X), dtype=int)


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"metrics": ["auroc"]}, "metrics"),
        ({"metrics": "auroc"}, "metrics"),
        ({"metrics": 3}, "metrics"),
        ({"metrics": []}, "metrics"),
        ({"positive": 7}, "positive"),
        ({"largest_loss": 0.1}, "largest_loss"),
        ({"adjacency": "none"}, "adjacency"),
        ({"model": object()}, "model"),
        ({"model": Faulty()}, "model"),
        ({"model": Scored(range(3)), "metrics": ["roc"]}, "metrics"),
        ({"sample_weight": [1.0] * 49}, "sample_weight"),
        ({"sample_weight": [-4711.0] * 50}, "sample_weight"),
        ({"max_weight": 0.0}, "max_weight"),
        ({"y": [0] * 49}, "y"),
        ({"y": [4711] * 50}, "y"),
        ({"X": np.empty((0, 1)), "y": np.empty(0)}, "X"),
    ],
)
def test_what_is_wrong_is_named_and_costs_nothing(changes: dict[str, Any], parameter: str) -> None:
    X, y = sample(50, np.random.default_rng(0))
    ledger = PrivacyLedger(1.0, 1e-5)
    given = {"model": Scored(), "X": X, "y": y, "ledger": ledger} | changes
    with pytest.raises((ValueError, TypeError)) as told:
        evaluate(given.pop("model"), given.pop("X"), given.pop("y"), **given)
    assert str(told.value).partition(":")[0] == parameter
    assert "4711" not in str(told.value)
    assert ledger.history == ()


def test_a_seed_is_not_private() -> None:
    X, y = sample(50, np.random.default_rng(0))
    with pytest.warns(NotPrivateWarning) as told:
        found = evaluate(Scored(), X, y, random_state=1)
    assert told[0].filename == __file__
    assert not found.privacy_.private
    assert "NOT PRIVATE" in str(found)
    assert not verify(found.privacy_).ok


@pytest.mark.parametrize("metrics", [None, *([name] for name in TABLES)])
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_every_certificate_holds_and_every_text_and_json_is_written(
    adjacency: str, metrics: Any
) -> None:
    X, y = sample(30, np.random.default_rng(0))
    ledger = PrivacyLedger(1.0, 1e-5, adjacency)
    found = evaluate(Scored(), X, y, metrics=metrics, adjacency=adjacency, ledger=ledger)
    assert verify(found.privacy_.to_json()).ok
    assert "evaluated data" in found.privacy_.protected
    json.dumps(found.to_dict(), allow_nan=False)
    assert str(found).startswith("PRIVATE, epsilon = 1")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clip_norm", 0.5),
        ("relation_factor", 1.2),
        ("sigma", 0.5),
        ("shape", [2, 8]),
        ("what", "the sum of the rows"),
        ("name", "centre"),
    ],
)
def test_a_forged_certificate_does_not_hold(field: str, value: Any) -> None:
    X, y = sample(30, np.random.default_rng(0))
    record = evaluate(Scored(), X, y).privacy_.to_dict()
    record["parts"][2][field] = value
    if field in ("clip_norm", "sigma"):
        record["parts"][2]["contribution"] = value if field == "clip_norm" else 1.0
    assert not verify(record).ok


def test_a_private_model_on_the_rows_it_was_trained_on() -> None:
    """Both releases are charged to one budget."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)), rng.integers(0, 3, 300)
    ledger = PrivacyLedger(2.0, 1e-5)
    svc = dp.PrivateLinearSVC(1.0, 1e-6, bounds=(-3, 3), classes=range(3), ledger=ledger)
    model = svc.fit(X, y)
    spent = ledger.total()[0]
    found = evaluate(model, X, y, epsilon=0.5, ledger=ledger)
    assert ledger.total()[0] > spent
    assert [record.label for record in ledger.history][-1] == "PrivateEvaluation"
    assert found.metrics == tuple(name for name in TABLES if name != "roc")
    assert found.confusion_matrix.value.shape == (3, 3)
