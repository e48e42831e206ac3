"""Laws behind the search: parts, scores, choices, numbers of runs; and that budgets are not beaten.

Statistical tests have a false-alarm rate of 1e-6 each, stated as ALPHA, and a negative control.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import OutputPerturbationSVC, _core, noise
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.certificates import GaussianEvent, ParallelEvent, PureEvent, RandomStoppingEvent
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.model_selection import ConstantClassifier, DeclaredTrainer, PrivateGridSearch
from dpsvm_fast.model_selection.plan import Budgets, part_sizes, partition_budgets
from dpsvm_fast.model_selection.strategies import (
    Part,
    Scoring,
    assigned_parts,
    noise_sources,
    number_of_runs,
    part_weights,
)
from dpsvm_fast.noise import few_bits_down
from oracles.counted_draws import fits

pytestmark = pytest.mark.proof("private_selection", "The search as a program")

ALPHA = 1e-6


@cache
def budgets_of(adjacency: str = "add_remove", n_candidates: int = 3) -> Budgets:
    """Budgets of so many candidates."""
    svc = OutputPerturbationSVC(classes=[0, 1], adjacency=adjacency)
    search = PrivateGridSearch(
        svc, {"C": [0.1] * n_candidates}, adjacency=adjacency, refit_fraction=0.0
    )
    return partition_budgets(search.checked(), Facts())


def parts_of(y: Any, adjacency: str, n_candidates: int = 3) -> list[NDArray[np.intp]]:
    """Row numbers of the parts of a search."""
    sources = noise_sources(_core.NoiseSource(None), seeded=False)
    return assigned_parts(len(y), n_candidates, 0.25, sources, counted=adjacency == "replace_one")


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_every_record_is_in_exactly_one_part(adjacency: str) -> None:
    parts = parts_of(np.zeros(1000), adjacency)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    assert len(parts) == 4


def test_sizes_are_public_where_the_number_of_records_is() -> None:
    sizes = part_sizes(1003, 3, 0.25)
    assert sum(sizes) == 1003
    assert sizes[0] == 251
    assert max(sizes[1:]) - min(sizes[1:]) <= 1
    found = parts_of(np.zeros(1003), "replace_one")
    assert [part.size for part in found] == sizes


def test_records_draw_their_parts_with_the_stated_probabilities() -> None:
    weights = part_weights(3, 0.25)
    assert [Fraction(int(w), int(weights.sum())) for w in weights] == [Fraction(1, 4)] * 4
    n = 40_000
    sizes = np.array([part.size for part in parts_of(np.zeros(n), "add_remove")])
    assert stats.chisquare(sizes, n * weights / weights.sum()).pvalue > ALPHA
    # Negative control: sizes that every record alike would not give.
    assert stats.chisquare([n * 0.27, n * 0.25, n * 0.25, n * 0.23]).pvalue < ALPHA


def test_labels_and_order_have_no_say_in_the_parts() -> None:
    """Sorted labels: a stratified split would have the same number of ones in every part."""
    n, ones = 400, []
    y = np.repeat([0, 1], n // 2)
    for adjacency in ("add_remove", "replace_one"):
        counts = [int(y[parts_of(y, adjacency)[0]].sum()) for _ in range(200)]
        ones.append(counts)
        expected, variance = n / 8, n / 8 * (0.75 if adjacency == "add_remove" else 0.75 * 0.5)
        z = (np.mean(counts) - expected) / math.sqrt(variance / len(counts))
        assert abs(z) < stats.norm.isf(ALPHA / 2)
        spread = np.var(counts, ddof=1) * (len(counts) - 1) / variance
        assert stats.chi2.sf(spread, len(counts) - 1) > ALPHA
        assert stats.chi2.cdf(spread, len(counts) - 1) > ALPHA
    # Negative control: no spread at all is what stratification gives.
    assert stats.chi2.cdf(0.0, len(ones[0]) - 1) < ALPHA


def test_two_searches_cut_differently() -> None:
    for adjacency in ("add_remove", "replace_one"):
        first, second = (parts_of(np.zeros(300), adjacency)[0] for _ in range(2))
        assert not np.array_equal(first, second)


@given(
    weights=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=5),
    labels=st.lists(st.integers(0, 100), min_size=1, max_size=30),
    predicted=st.lists(st.integers(0, 100), min_size=30, max_size=30),
    where=st.integers(0, 29),
)
def test_one_record_changes_scores_by_the_sensitivity_at_most(
    weights: list[float], labels: list[int], predicted: list[int], where: int
) -> None:
    k = len(weights)
    counted = Scoring("balanced_errors", dict(enumerate(weights)))
    y = np.array(labels) % k
    guesses = np.array(predicted)[: len(y)] % k
    kept = np.arange(len(y)) != where % len(y)
    whole, less = (
        counted.score(guesses, Part(None, y)),
        counted.score(guesses[kept], Part(None, y[kept])),
    )
    # A record more adds to the score of every candidate or leaves it: all in one direction.
    assert 0 <= whole - less <= counted.sensitivity
    other = y.copy()
    other[where % len(y)] = (other[where % len(y)] + 1) % k
    assert abs(counted.score(guesses, Part(None, other)) - whole) <= counted.sensitivity


def test_weights_are_whole_numbers_in_the_ratio_asked_for() -> None:
    counted = Scoring("balanced_errors", {"b": 1.0, "a": 4.0})
    assert counted.classes is not None
    assert counted.weights is not None
    assert dict(zip(counted.classes, counted.weights, strict=True)) == {"a": 256, "b": 64}
    assert counted.sensitivity == 256
    alike = Scoring("balanced_errors", {0: 3.0, 1: 3.0})
    assert alike.sensitivity == 1
    assert Scoring("errors", None).score([1, 0, 1], Part(None, np.array([1, 1, 1]))) == 1


def exact_choice(mechanism: str, scores: list[int], rate: float) -> list[float]:
    """Probabilities of each index, by enumeration."""
    accept = [math.exp(-rate * (z - min(scores))) for z in scores]
    if mechanism == "exponential":
        return [a / sum(accept) for a in accept]
    found = [0.0] * len(scores)
    # The winner is uniform among those whose coins succeed.
    for coins in product([0, 1], repeat=len(scores)):
        p = math.prod(a if c else 1.0 - a for a, c in zip(accept, coins, strict=True))
        for i, coin in enumerate(coins):
            found[i] += p * coin / max(1, sum(coins))
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
@pytest.mark.parametrize("monotonic", [True, False])
def test_choices_have_the_stated_law(mechanism: str, monotonic: bool) -> None:
    function = {
        "exponential": noise.exponential_mechanism,
        "permute_and_flip": noise.permute_and_flip,
    }[mechanism]
    scores, draws, epsilon = [5, 3, 3, 9], 20_000, 0.5
    counts = Counter(function(scores, epsilon, 1, monotonic=monotonic) for _ in range(draws))
    observed = [counts[i] for i in range(4)]
    law = np.array(exact_choice(mechanism, scores, epsilon if monotonic else epsilon / 2))
    assert stats.chisquare(observed, draws * law).pvalue > ALPHA
    # Negative control: the other rate is another law.
    wrong = np.array(exact_choice(mechanism, scores, epsilon / 2 if monotonic else epsilon))
    assert stats.chisquare(observed, draws * wrong).pvalue < ALPHA


@pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_no_neighbour_of_tiny_scores_beats_the_choice(mechanism: str, adjacency: str) -> None:
    """Both neighbours' laws by enumeration, for all ways in which one record can change scores."""
    epsilon = 0.8
    rate = few_bits_down(Fraction(epsilon) / (1 if adjacency == "add_remove" else 2))
    changes = (0, 1) if adjacency == "add_remove" else (-1, 0, 1)
    worst = 0.0
    for scores in product(range(3), repeat=3):
        law = exact_choice(mechanism, list(scores), rate)
        for change in product(changes, repeat=3):
            moved = [z + c for z, c in zip(scores, change, strict=True)]
            other = exact_choice(mechanism, moved, rate)
            losses = [abs(math.log(p / q)) for p, q in zip(law, other, strict=True)]
            worst = max(worst, *losses)
    assert worst <= epsilon * (1.0 + 1e-12)
    # Nor is it far from what is claimed: twice the rate would be caught.
    assert 2.0 * worst > epsilon * (1.0 + 1e-12)


