"""The law of what a search by random stopping releases, against the formula of its proof page.

Training is a coin, so everything is known: which candidate, which model and which noisy score come
out, for every law of the number of runs. A number of runs that is fixed, off by one, or drawn with
another parameter gives another law.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from dpsvm_fast.certificates import PureEvent, RandomStoppingEvent
from dpsvm_fast.model_selection import DeclaredTrainer, PrivateGridSearch
from dpsvm_fast.model_selection import search as settings
from dpsvm_fast.model_selection.plan import Budgets, stopping_budgets
from oracles.selection_laws import Stopping

pytestmark = pytest.mark.statistical

# Chance of a false alarm of one test: a quantile of the chi-square statistic.
ALPHA = 1e-6
SEARCHES = 1000
MEAN = 4.0
# Chances out of 1000 that the two candidates train the model that is right more often.
CHANCES = (300, 800)
LABELS = np.array([0, 1, 1])
# Noisy scores are told apart from here to there.
SCORES = np.arange(-12, 16)


class Always:
    """A model that predicts one label."""

    def __init__(self, label: int) -> None:
        self.label = label

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.full(len(X), self.label)


def toss(X: Any, y: Any, chance: int) -> Always:
    """Training: a coin."""
    return Always(int(secrets.randbelow(1000) < chance))


def search(stopping: str) -> PrivateGridSearch:
    """One search, fitted."""
    trainer = DeclaredTrainer(toss, (PureEvent(1.0, "add_remove"),), {"chance": CHANCES[0]})
    return PrivateGridSearch(
        trainer,
        {"chance": list(CHANCES)},
        epsilon=6.0,
        delta=0.0,
        strategy="random_stopping",
        scoring="balanced_errors",
        class_weight={0: 1, 1: 1},
        refit_fraction=0.0,
        score_fraction=0.3,
        stopping=stopping,
        mean_runs=MEAN,
    ).fit(np.zeros((3, 1)), LABELS)


@contextmanager
def planned_once() -> Iterator[None]:
    """Budgets follow from public settings, here alike: those of the first search serve all."""
    plans: list[Budgets] = []

    def planned(*given: Any, **named: Any) -> Budgets:
        if not plans:
            plans.append(stopping_budgets(*given, **named))
        return plans[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "stopping_budgets", planned)
        yield
    assert plans


def observed(stopping: str) -> tuple[Counter[tuple[int, int, int]], float]:
    """Released candidates, models and scores, and the rate of the noise."""
    counts: Counter[tuple[int, int, int]] = Counter()
    rate = 0.0
    for _ in range(SEARCHES):
        done = search(stopping)
        rate = done.privacy_.selection.rate
        event = done.privacy_.events[0]
        assert isinstance(event, RandomStoppingEvent)
        assert event.mean == MEAN
        if done.best_index_ < 0:
            counts[-1, 0, 0] += 1
            continue
        score = int(np.clip(done.best_score_, SCORES[0], SCORES[-1]))
        counts[done.best_index_, done.best_estimator_.model_.label, score] += 1
    return counts, rate


def law_of(
    stopping: Stopping | None, rate: float, fixed: int = 1
) -> dict[tuple[int, int, int], float]:
    """Law of what is released; without a law of K, of the best of a fixed number of runs."""
    errors = {1: int((LABELS != 1).sum()), 0: int((LABELS != 0).sum())}
    k = np.arange(-400, 401)
    noise = np.exp(-rate * np.abs(k))
    noise /= noise.sum()
    run: dict[tuple[int, int], NDArray[np.float64]] = {}
    for index, chance in enumerate(CHANCES):
        for label in (0, 1):
            share = chance / 1000 if label else 1 - chance / 1000
            run[index, label] = 0.5 * share * np.roll(noise, errors[label])
    total = np.sum(list(run.values()), axis=0)
    # From the worst score to the best one.
    order = total[::-1]
    if stopping is None:
        below = np.append(0.0, np.cumsum(order))
        best = np.diff(np.minimum(below, 1.0) ** fixed)
        law = {}
    else:
        best = stopping.best_law(order / order.sum())[: order.size]
        none = math.exp(-stopping.parameter) if stopping.kind == "poisson" else 0.0
        law = {(-1, 0, 0): none} if none else {}
    best = best[::-1]
    for (index, label), masses in run.items():
        joint = best * masses / total
        for score in SCORES:
            inside = k == score
            if score == SCORES[0]:
                inside = k <= score
            if score == SCORES[-1]:
                inside = k >= score
            law[index, label, int(score)] = float(joint[inside].sum())
    return law


def statistic(
    counts: Counter[tuple[int, int, int]], law: dict[tuple[int, int, int], float]
) -> tuple[float, float]:
    """Chi-square of cells with at least 5 expected, the others in one, and its quantile."""
    large = {cell for cell, chance in law.items() if chance * SEARCHES >= 5.0}
    rest = max(SEARCHES * (1.0 - sum(law[cell] for cell in large)), 1e-9)
    outside = SEARCHES - sum(counts[cell] for cell in large)
    total = (outside - rest) ** 2 / rest
    for cell in large:
        mean = SEARCHES * law[cell]
        total += (counts[cell] - mean) ** 2 / mean
    return total, float(chi2.isf(ALPHA, len(large)))


@pytest.mark.proof("private_selection", "The search as a program")
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["geometric", "logarithmic", "poisson"])
def test_the_best_of_a_random_number_of_runs_has_the_law_of_the_page(kind: str) -> None:
    with planned_once():
        counts, rate = observed(kind)
    event = RandomStoppingEvent((PureEvent(1.0, "add_remove"),), kind, MEAN, "add_remove")
    stopping = Stopping(kind, MEAN if kind == "poisson" else event.gamma)
    assert stopping.mean == pytest.approx(MEAN)
    found, limit = statistic(counts, law_of(stopping, rate))
    assert found < limit
    # Negative controls: one run, twelve of them, and another parameter.
    other = Stopping(kind, 2 * MEAN if kind == "poisson" else event.gamma / 10)
    for wrong in (law_of(None, rate), law_of(None, rate, 12), law_of(other, rate)):
        found, limit = statistic(counts, wrong)
        assert found > limit
