"""The search as users meet it: what it charges, releases, refuses and keeps to itself."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

import dpsvm_fast as dp
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.certificates import ParallelEvent, PureEvent, RandomStoppingEvent
from dpsvm_fast.model_selection import PrivateGridSearch

Array = NDArray[np.float64]
STRATEGIES = ("partition", "random_stopping")
SEEDED = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
QUICK = {"mean_runs": 2.0}
PLAIN: dict[str, Any] = {"classes": [0, 1], "bounds": (-1, 1)}


def data(n: int = 600, d: int = 6, n_classes: int = 2) -> tuple[Array, NDArray[np.int64]]:
    """Rows of norm about 1 in well separated classes."""
    X, y = make_classification(
        n, d, n_informative=d, n_redundant=0, n_classes=n_classes, random_state=0, class_sep=2.0
    )
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def search(estimator: Any = None, grid: Any = None, **options: Any) -> PrivateGridSearch:
    """A quick one."""
    estimator = dp.OutputPerturbationSVC(classes=[0, 1]) if estimator is None else estimator
    grid = {"C": [0.1, "auto"]} if grid is None else grid
    return PrivateGridSearch(estimator, grid, **(QUICK | {"epsilon": 4.0} | options))


CASES = [
    (dp.OutputPerturbationSVC(classes=[0, 1]), {"C": [0.1, "auto"]}, {}),
    (dp.OutputPerturbationSVC(classes=[0, 1], noise="gamma"), {"C": [0.1]}, {"delta": 0.0}),
    (
        dp.OutputPerturbationSVC(
            classes=[0, 1], loss="huber", solver="psgd", adjacency="replace_one"
        ),
        {"n_epochs": [2, 5]},
        {"adjacency": "replace_one"},
    ),
    (dp.GradientPerturbationSVC(classes=[0, 1]), {"margin": [0.0, 1.0]}, {}),
    (dp.PrivateLinearSVC(**PLAIN), {"mechanism": ["gradient", "output"]}, {}),
    (dp.PrivateLinearSVC(**PLAIN, delta=0.0), {"margin": ["auto"]}, {"delta": 0.0}),
    (dp.PrivateKernelSVC(**PLAIN, kernel="rbf"), {"n_components": [10, 20]}, {}),
    (dp.PrivateGaussianMarginClassifier(classes=[0, 1], noise="gamma"), {"C": ["auto"]}, {}),
    (
        make_pipeline(
            dp.PrivateCenter(0.5), Normalizer(), dp.RandomFourierFeatures(8),
            dp.OutputPerturbationSVC(classes=[0, 1]),
        ),
        {"randomfourierfeatures__gamma": [0.5, 1.0]},
        {},
    ),
    (
        Pipeline(
            [("pca", dp.PrivatePCA(2, 1.0)), ("svc", dp.OutputPerturbationSVC(classes=[0, 1]))]
        ),
        {"pca__n_components": [2, 4]},
        {},
    ),
]  # fmt: skip


# What takes most of a second and more to calibrate: these are searched by parts by day, others by
# random stopping as well, and all of them by night.
DEAR = (0, 2, 4, 7, 8, 9)


def searches() -> Iterator[Any]:
    """Cases with both strategies."""
    for i, (estimator, grid, options) in enumerate(CASES):
        for strategy in STRATEGIES:
            night = strategy == "random_stopping" and i in DEAR
            yield pytest.param(
                strategy,
                estimator,
                grid,
                options,
                id=f"{type(estimator).__name__}-{i}-{strategy}",
                marks=pytest.mark.nightly if night else (),
            )


@pytest.mark.sampled
@pytest.mark.parametrize(("strategy", "estimator", "grid", "options"), list(searches()))
def test_every_estimator_can_be_searched_within_its_budget(
    strategy: str, estimator: Any, grid: Any, options: dict[str, Any]
) -> None:
    X, y = data()
    options = {"epsilon": 4.0} | options
    ledger = dp.PrivacyLedger(
        4.0, options.get("delta", 1e-6), options.get("adjacency", "add_remove")
    )
    made = search(estimator, grid, strategy=strategy, ledger=ledger, **options).fit(X, y)
    statement = made.privacy_
    assert statement.private
    assert [record.event for record in ledger.history] == list(statement.events)
    spent = composed_epsilon(statement.events, statement.delta)
    assert spent <= statement.epsilon * (1.0 + 1e-8)
    assert made.predict(X).shape == y.shape
    assert set(made.best_params_) == set(grid)
    assert made.n_features_in_ == X.shape[1]
    assert list(made.classes_) == [0, 1]


@pytest.mark.proof("private_selection", "The search as a program")
def test_the_partition_costs_its_most_expensive_part_and_not_the_sum() -> None:
    X, y = data(1200)
    made = search(grid={"C": [0.01, 0.1, 1.0]}, refit_fraction=0.0).fit(X, y)
    (event,) = made.privacy_.events
    assert isinstance(event, ParallelEvent)
    costs = [composed_epsilon(branch, 1e-6) for branch in event.branches]
    assert composed_epsilon(made.privacy_.events, 1e-6) == pytest.approx(max(costs), rel=1e-12)
    assert max(costs) == pytest.approx(4.0, rel=1e-6)
    # Counter-test: the parts' sum is what a search without parts would cost.
    assert sum(costs) > 2.0 * max(costs)


@pytest.mark.proof("private_selection", "The search as a program")
def test_the_refit_is_paid_with_the_search() -> None:
    X, y = data(1200)
    made = search(refit_fraction=0.5).fit(X, y)
    parallel, *again = made.privacy_.events
    assert again
    assert composed_epsilon((parallel,), 1e-6) < 4.0
    assert composed_epsilon(tuple(again), 1e-6) < 4.0
    assert composed_epsilon((parallel, *again), 1e-6) == pytest.approx(4.0, rel=5e-3)
    assert composed_epsilon((parallel, *again), 1e-6) <= 4.0 * (1.0 + 1e-8)


@pytest.mark.proof("private_selection", "The search as a program")
def test_random_stopping_costs_more_than_one_run() -> None:
    X, y = data()
    made = search(strategy="random_stopping", refit_fraction=0.0, mean_runs=5.0).fit(X, y)
    (event,) = made.privacy_.events
    assert isinstance(event, RandomStoppingEvent)
    assert event.mean == 5.0
    once = composed_epsilon(event.base, 1e-6)
    assert once < 0.9 * composed_epsilon((event,), 1e-6)
    assert isinstance(made.best_score_, float)
    assert made.best_score_.is_integer()


@pytest.mark.proof("private_selection", "The search as a program")
def test_pure_budgets_add_up_exactly() -> None:
    X, y = data()
    svc = dp.OutputPerturbationSVC(classes=[0, 1], noise="gamma", delta=0.0)
    made = search(svc, {"C": [0.1, 0.2]}, delta=0.0, refit_fraction=0.25).fit(X, y)
    parallel, again = made.privacy_.events
    assert isinstance(parallel, ParallelEvent)
    assert isinstance(again, PureEvent)
    assert again.epsilon == 1.0
    assert composed_epsilon((parallel,), 0.0) == 3.0
    assert composed_epsilon(made.privacy_.events, 0.0) == 4.0


@pytest.mark.proof("private_selection", "The search as a program")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_is_kept_of_the_scores(strategy: str) -> None:
    X, y = data()
    made = search(strategy=strategy).fit(X, y)
    kept = {name for name in vars(made) if name not in made.get_params(deep=False)}
    released = {"best_estimator_", "best_params_", "best_index_", "classes_", "n_features_in_"}
    noisy = {"best_score_"} if strategy == "random_stopping" else set()
    assert kept == released | noisy | {"privacy_"}


def test_what_is_released_carries_the_promise_of_the_search() -> None:
    X, y = data()
    svc = dp.GradientPerturbationSVC(classes=[0, 1])
    made = search(svc, {"margin": [0.5, 1.0]}).fit(X, y)
    assert made.best_estimator_.privacy_ is made.privacy_
    assert made.best_estimator_.ledger is None
    assert made.best_estimator_.random_state is None
    # Going on from one fit would account for that fit alone.
    assert "_continuation" not in vars(made.best_estimator_)
    with pytest.raises(dp.InvalidParameterError):
        made.best_estimator_.partial_fit(X, y)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "strategy", ["partition", pytest.param("random_stopping", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@SEEDED
def test_results_do_not_depend_on_workers(strategy: str, adjacency: str) -> None:
    from joblib import parallel_config

    X, y = data()
    svc = dp.OutputPerturbationSVC(classes=[0, 1], adjacency=adjacency)
    one = search(svc, strategy=strategy, adjacency=adjacency, random_state=3)
    two = clone(one).set_params(n_jobs=2)
    one.fit(X, y)
    with parallel_config(backend="threading"):
        two.fit(X, y)
    assert one.best_index_ == two.best_index_
    np.testing.assert_array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    other = clone(one).set_params(random_state=4).fit(X, y)
    assert not np.array_equal(one.best_estimator_.coef_, other.best_estimator_.coef_)


@SEEDED
def test_processes_give_what_threads_give() -> None:
    X, y = data(400)
    one = search(random_state=3).fit(X, y)
    two = search(random_state=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)


def test_without_a_seed_two_searches_differ() -> None:
    X, y = data()
    first, second = search().fit(X, y), search().fit(X, y)
    assert not np.array_equal(first.best_estimator_.coef_, second.best_estimator_.coef_)


def test_a_learned_step_within_a_candidate_warns_once() -> None:
    X, y = data()
    pipeline = make_pipeline(
        StandardScaler(), Normalizer(), dp.OutputPerturbationSVC(classes=[0, 1])
    )
    with pytest.warns(dp.PrivacyLeakWarning, match="StandardScaler") as caught:
        made = search(pipeline, {"outputperturbationsvc__C": [0.1, 0.2]}).fit(X, y)
    assert len(caught) == 1
    assert any("StandardScaler" in reason for reason in made.privacy_.not_private_reasons)


def test_a_learned_step_before_the_search_is_reported_by_the_whole() -> None:
    X, y = data()
    pipeline = make_pipeline(StandardScaler(), search()).fit(X, y)
    with pytest.warns(dp.PrivacyLeakWarning, match="StandardScaler"):
        assert not dp.total_privacy(pipeline).private
    with pytest.raises(dp.InvalidParameterError):
        dp.PrivatePipeline(pipeline.steps).fit(X, y)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_exhausted_ledger_stops_the_search_before_it_reads(strategy: str) -> None:
    ledger = dp.PrivacyLedger(3.9, 1e-6)
    with pytest.raises(dp.BudgetExceededError):
        search(strategy=strategy, ledger=ledger).fit("no rows at all", None)
    assert ledger.history == ()


@pytest.mark.proof("private_selection", "The search as a program")
def test_the_ledger_is_charged_once_and_by_the_search_alone() -> None:
    X, y = data()
    ledger = dp.PrivacyLedger(10.0, 1e-6)
    made = search(ledger=ledger, refit_fraction=0.5).fit(X, y)
    labels = {record.label for record in ledger.history}
    assert labels == {"PrivateGridSearch"}
    assert len(ledger.history) == len(made.privacy_.events)


@pytest.mark.proof("private_selection", "The search as a program")
def test_a_candidate_cannot_spend_what_was_not_planned() -> None:
    """Negative control of the purse: an estimator that asks for more than it planned is stopped."""

    class Greedy(dp.OutputPerturbationSVC):
        def fit(self, X: Any, y: Any) -> Any:
            self.epsilon *= 1.01
            return super().fit(X, y)

    X, y = data()
    with pytest.raises(dp.BudgetExceededError):
        search(Greedy(classes=[0, 1]), {"C": [0.1]}).fit(X, y)


def test_too_few_rows_for_the_parts() -> None:
    X, y = data(249)
    with pytest.raises(dp.InvalidParameterError, match="random_stopping"):
        search(grid={"C": [0.1]}).fit(X, y)
    search(grid={"C": [0.1]}, strategy="random_stopping").fit(X, y)
    X, y = data(250)
    search(grid={"C": [0.1]}).fit(X, y)


def test_interrupts_leave_nothing_half_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data()
    ledger = dp.PrivacyLedger(100.0, 1e-5)
    made = search(ledger=ledger).fit(X, y)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dp.OutputPerturbationSVC, "fit", interrupted)
    before = len(ledger.history)
    with pytest.raises(KeyboardInterrupt):
        made.fit(X, y)
    assert len(ledger.history) > before
    with pytest.raises(NotFittedError):
        made.predict(X)
    assert not [name for name in vars(made) if name.endswith("_") and name[0] != "_"]


def test_search_is_a_scikit_learn_estimator() -> None:
    X, y = data()
    made = search().set_params(estimator__data_norm=2.0, refit_fraction=0.0)
    copy = clone(made)
    assert copy.get_params()["estimator__data_norm"] == 2.0
    copy.fit(X, y)
    assert copy.decision_function(X).shape == y.shape
    assert not hasattr(copy, "predict_proba")
    assert not hasattr(copy, "transform")
    restored = pickle.loads(pickle.dumps(copy))
    np.testing.assert_array_equal(restored.predict(X), copy.predict(X))
    likelihood = search(dp.ObjectivePerturbationSVC(classes=[0, 1], loss="logistic"), {"C": [0.1]})
    likelihood.set_params(refit_fraction=0.0).fit(X, y)
    assert likelihood.predict_proba(X).shape == (len(y), 2)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_verbose_prints_public_numbers_only(
    strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y = data()
    svc = dp.OutputPerturbationSVC(classes=[0, 1], verbose=1)
    for n in (600, 500):
        search(svc, strategy=strategy, verbose=1).fit(X[:n], y[:n])
    first, second = capsys.readouterr().out.splitlines()
    # One line a search, however many runs it made, and the same one for other data.
    assert first == second
    assert first.startswith("PrivateGridSearch: ")


@pytest.mark.proof("private_selection", "Random stopping")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_log_tells_nobody_how_many_fits_there_were(
    strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A released number of runs costs more than a secret one."""
    X, y = data()
    with caplog.at_level(logging.DEBUG, logger="dpsvm_fast"):
        search(strategy=strategy, mean_runs=8.0).fit(X, y)
        lines = [record.getMessage() for record in caplog.records if record.name == "dpsvm_fast"]
        assert len(lines) == 2
        assert all(line.startswith("PrivateGridSearch: ") for line in lines)
        # Negative control: by itself a candidate reports its plan.
        dp.OutputPerturbationSVC(classes=[0, 1]).fit(X, y)
    assert caplog.records[-1].getMessage() == "OutputPerturbationSVC: released, private"