def exact_law(event: RandomStoppingEvent, largest: int) -> NDArray[np.float64]:
    """Probabilities of 0, 1, ..., largest runs."""
    k = np.arange(1, largest + 1)
    if event.stopping == "poisson":
        return np.asarray(stats.poisson.pmf(np.arange(largest + 1), event.mean))
    g = event.gamma
    if event.stopping == "geometric":
        law = g * (1.0 - g) ** (k - 1)
    else:
        law = (1.0 - g) ** k / (k * -math.log(g))
    return np.concatenate([[0.0], law])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("stopping", "mean"),
    [("geometric", 3.7), ("logarithmic", 3.7), ("poisson", 3.7), ("poisson", 0.4)],
)
def test_numbers_of_runs_have_the_law_that_is_charged(stopping: str, mean: float) -> None:
    event = RandomStoppingEvent((PureEvent(0.1, "add_remove"),), stopping, mean, "add_remove")
    draws, largest = 8_000, 12
    source = random.SystemRandom()
    drawn = np.minimum([number_of_runs(event, source) for _ in range(draws)], largest)
    law = exact_law(event, 2000)
    law = np.append(law[:largest], law[largest:].sum())
    assert law.sum() == pytest.approx(1.0, abs=1e-9)
    observed = np.bincount(drawn, minlength=largest + 1)
    assert fits(observed, law)
    # Negative control: one more run than that is another law.
    assert not fits(np.roll(observed, 1), law)


