"""Whole persons never move a sum by more than one row may, however many rows they own.

Persons of several rows stand at the end, so that the others keep their tags where one leaves.
"""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from conftest import tries
from dpsvm_fast import OutputPerturbationSVC, _core
from dpsvm_fast.estimators.inputs import ArrayRows
from dpsvm_fast.mechanisms.gaussian_margin import NoisyAnchors, unit_rows
from dpsvm_fast.mechanisms.moments import ClassCounts, NoisyColumnMoments, NoisyMean
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.preprocessing import (
    PrivateCenter,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateWhitener,
)
from oracles.noisy_descent import STEEP, clipped_sum, distance_bound, kernel, records_of, run

Array = NDArray[Any]
NO_WEIGHTS: Array = np.empty(0)
FORMS: dict[str, Any] = {"dense": np.asarray, "csr": sparse.csr_matrix}
LOSSES = [("softmax_margin", 4), ("huber", 2), ("logistic", 3), ("m3", 5)]
POINT = np.rint(np.linspace(-0.3, 0.4, 9) * 2**20) / 2**20


def person_rows(kind: str, m: int, d: int, n_classes: int, rng: Any) -> tuple[Array, Array]:
    """Rows of one person: alike, in pairs that cancel, long, or of any kind."""
    x, label = rng.normal(size=d), rng.integers(0, n_classes)
    if kind == "equal":
        return np.tile(x, (m, 1)), np.full(m, label)
    if kind == "cancelling":
        return np.outer((-1.0) ** np.arange(m), x), np.full(m, label)
    rows = rng.normal(size=(m, d)) * (1e6 if kind == "long" else 0.5)
    return rows, rng.integers(0, n_classes, m)


class Case:
    """Persons of one row, then of several, and the settings of a step."""

    def __init__(self, draw: st.DrawFn) -> None:
        loss, self.n_classes = draw(st.sampled_from(LOSSES))
        self.d = d = draw(st.integers(1, 9))
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        n = draw(st.sampled_from([0, 1, 63, 64, 130]))
        parts = [(rng.normal(size=(n, d)), rng.integers(0, self.n_classes, n))]
        kinds = st.sampled_from(["equal", "cancelling", "long", "any"])
        sizes = draw(st.lists(st.integers(2, 50), min_size=1, max_size=4))
        parts += [person_rows(draw(kinds), m, d, self.n_classes, rng) for m in sizes]
        self.X = np.concatenate([X for X, _ in parts])
        self.X *= rng.random(self.X.shape) < draw(st.sampled_from([0.3, 1.0]))
        self.y = np.concatenate([y for _, y in parts])
        self.starts = n + np.cumsum([0, *sizes])
        self.weights = NO_WEIGHTS
        if draw(st.booleans()):
            self.weights = rng.random(len(self.X)) ** draw(st.sampled_from([0, 1, 8]))
        self.form = FORMS[draw(st.sampled_from(sorted(FORMS)))]
        self.unit, self.centred = draw(st.booleans()), draw(st.booleans())
        self.options = kernel(loss, self.n_classes, draw(st.sampled_from([0.01, 0.5])))
        self.options |= {
            "clip": draw(st.sampled_from([1e-6, 0.1, 1.0, 100.0])),
            "intercept": draw(st.sampled_from([0.0, 0.25, 3.0])),
            "row_scale": draw(st.sampled_from([0.7, 20.0])),
            "precision": draw(st.sampled_from(["f32", "f64"])),
        }
        power = draw(st.sampled_from([None, 20]))
        exponent = math.floor(math.log2(self.options["clip"]))
        self.options["grid"] = None if power is None else 2.0 ** (exponent - power)

    def records(self, n_persons: int, *, fewer: int = 0, centred: bool | None = None) -> Any:
        """With so many of the persons of several rows; without some of the rows at the end."""
        starts = self.starts[: n_persons + 1]
        kept = slice(0, starts[-1] - fewer)
        records = records_of(self.form(self.X[kept]), self.y[kept], self.n_classes, unit=self.unit)
        own = np.array(starts if n_persons else [], dtype=np.int64)
        records.own(own, np.ascontiguousarray(self.weights[kept]))
        if self.centred if centred is None else centred:
            records.centre(POINT[: self.d], 1)
        return records

    def moved(self, number: Any, **how: Any) -> tuple[float, float]:
        """How far the last person moves a sum, and the size of the larger one."""
        several = len(self.starts) - 1
        whole = number(self.records(several, **how))
        part = number(self.records(several - 1, **how))
        return float(np.linalg.norm(whole - part)), float(np.abs(whole).max(initial=0.0))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return Case(draw)