def test_warnings_tell_nobody_how_many_fits_there_were() -> None:
    """Also where every fit has a budget that guarantees almost nothing."""
    X, y = data()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        search(strategy="random_stopping", mean_runs=8.0, epsilon=200.0).fit(X, y)
    assert [one.category for one in found] == [dp.WeakPrivacyWarning]
    # Negative control: a ledger of that size warns.
    with pytest.warns(dp.WeakPrivacyWarning):
        dp.PrivacyLedger(50.0, 1e-6)


# joblib tells when a busy machine took long to write arguments.
@pytest.mark.filterwarnings("ignore:Persisting input arguments took:UserWarning")
def test_pipelines_tell_nobody_how_often_they_were_fitted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    X, y = data()
    cache = tmp_path / "cache"
    inner = Pipeline([("svc", dp.OutputPerturbationSVC(classes=[0, 1]))], verbose=True)
    pipeline = Pipeline([("same", Normalizer()), ("inner", inner)], verbose=True, memory=str(cache))
    made = search(pipeline, {"inner__svc__C": [0.1]}, strategy="random_stopping").fit(X, y)
    assert capsys.readouterr().out == ""
    assert not cache.exists()
    # What was set aside for the fit is there again.
    assert made.best_estimator_.get_params()["inner__verbose"] is True
    # Negative control: by itself the Pipeline does both.
    pipeline.fit(X, y)
    assert capsys.readouterr().out != ""
    assert cache.exists()