class Answer:
    """A model that gives one label, made by randomised response from one record's label."""

    def __init__(self, label: int) -> None:
        self.label = label

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The label for every row."""
        return np.full(len(X), self.label)


LOUD = 1.0


def respond(X: Any, y: Any, *, epsilon: float, delta: float, adjacency: str, flip: bool) -> Answer:
    """Whether record 7 is there, with noise: the tight mechanism for its epsilon."""
    truth = int((np.asarray(X)[:, 0] == 7.0).any())
    lie = random.SystemRandom().random() < 1.0 / (1.0 + math.exp(epsilon * LOUD))
    return Answer(truth ^ lie ^ flip)


def respond_events(epsilon: float, delta: float, adjacency: str, flip: bool) -> Any:
    """A pure event of the whole budget."""
    return (PureEvent(epsilon, adjacency),)


def outcomes(strategy: str, n_trials: int, **options: Any) -> tuple[Counter[Any], Counter[Any]]:
    """What a search releases on two neighbouring data sets, counted."""
    trainer = DeclaredTrainer(respond, respond_events)
    # Constant labels: scores tell which answer the model gives, and nothing else.
    X, y = np.zeros((120, 1)), np.zeros(120, dtype=np.int64)
    more = np.concatenate([X, [[7.0]]]), np.append(y, 1)
    found: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())
    made = PrivateGridSearch(
        trainer, {"flip": [False]}, 1.0, 0.0, strategy=strategy, validation_fraction=0.5, **options
    )
    for counts, (rows, labels) in zip(found, ((X, y), more), strict=True):
        for _ in range(n_trials):
            made.fit(rows, labels)
            counts[made.best_index_, made.best_estimator_.model_.label] += 1
    return found


def certified(first: Counter[Any], second: Counter[Any], n: int) -> float:
    """Lower bound of epsilon at confidence 1 - ALPHA, by Clopper and Pearson, over all outcomes."""
    keys = set(first) | set(second)
    level = ALPHA / (4 * len(keys))
    best = 0.0
    for p, q in ((first, second), (second, first)):
        for key in keys:
            low = stats.beta.ppf(level, p[key], n - p[key] + 1) if p[key] else 0.0
            high = stats.beta.isf(level, q[key] + 1, n - q[key]) if q[key] < n else 1.0
            best = max(best, math.log(low / high)) if low > 0.0 else best
    return best


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("refit", [0.0, 0.5])
def test_counting_outcomes_of_a_partition_never_beats_its_epsilon(refit: float) -> None:
    n = 120
    first, second = outcomes("partition", n, refit_fraction=refit)
    assert certified(first, second, n) <= 1.0


@pytest.mark.slow
def test_counting_outcomes_of_random_stopping_never_beats_its_epsilon() -> None:
    n = 100
    options = {"refit_fraction": 0.0, "mean_runs": 3.0}
    first, second = outcomes("random_stopping", n, **options)
    assert certified(first, second, n) <= 1.0


@pytest.mark.slow
def test_an_audit_catches_a_trainer_that_declares_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: the same counting, with eight times the epsilon that is declared."""
    monkeypatch.setattr("test_private_search_law.LOUD", 8.0, raising=False)
    monkeypatch.setitem(globals(), "LOUD", 8.0)
    n = 100
    first, second = outcomes("random_stopping", n, refit_fraction=0.0, mean_runs=3.0)
    assert certified(first, second, n) > 1.0