@pytest.mark.proof("persons", "Sums of gradients")
@given(case=cases())
@tries(100)
def test_a_person_moves_the_clipped_sum_by_no_more_than_a_row_may(case: Case) -> None:
    columns = case.d + (case.options["intercept"] > 0.0)
    n_weights = case.options["n_scores"] * columns
    moved, size = case.moved(lambda records: clipped_sum(records, **case.options))
    bound = distance_bound(case.options["clip"], n_weights, case.options["grid"])
    assert moved <= bound + 2.0**-50 * size * math.sqrt(n_weights)


@pytest.mark.proof("persons", "Sums of gradients")
@given(case=cases().filter(lambda case: case.starts[0] > 0))
@tries(100)
def test_a_person_of_one_row_moves_it_by_no_more_whatever_it_weighs(case: Case) -> None:
    whole, part = (clipped_sum(case.records(0, fewer=fewer), **case.options) for fewer in range(2))
    n_weights = case.options["n_scores"] * (case.d + (case.options["intercept"] > 0.0))
    bound = distance_bound(case.options["clip"], n_weights, case.options["grid"])
    size = float(np.abs(whole).max())
    assert float(np.linalg.norm(whole - part)) <= bound + 2.0**-50 * size * math.sqrt(n_weights)


@pytest.mark.proof("persons", "Sums of rows")
@given(case=cases())
@tries(100)
def test_a_person_moves_the_sum_of_rows_by_no_more_than_one(case: Case) -> None:
    moved, _ = case.moved(lambda records: records.sums(1), centred=False)
    assert moved <= 1.0


@pytest.mark.proof("persons", "Second moments")
@given(case=cases())
@tries(100)
def test_a_person_moves_second_moments_by_no_more_than_one(case: Case) -> None:
    moved, _ = case.moved(lambda records: records.gram(1))
    assert moved <= 1.0