def test_whole_steps_may_be_candidates() -> None:
    X, y = data(900)
    pipeline = Pipeline([("svc", dp.OutputPerturbationSVC(classes=[0, 1]))])
    grid = {
        "svc": [
            dp.OutputPerturbationSVC(classes=[0, 1]),
            dp.GradientPerturbationSVC(classes=[0, 1]),
        ]
    }
    made = search(pipeline, grid).fit(X, y)
    assert made.best_index_ in (0, 1)
    assert made.privacy_.private


@pytest.mark.slow
@pytest.mark.proof("private_selection", "The search as a program")
def test_no_run_at_all_releases_a_constant() -> None:
    X, y = data(200)
    found = set()
    for _ in range(36):
        made = search(
            strategy="random_stopping", stopping="poisson", mean_runs=1.1, refit_fraction=0.0,
            grid={"C": [0.1]},
        ).fit(X, y)  # fmt: skip
        found.add(type(made.best_estimator_).__name__)
        if made.best_index_ < 0:
            assert made.best_params_ == {}
            assert set(made.predict(X)) == {0}
            assert made.score(X, y) < 0.7
            assert made.decision_function(X).shape == y.shape
            assert made.privacy_.private
    # A constant has probability exp(-1.1): all alike with a probability below 1e-6.
    assert found == {"ConstantClassifier", "OutputPerturbationSVC"}