def test_noise_of_a_choice_is_refused_for_bad_scores() -> None:
    for scores in ([], [[1, 2]], [1.5, 2.0], ["a"], [None], 3):
        with pytest.raises((TypeError, ValueError)):
            noise.permute_and_flip(scores, 1.0)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError)):
            noise.exponential_mechanism(scores, 1.0)  # type: ignore[arg-type]
    for epsilon, sensitivity in ((0.0, 1), (float("inf"), 1), (1.0, 0), (1.0, 1.5)):
        with pytest.raises((TypeError, InvalidParameterError)):
            noise.permute_and_flip([1, 2], epsilon, sensitivity)  # type: ignore[arg-type]


def test_discrete_laplace_checks_its_scale() -> None:
    assert noise.discrete_laplace((2, 3), 1.0).shape == (2, 3)
    for bad in (0.0, -1.0, math.inf, 2.0**31, "1"):
        with pytest.raises((TypeError, InvalidParameterError)):
            noise.discrete_laplace(3, bad)  # type: ignore[arg-type]


@given(x=st.fractions(min_value=Fraction(1, 10**9), max_value=10**6))
def test_rates_have_few_bits_and_are_no_more_than_asked(x: Fraction) -> None:
    rate = Fraction(few_bits_down(x))
    assert rate <= x
    assert rate >= x * (1 - Fraction(1, 2**18))
    assert rate.numerator.bit_length() <= 20


def test_the_event_of_a_choice_is_no_less_than_its_rate() -> None:
    for adjacency, factor in (("add_remove", 1), ("replace_one", 2)):
        plan = budgets_of(adjacency)
        assert plan.selection.relation_factor == factor
        (parallel,) = plan.events
        assert isinstance(parallel, ParallelEvent)
        chosen = plan.selection.event(adjacency)
        assert isinstance(chosen, PureEvent)
        assert plan.selection.rate is not None
        assert Fraction(chosen.epsilon) >= Fraction(plan.selection.rate) * factor
        assert 0.9999 < composed_epsilon((chosen,), 0.0) <= 1.0


def test_a_constant_model_knows_no_data() -> None:
    model = ConstantClassifier(["b", "a"]).fit(None)
    assert list(model.predict(np.zeros((2, 1)))) == ["b", "b"]
    assert ConstantClassifier([0, 1, 2]).decision_function(np.zeros((4, 1))).shape == (4, 3)