@pytest.mark.proof("persons", "Second moments")
@given(sizes=st.tuples(st.integers(2, 50), st.integers(2, 50)), seed=st.integers(0, 2**32 - 1))
@tries(100)
def test_a_person_exchanged_moves_second_moments_by_no_more_than_root_two(
    sizes: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    grams = []
    for m in sizes:
        X = rng.normal(size=(m, 4)) * rng.random(4) ** 4
        records = records_of(X, np.zeros(m), unit=True)
        records.own(np.array([0, m]), NO_WEIGHTS)
        grams.append(records.gram(1))
    assert float(np.linalg.norm(grams[0] - grams[1])) <= math.sqrt(2.0) * (1.0 + 1e-10)


@pytest.mark.proof("persons", "Sums of gradients")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("m", [2, 50, 200])
def test_rows_that_agree_reach_the_bound_and_no_more(form: str, m: int) -> None:
    """A clip of single rows would let m of them through; an average of them would not be near."""
    X = np.full((m, 6), 6.0**-0.5)
    labels = np.ones(m, dtype=np.int64)
    none = records_of(FORMS[form](X[:0].reshape(0, 6)), labels[:0])
    for clip, grid in ((0.05, None), (0.6, 2.0**-26)):
        options = STEEP | {"clip": clip, "grid": grid}
        records = records_of(FORMS[form](X), labels)
        records.own(np.array([0, m]), NO_WEIGHTS)
        moved = float(
            np.linalg.norm(clipped_sum(records, **options) - clipped_sum(none, **options))
        )
        assert 0.999 * clip <= moved <= distance_bound(clip, 6, grid)


@pytest.mark.proof("persons", "Sums of gradients")
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_sparse_persons_add_what_dense_ones_do(centred: bool, precision: str) -> None:
    """Few rows are shortened by their inner products, many or short ones by their sum."""
    rng = np.random.default_rng(3)
    clip, options = 0.3, kernel("softmax_margin", 4, 0.5) | {"intercept": 0.25}
    for m, density in ((2, 0.5), (9, 0.5), (50, 1.0), (64, 0.1), (65, 0.5), (300, 0.5)):
        X = rng.normal(size=(3 * m, 9)) * (rng.random((3 * m, 9)) < density)
        y, weights = rng.integers(0, 4, 3 * m), rng.random(3 * m)
        found = []
        for form in FORMS.values():
            records = records_of(form(X), y, 4, unit=True)
            records.own(m * np.arange(4), weights)
            if centred:
                records.centre(POINT, 1)
            found.append(clipped_sum(records, **options, clip=clip, precision=precision))
        assert float(np.linalg.norm(found[0])) > clip
        assert float(np.linalg.norm(found[0] - found[1])) < 0.002 * clip, m


@pytest.mark.proof("persons", "Sums of gradients")
@pytest.mark.parametrize("form", FORMS)
def test_rows_that_differ_leave_more_than_their_average(form: str) -> None:
    """Sixteen orthogonal rows, each clipped: their sum is shortened by 4, not by 16."""
    records = records_of(FORMS[form](np.eye(16)), np.ones(16))
    records.own(np.array([0, 16]), NO_WEIGHTS)
    total = clipped_sum(records, **(STEEP | {"clip": 0.5}))
    np.testing.assert_allclose(np.abs(total), 0.5 / 4.0, rtol=1e-5)


@pytest.mark.proof("persons", "Sums of gradients")
@pytest.mark.parametrize("form", FORMS)
def test_weights_come_before_the_clip_of_the_person(form: str) -> None:
    """A weight never makes a contribution longer than the clip."""
    X, labels = np.eye(3), np.ones(3, dtype=np.int64)
    for own, weights, expected in (
        ([], [0.25, 1.0, 0.0], [0.125, 0.5, 0.0]),
        ([0, 3], [0.5, 0.5, 0.0], [0.25, 0.25, 0.0]),
        ([0, 3], [1.0, 1.0, 1.0], [0.5 / 3**0.5] * 3),
    ):
        records = records_of(FORMS[form](X), labels)
        records.own(np.array(own, dtype=np.int64), np.array(weights))
        total = clipped_sum(records, **(STEEP | {"clip": 0.5}))
        np.testing.assert_allclose(np.abs(total[0]), expected, rtol=1e-5)


SOLVED: dict[str, dict[str, Any]] = {
    "crammer_singer": {"n_classes": 3},
    "softmax_margin": {"loss": "softmax_margin", "n_scores": 3, "smoothing": 0.4, "margin": 1.0},
    "huber": {"loss": "huber", "n_scores": 3, "smoothing": 0.5, "margin": 1.0},
    "margin_distance": {
        "loss": "margin_distance",
        "n_scores": 3,
        "smoothing": 0.5,
        "margin": 1.0,
    },
}
LIPSCHITZ = {"crammer_singer": 2**0.5, "softmax_margin": 2**0.5, "huber": 3**0.5}
RADIUS = 1e-5


def minimiser(loss: str, X: Any, y: Array, C: float, weights: Array | None = None) -> Array:
    """Within RADIUS of it, certified."""
    bounds = {"data_norm": 1.0, "intercept_scaling": 0.2}
    options = bounds | {"max_iter": None, "shuffle_seed": 1, "n_threads": 1, "low_memory": False}
    if loss == "crammer_singer":
        own = options | {"C": C, "radius": RADIUS}
        found, _ = _core.solve_crammer_singer(X, y, weights, **SOLVED[loss], **own)
    else:
        own = options | {"regularization": 1 / C, "gradient_tol": RADIUS / C, "linear": None}
        found, _ = _core.solve_smooth(X, y, weights, **SOLVED[loss], **own)
    assert found is not None
    return np.asarray(found)


def csr(X: Array) -> Any:
    """As the solvers take it."""
    found = sparse.csr_matrix(X)
    return found.data, found.indices, found.indptr, found.shape[1]


@pytest.mark.proof("persons", "Output perturbation")
@pytest.mark.parametrize("loss", SOLVED)
@pytest.mark.parametrize("dense", [True, False])
def test_a_weight_of_three_quarters_is_three_rows_of_a_quarter(loss: str, dense: bool) -> None:
    """Two certified minimisers of one objective, once with factors and once with rows repeated."""
    rng = np.random.default_rng(3)
    for n, C in ((40, 3.0), (700, 0.5)):
        X = rng.normal(size=(n, 5)) * rng.random((n, 1)) * 0.4
        X[rng.random(X.shape) < 0.3] = 0.0
        y = (X[:, :3] + 0.1 * rng.normal(size=(n, 3))).argmax(axis=1)
        times = rng.integers(0, 5, n)
        form = np.ascontiguousarray if dense else csr
        factors = minimiser(loss, form(X), y, C, times / 4)
        repeated = minimiser(loss, form(np.repeat(X, times, axis=0)), np.repeat(y, times), C / 4)
        assert np.linalg.norm(factors - repeated) <= 2.0 * RADIUS
        assert np.linalg.norm(factors - minimiser(loss, form(X), y, C)) > 100.0 * RADIUS


@pytest.mark.proof("persons", "Output perturbation")
@given(
    loss=st.sampled_from(sorted(SOLVED)),
    kind=st.sampled_from(["equal", "cancelling", "long", "any"]),
    m=st.integers(1, 50),
    C=st.sampled_from([0.01, 1.0]),
    counts=st.none() | st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
@tries(100)
def test_a_person_moves_a_minimiser_by_no_more_than_a_row_may(
    loss: str, kind: str, m: int, C: float, counts: list[float] | None, seed: int
) -> None:
    """Also where classes have weights by any counts that were released before."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(12, 4)), rng.integers(0, 3, 12)
    own, labels = person_rows(kind, m, 4, 3, rng)
    model = OutputPerturbationSVC(classes=range(3)).checked()
    ids = np.concatenate([np.arange(12), np.full(m, 99)])
    released: list[Array] = []
    if counts is not None:
        stub: Any = SimpleNamespace(
            class_counts=lambda: np.array(counts), n_threads=1, balance=released.append
        )
        ClassCounts(mu=1.0, n_classes=3).balance(stub, _core.NoiseSource(seed))
    found = []
    for n in (12, 12 + m):
        rows = ArrayRows(
            model,
            np.concatenate([X, own])[:n],
            np.concatenate([y, labels])[:n],
            classes=model.classes,
            groups=ids[:n],
        )
        rows.read()
        for factors in released:
            rows.balance(factors)
        found.append(minimiser(loss, rows.X, rows.codes, C, rows.loss_weights))
    bound = C * LIPSCHITZ.get(loss, 1.0) * math.hypot(1.0, 0.2)
    assert np.linalg.norm(found[0] - found[1]) <= bound + 2.0 * RADIUS


@pytest.mark.proof("persons", "Output perturbation")
@pytest.mark.parametrize("m", [1, 7, 50])
def test_equal_rows_of_a_person_reach_the_bound_and_without_factors_pass_it(m: int) -> None:
    nobody, row = np.zeros((1, 4)), np.eye(4)[:1]
    X, y = np.concatenate([nobody, np.tile(row, (m, 1))]), np.array([0] + [1] * m)
    options = {"loss": "margin_distance", "C": 0.01}
    base = minimiser(X=nobody, y=y[:1], **options)
    moved = minimiser(X=X, y=y, weights=np.array([1.0] + [1.0 / m] * m), **options) - base
    bound = 0.01 * math.hypot(1.0, 0.2)
    assert 0.97 * bound <= np.linalg.norm(moved) <= bound + 2.0 * RADIUS
    unweighed = minimiser(X=X, y=y, **options) - base
    assert m == 1 or np.linalg.norm(unweighed) > 2.0 * bound


def iterate(
    model: Any, X: Array, y: Array, ids: Array | None, sample_weight: Array | None = None
) -> tuple[Any, Array]:
    """Plan and weights of projected SGD, always with the same orders."""
    how = {"groups": ids, "sample_weight": sample_weight}
    rows = ArrayRows(model, X, y, classes=model.classes, **how)
    rows.read()
    plan = model.plan(rows.facts)
    owned = {"weights": rows.loss_weights, "owners": rows.owners}
    return plan, plan.solution(rows.X, rows.codes, _core.NoiseSource(5), 1, **owned)


@pytest.mark.proof("persons", "Projected SGD")
@given(
    kind=st.sampled_from(["equal", "cancelling", "long", "any"]),
    sizes=st.tuples(st.integers(2, 50), st.integers(2, 50)),
    batch=st.sampled_from([1, 3, 50]),
    average=st.sampled_from(["last", "uniform", "weighted"]),
    seed=st.integers(0, 2**32 - 1),
)
@tries(100)
def test_a_person_moves_an_iterate_by_no_more_than_a_row_may(
    kind: str, sizes: tuple[int, int], batch: int, average: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(24, 4)), rng.integers(0, 3, 24)
    options: dict[str, Any] = {"solver": "psgd", "loss": "softmax_margin", "batch_size": batch}
    options |= {"adjacency": "replace_one", "average": average, "C": 1.0}
    model = OutputPerturbationSVC(classes=range(3), **options).checked()
    found = []
    for m in sizes:
        own, labels = person_rows(kind, m, 4, 3, rng)
        ids = np.concatenate([np.arange(24) // 2 * 2, np.full(m, 99)])
        both = np.concatenate([X, own]), np.concatenate([y, labels])
        found.append(iterate(model, *both, ids))
    plan = found[0][0]
    moved = float(np.linalg.norm(found[0][1] - found[1][1]))
    assert plan.sgd.n_samples == 13
    assert moved <= plan.exact_sensitivity + 2.0 * plan.radius


@pytest.mark.proof("persons", "Projected SGD")
@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("at", [0, 60, 119])
def test_a_person_of_more_rows_does_not_move_the_turns_of_others(others: int, at: int) -> None:
    """One pass over sorted labels forgets what came first: only the same turns are close."""
    options: dict[str, Any] = {"solver": "psgd", "loss": "logistic", "adjacency": "replace_one"}
    model = OutputPerturbationSVC(classes=[0, 1], C=0.1, n_epochs=1, **options).checked()
    n, found = 120, []
    for m in (1, 2, 50):
        sizes = np.where(np.arange(n) == at, m, others)
        y, ids = np.repeat(np.arange(n) // (n // 2), sizes), np.repeat(np.arange(n), sizes)
        found.append(iterate(model, (ids != at)[:, None] * np.ones((ids.size, 1)), y, ids))
    plan, first = found[0]
    for _, other in found[1:]:
        moved = float(np.linalg.norm(first - other))
        assert moved <= plan.exact_sensitivity + 2.0 * plan.radius


@pytest.mark.proof("persons", "Projected SGD")
@pytest.mark.parametrize("others", [1, 2])
def test_a_person_whose_first_row_weighs_nothing_does_not_move_the_turns_of_others(
    others: int,
) -> None:
    """The last of its rows comes after all others: by that one, everybody would move up."""
    options: dict[str, Any] = {"solver": "psgd", "loss": "logistic", "adjacency": "replace_one"}
    model = OutputPerturbationSVC(classes=[0, 1], C=0.1, n_epochs=1, **options).checked()
    ids = np.concatenate([[0], np.repeat(np.arange(1, 400), others), [0]])
    y, X = ids % 2, (ids > 0)[:, None] * np.ones((ids.size, 1))
    found = []
    for w in (1.0, 0.0):
        weights = np.concatenate([[w], np.ones(ids.size - 1)])
        found.append(iterate(model, X, y, ids, weights))
    plan, moved = found[0][0], float(np.linalg.norm(found[0][1] - found[1][1]))
    assert moved <= plan.exact_sensitivity + 2.0 * plan.radius


@pytest.mark.proof("persons", "Projected SGD")
@pytest.mark.parametrize("m", [0, 1, 2])
@pytest.mark.parametrize("at", [0, 60, 119])
def test_a_person_of_weight_zero_does_not_move_the_turns_of_others(m: int, at: int) -> None:
    """It takes the place of the person whom it replaces; m rows each, or rows without groups."""
    options: dict[str, Any] = {"solver": "psgd", "loss": "logistic", "adjacency": "replace_one"}
    model = OutputPerturbationSVC(classes=[0, 1], C=0.1, n_epochs=1, **options).checked()
    n, ids = 120, np.repeat(np.arange(120), max(1, m))
    y, X = np.repeat(np.arange(n) // (n // 2), max(1, m)), np.ones((ids.size, 1))
    X[ids == at] = 0.0
    found: list[Any] = []
    for weight in (1.0, 0.0):
        weights = np.where(ids == at, weight, 1.0)
        found.append(iterate(model, X, y, ids if m else None, weights))
    (plan, first), (other, second) = found
    assert plan.sgd.n_samples == other.sgd.n_samples == n
    assert float(np.linalg.norm(first - second)) <= plan.exact_sensitivity + 2.0 * plan.radius


@pytest.mark.proof("persons", "Projected SGD")
@pytest.mark.parametrize("m", [1, 50, 1500])
def test_equal_rows_of_a_person_reach_the_bound_of_an_iterate(m: int) -> None:
    options: dict[str, Any] = {"solver": "psgd", "loss": "huber", "adjacency": "replace_one"}
    model = OutputPerturbationSVC(classes=[0, 1], C=1e-4, n_epochs=40, **options).checked()
    found = []
    for label in (0, 1):
        X = np.concatenate([np.zeros((6, 2)), np.tile([1.0, 0.0], (m, 1))])
        y, ids = np.array([0, 1] * 3 + [label] * m), np.array([0, 0, 1, 1, 2, 2] + [9] * m)
        found.append(iterate(model, X, y, ids))
    plan = found[0][0]
    moved = float(np.linalg.norm(found[0][1] - found[1][1]))
    # Beyond 1024 rows a person has less than a whole row.
    share = min(1.0, 1024 / m)
    assert 0.85 * share * plan.exact_sensitivity <= moved <= plan.exact_sensitivity


@pytest.mark.proof("persons", "Ellipsoids")
@given(
    kind=st.sampled_from(["equal", "cancelling", "long", "any"]),
    m=st.integers(1, 50),
    step=st.sampled_from([0, 1]),
    seed=st.integers(0, 2**32 - 1),
)
@tries(100)
def test_a_person_moves_the_cells_of_anchors_by_no_more_than_a_row_may(
    kind: str, m: int, step: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    own, labels = person_rows(kind, m, 4, 3, rng)
    rows, weights = unit_rows(own, 1.0), np.full(m, 1.0 / m) * (1.0 - 2.0**-52)
    how: dict[str, Any] = {"n_classes": 3, "n_ellipsoids": 2, "n_features": 4, "mu": 1.0}
    plan = NoisyAnchors(adjacency="add_remove", noise_grid="exact", epsilon=None, **how)
    points = rng.normal(size=(6, 4)) if step else None
    total = plan._total(rows, labels.astype(np.int64), points, weights)
    units = [Fraction(x) for x in total.ravel()]
    assert sum(x * x for x in units) <= Fraction(5, 4)
    assert kind == "cancelling" or np.linalg.norm(total) > 0.1
    whole = plan._total(rows, labels.astype(np.int64), points, None)
    assert m < 8 or kind == "cancelling" or np.linalg.norm(whole) > np.sqrt(1.25)


@pytest.mark.proof("persons", "Moments of columns")
@given(
    sizes=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    kind=st.sampled_from(["ends", "middle", "any"]),
    form=st.sampled_from(sorted(FORMS)),
    weight=st.sampled_from([None, 2.0**-15, 0.02, 0.5, 1.0 - 2.0**-13, 1.0, "any"]),
    with_std=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@tries(100)
def test_persons_move_moments_of_columns_as_rows_do(
    sizes: tuple[int, int], kind: str, form: str, weight: Any, with_std: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    exact = []
    for adjacency in ("add_remove", "replace_one"):
        options = {"adjacency": adjacency, "with_std": with_std}
        total = NoisyColumnMoments(n_features=3, noise_grid="exact", mu=1.0, **options)
        for m in sizes:
            X = rng.uniform(-1.0, 1.0, size=(m, 3))
            X = {"ends": np.sign(X), "middle": X * 1e-6, "any": X}[kind]
            own: dict[str, Any] = {"groups": np.zeros(m, dtype=int)}
            if weight is not None:
                own["sample_weight"] = 1.0 - rng.random(m) if weight == "any" else [weight] * m
            exact.append(
                what_gets_noise(clone(UNIT_BOX).set_params(**options), FORMS[form](X), **own)
            )
            units = exact[-1] * 2.0**23
            assert np.array_equal(units, np.rint(units))
            assert float(np.linalg.norm(exact[-1])) <= total.sum.contribution
        if adjacency == "replace_one":
            moved = float(np.linalg.norm(exact[-1] - exact[-2]))
            assert moved <= total.sum.sensitivity


UNIT_BOX = PrivateStandardScaler(bounds=(-1.0, 1.0))
WEIGHED: dict[str, Any] = {
    "centre": PrivateCenter(),
    "whitener": PrivateWhitener(),
    "pca": PrivatePCA(),
    "scaler": UNIT_BOX,
    "means": PrivateStandardScaler(bounds=(-1.0, 1.0), with_std=False),
}


def what_gets_noise(model: Any, X: Any, **own: Any) -> Array:
    """The exact sum that a transformer adds noise to."""
    checked = model.checked()
    rows = ArrayRows(checked, X, labelled=False, **own)
    plan = checked.plan(checked.owned(rows.facts))
    rows.read()
    if isinstance(plan.total, NoisyColumnMoments):
        return plan.total.exact(*plan.total.summed(rows, plan.public))
    records = rows.records(plan.public)
    if isinstance(plan.total, NoisyMean):
        return plan.total.exact(records.sums(1), rows.n_rows)
    return np.asarray(records.gram(1))


@pytest.mark.sampled
@pytest.mark.proof("persons", "Sums of rows")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WEIGHED)
@given(
    sizes=st.lists(st.integers(1, 50), min_size=3, max_size=4),
    kind=st.sampled_from(["equal", "cancelling", "long", "any"]),
    grouped=st.booleans(),
    largest=st.sampled_from([0.3, 1.0, 2.0, 7.0]),
    seed=st.integers(0, 2**32 - 1),
)
@tries(100)
def test_weights_move_what_a_transformer_releases_by_no_more_than_its_contribution(
    name: str, form: str, sizes: list[int], kind: str, grouped: bool, largest: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = np.concatenate([person_rows(kind, m, 4, 2, rng)[0] for m in sizes])
    ids = np.repeat(np.arange(len(sizes)), sizes) if grouped else np.arange(len(X))
    # Among them none, the largest, and ones beyond it.
    weights = largest * rng.choice([0.0, 0.3, 0.999, 1.0, 1.0 + 1e-15, 3.0], len(X))
    # Some are there whoever leaves, so that no sum is of nobody.
    weights[ids == 1] = largest / 3.0
    for adjacency in ("add_remove", "replace_one"):
        model = clone(WEIGHED[name]).set_params(adjacency=adjacency, max_weight=largest)
        exact = {}
        for left in (None, 0, ids[-1]):
            kept = ids != left
            own = {"groups": ids[kept]} if grouped else {}
            own["sample_weight"] = weights[kept]
            exact[left] = what_gets_noise(model, FORMS[form](X[kept]), **own)
        plan = model.checked().plan(Facts(n_features=4))
        if adjacency == "add_remove":
            pairs = [(exact[None], exact[0]), (exact[None], exact[ids[-1]])]
        else:
            # One exchanged for another.
            pairs = [(exact[0], exact[ids[-1]])]
        for one, other in pairs:
            assert float(np.linalg.norm(one - other)) <= plan.total.sum.sensitivity


@pytest.mark.proof("persons", "Sums of rows")
@pytest.mark.parametrize("name", WEIGHED)
@pytest.mark.parametrize("grouped", [False, True])
def test_a_row_of_the_largest_weight_reaches_the_contribution(name: str, grouped: bool) -> None:
    X = np.array([[0.0, 0.5], [0.0, 0.0] if name == "scaler" else [0.6, 0.8]])
    if name == "means":
        X[1] = 1.0
    for largest in (0.3, 2.0, 7.0):
        model = clone(WEIGHED[name]).set_params(max_weight=largest)
        own: list[Any] = [{"sample_weight": largest * np.ones(m)} for m in (1, 2)]
        if grouped:
            own = [one | {"groups": np.arange(m)} for m, one in enumerate(own, 1)]
        one, two = (what_gets_noise(model, X[:m], **own[m - 1]) for m in (1, 2))
        claimed = model.checked().plan(Facts(n_features=2)).total.sum.sensitivity
        assert float(np.linalg.norm(two - one)) >= 0.999 * claimed


@pytest.mark.proof("persons", "Sums of rows")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WEIGHED)
def test_weight_two_is_two_rows_for_transformers(name: str, form: str) -> None:
    X = np.round(np.random.default_rng(3).uniform(-0.3, 0.3, (7, 4)) * 64) / 64
    model = clone(WEIGHED[name]).set_params(max_weight=2.0)
    twice = [0, 0, 1, 1, 2, 3, 4, 5, 6]
    weights = np.array([2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    once = what_gets_noise(model, FORMS[form](X), sample_weight=weights)
    repeated = what_gets_noise(model, FORMS[form](X[twice]), sample_weight=np.ones(9))
    unweighted = what_gets_noise(model, FORMS[form](X[twice]))
    assert np.array_equal(repeated, unweighted)
    assert np.abs(once).max() > 0.1
    if name in ("centre", "scaler", "means"):
        assert np.array_equal(once, repeated)
    else:
        # Rows are multiplied by the root of their weight and truncated to multiples of 2^-20.
        np.testing.assert_allclose(once, repeated, rtol=0.0, atol=9 * 2.0**-20)


@pytest.mark.proof("persons", "Sums of gradients")
@pytest.mark.parametrize("form", FORMS)
def test_batches_draw_persons(form: str) -> None:
    """In every step all rows of a person are there, or none is, as often as the rate says."""
    m, n = 5, 400
    X = np.tile(np.eye(2), (n * m, 1))[: n * m]
    starts = np.arange(0, n * m + 1, m)
    records = records_of(FORMS[form](X[:, :1] + 1.0), np.ones(n * m))
    records.own(starts, NO_WEIGHTS)
    drawn = []
    for seed in range(20):
        options = STEEP | {"clip": 0.25, "sampling_rate": 0.3, "row_scale": 1.0}
        moved = -run(records, 1, seed=seed, **options).weights().item() / 0.25
        assert abs(moved - round(moved)) < 0.01
        drawn.append(abs(moved))
    assert abs(np.mean(drawn) - 0.3 * n) < 5.0 * math.sqrt(0.21 * n / 20)