def test_gaussian_scores_cost_what_is_charged() -> None:
    """Noise rounded to whole numbers, added to a whole number: the law of a rounded release."""
    X, y = np.random.default_rng(0).normal(size=(300, 3)), np.arange(300) % 2
    made = PrivateGridSearch(
        OutputPerturbationSVC(classes=[0, 1], data_norm=3.0), {"C": [0.1]}, 2.0, 1e-5,
        strategy="random_stopping", refit_fraction=0.0, mean_runs=2.0, scoring="balanced_errors",
        class_weight={0: 1.0, 1: 2.0},
    ).fit(X, y)  # fmt: skip
    selection = made.privacy_.selection
    (event,) = made.privacy_.events
    assert isinstance(event, RandomStoppingEvent)
    *_, scored = event.base
    assert isinstance(scored, GaussianEvent)
    assert (scored.sigma, scored.sensitivity) == (selection.sigma, 256.0)


class Witness:
    """A model that keeps a list of the rows that it is asked about."""

    def __init__(self, trained: list[int], asked: list[list[int]], label: int) -> None:
        self.trained = trained
        self.asked = asked
        self.label = label

    def predict(self, X: Any) -> NDArray[np.int64]:
        """One label for every row."""
        self.asked.append([int(row) for row in np.asarray(X)[:, 0]])
        return np.full(len(X), self.label)


def witnesses(
    strategy: str, epsilon: float, adjacency: str = "add_remove"
) -> tuple[PrivateGridSearch, list[Witness]]:
    """A search over two constants, of which the first is always right, and all of its models."""
    made: list[Witness] = []

    def train(X: Any, y: Any, *, label: int, **_: Any) -> Witness:
        made.append(Witness([int(row) for row in np.asarray(X)[:, 0]], [], label))
        return made[-1]

    def events(epsilon: float, delta: float, adjacency: str, label: int) -> Any:
        return (PureEvent(epsilon, adjacency),)

    trainer = DeclaredTrainer(train, events, adjacency=adjacency)
    search = PrivateGridSearch(
        trainer, {"label": [0, 1]}, epsilon, 0.0, strategy=strategy, adjacency=adjacency,
        refit_fraction=0.0, mean_runs=3.0,
    )  # fmt: skip
    X = np.arange(400.0)[:, None]
    return search.fit(X, np.zeros(400, dtype=np.int64)), made


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_candidates_meet_their_own_part_and_are_judged_on_another(adjacency: str) -> None:
    _, models = witnesses("partition", 1.0, adjacency)
    assert len(models) == 2
    first, second = (set(model.trained) for model in models)
    judged = [set(asked) for model in models for asked in model.asked]
    assert judged[0] == judged[1]
    assert not first & second
    assert not (first | second) & judged[0]
    assert first | second | judged[0] == set(range(400))


def test_every_run_of_random_stopping_meets_all_records() -> None:
    _, models = witnesses("random_stopping", 1.0)
    assert models
    assert all(sorted(model.trained) == list(range(400)) for model in models)


def test_the_choice_is_made_by_noise_where_the_budget_is_small() -> None:
    """A winner by exact scores would be the first candidate each time: 2**-24 for chance."""
    small = {witnesses("partition", 1e-4)[0].best_index_ for _ in range(25)}
    assert small == {0, 1}
    # Negative control: with a large budget the better one wins but with probability exp(-50).
    assert {witnesses("partition", 4.0)[0].best_index_ for _ in range(25)} == {0}


def test_the_score_that_is_released_is_noisy() -> None:
    """Errors are 0 or 400; noise of scale 4000 and more leaves that range with probability 0.9."""
    scores = [witnesses("random_stopping", 0.01)[0].best_score_ for _ in range(12)]
    assert any(not 0.0 <= score <= 400.0 for score in scores)
    exact = [witnesses("random_stopping", 400.0)[0].best_score_ for _ in range(5)]
    assert all(min(abs(score), abs(score - 400.0)) <= 40.0 for score in exact)
