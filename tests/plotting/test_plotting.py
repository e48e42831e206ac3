"""Displays: the right artists from the right numbers, and no spend before matplotlib is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC

import dpsvm_fast as dp
from dpsvm_fast.metrics import evaluate
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.plotting.displays import (
    EvaluationDisplay,
    PrivacyProfileDisplay,
    PrivacyUtilityDisplay,
    private_scores,
)

pytestmark = pytest.mark.usefixtures("closed_figures")

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]
EPSILONS = [4.0, 0.5, 1.0]


def model(**settings: Any) -> dp.OutputPerturbationSVC:
    return dp.OutputPerturbationSVC(**({"delta": 1e-5, "classes": range(3)} | settings))


def statement(**settings: Any) -> dp.PrivacyStatement:
    rows, labels = np.eye(3), np.arange(3)
    return model(**settings).fit(rows, labels).privacy_


class TestPrivateScores:
    def test_every_fit_is_scored_and_charged(self, clusters: TrainingSet) -> None:
        X, y = clusters
        ledger = dp.PrivacyLedger(epsilon=100.0, delta=1e-3)
        scores = private_scores(
            model(ledger=ledger), X, y, X_test=X, y_test=y, epsilons=[1.0, 50.0], n_repeats=2
        )
        assert scores.shape == (2, 2)
        assert len(ledger.history) == 4
        # Noise of a fiftieth leaves three separate clusters separate.
        assert scores[1].min() > 0.9

    def test_a_seed_repeats_the_table_and_not_the_model(self, clusters: TrainingSet) -> None:
        X, y = clusters
        task = {"X_test": X, "y_test": y, "epsilons": [0.5], "n_repeats": 4}
        with pytest.warns(dp.NotPrivateWarning):
            first = private_scores(model(random_state=5), X, y, **task)
        with pytest.warns(dp.NotPrivateWarning):
            second = private_scores(model(random_state=5), X, y, **task)
        np.testing.assert_array_equal(first, second)
        assert len(np.unique(first)) > 1

    @pytest.mark.parametrize(
        ("wrong", "error", "named"),
        [
            ({"epsilons": []}, dp.InvalidParameterError, "epsilons"),
            ({"epsilons": [1.0, 0.0]}, dp.InvalidParameterError, "epsilons"),
            ({"n_repeats": 0}, dp.InvalidParameterError, "n_repeats"),
            ({"n_repeats": 2.0}, TypeError, "n_repeats"),
        ],
    )
    def test_wrong_settings_are_refused_before_any_spend(
        self, clusters: TrainingSet, wrong: dict[str, Any], error: type[Exception], named: str
    ) -> None:
        X, y = clusters
        ledger = dp.PrivacyLedger(epsilon=100.0, delta=1e-3)
        task = {"epsilons": [1.0], "n_repeats": 1} | wrong
        with pytest.raises(error, match=named):
            private_scores(model(ledger=ledger), X, y, X_test=X, y_test=y, **task)
        assert not ledger.history

    def test_one_private_step_of_a_pipeline_gets_all(self, clusters: TrainingSet) -> None:
        X, y = clusters
        ledger = dp.PrivacyLedger(epsilon=100.0, delta=1e-3)
        piped = make_pipeline(Normalizer(), model(ledger=ledger))
        task = {"X_test": X, "y_test": y, "epsilons": [1.0, 50.0], "n_repeats": 2}
        scores = private_scores(piped, X, y, **task)
        assert scores[1].min() > 0.9
        alone = dp.PrivacyLedger(epsilon=100.0, delta=1e-3)
        private_scores(model(ledger=alone), X, y, **task)
        assert [one.event for one in ledger.history] == [one.event for one in alone.history]


class TestUtilityDisplay:
    def display(self, **changes: Any) -> PrivacyUtilityDisplay:
        scores = np.array([[0.9, 0.8], [0.3, 0.5], [0.6, 0.6]])
        values = {"epsilons": EPSILONS, "scores": scores, "non_private_score": 0.95, "delta": 1e-5}
        return PrivacyUtilityDisplay(**(values | changes))

    def test_mean_spread_and_ceiling(self) -> None:
        display = self.display().plot()
        np.testing.assert_allclose(display.line_.get_xydata(), [[0.5, 0.4], [1, 0.6], [4, 0.85]])
        band = display.band_.get_paths()[0].vertices
        at_half = band[band[:, 0] == 0.5, 1]
        # Standard deviation of (.3, .5) with one degree of freedom: .1 sqrt 2.
        assert at_half.min() == pytest.approx(0.4 - 0.1 * 2**0.5)
        assert at_half.max() == pytest.approx(0.4 + 0.1 * 2**0.5)
        assert display.ceiling_.get_linestyle() == "--"
        assert list(display.ceiling_.get_ydata()) == [0.95, 0.95]
        assert display.majority_ is None

    def test_from_estimator(self, clusters: TrainingSet) -> None:
        X, y = clusters
        peer = LinearSVC(random_state=0)
        display = PrivacyUtilityDisplay.from_estimator(
            model(),
            X,
            y,
            X_test=X[:40],
            y_test=y[:40],
            epsilons=EPSILONS,
            n_repeats=3,
            non_private=peer,
        )
        assert display.scores.shape == (3, 3)
        assert display.delta == 1e-5
        assert display.non_private_score == peer.fit(X, y).score(X[:40], y[:40])
        frequent = np.bincount(y).argmax()
        assert display.majority_score == np.mean(y[:40] == frequent)
        np.testing.assert_allclose(
            display.line_.get_ydata(), display.scores.mean(axis=1)[[1, 2, 0]]
        )

    def test_a_figure_keeps_scores_and_no_data(self, clusters: TrainingSet) -> None:
        X, y = clusters
        display = PrivacyUtilityDisplay.from_estimator(
            model(), X, y, X_test=X[:40], y_test=y[:40], epsilons=[1.0], n_repeats=2
        )
        kept = {name: value for name, value in vars(display).items() if name[-1] != "_"}
        assert set(kept) == {"epsilons", "scores", "non_private_score", "majority_score", "delta"}
        assert display.majority_score is display.non_private_score is None
        # As many numbers as fits, and each a multiple of one test row: nothing finer is shown.
        assert display.scores.shape == (1, 2)
        np.testing.assert_allclose(display.scores * 40, np.rint(display.scores * 40), atol=1e-9)


class TestProfileDisplay:
    def test_curve_of_the_statement_goes_through_the_claim(self) -> None:
        claim = statement(epsilon=2.0)
        display = PrivacyProfileDisplay.from_statement(claim)
        x, y = np.asarray(display.line_.get_xdata()), np.asarray(display.line_.get_ydata())
        np.testing.assert_array_equal(display.mark_.get_xydata(), [[2.0, 1e-5]])
        assert np.interp(2.0, x, y) == pytest.approx(1e-5, rel=1e-6)
        noise, total = claim.noise.sigma, claim.sensitivity.total
        assert noise is not None
        assert y[50] == pytest.approx(dp.accounting.gaussian_delta(x[50], noise, total), rel=1e-9)
        assert np.all(np.diff(y) < 0)
        assert display.ax_.get_yscale() == "log"
        assert display.ax_.get_title() == ""

    def test_a_seeded_release_says_that_it_promises_nothing(self) -> None:
        with pytest.warns(dp.NotPrivateWarning):
            seeded = statement(random_state=1)
        display = PrivacyProfileDisplay.from_statement(seeded)
        assert "NOT PRIVATE" in display.ax_.get_title()

    @pytest.mark.slow
    def test_statements_of_searches_and_pipelines(self, clusters: TrainingSet) -> None:
        X, y = clusters
        centre = dp.PrivateCenter(0.5, delta=1e-6)
        whole = dp.total_privacy(make_pipeline(centre, model(data_norm=2.0)).fit(X, y))
        search = PrivateGridSearch(model(), {"C": [0.1]}, 2.0, 1e-5, strategy="random_stopping")
        for claim in (whole, search.fit(X, y).privacy_):
            display = PrivacyProfileDisplay.from_statement(claim)
            np.testing.assert_array_equal(
                display.mark_.get_xydata(), [[claim.epsilon, claim.delta]]
            )
            x, drawn = np.asarray(display.line_.get_xydata()).T
            # Between the points of the curve its logarithm is almost straight.
            at_claim = np.exp(np.interp(claim.epsilon, x, np.log(drawn)))
            assert at_claim == pytest.approx(claim.delta, rel=0.02)


@pytest.mark.usefixtures("closed_figures", "without_matplotlib")
class TestWithoutMatplotlib:
    def test_nothing_is_fitted_for_a_figure_that_cannot_be_drawn(
        self, clusters: TrainingSet
    ) -> None:
        X, y = clusters
        ledger = dp.PrivacyLedger(epsilon=10.0, delta=1e-3)
        with pytest.raises(ImportError, match=r'pip install "dpsvm-fast\[plot\]"'):
            PrivacyUtilityDisplay.from_estimator(
                model(ledger=ledger), X, y, X_test=X, y_test=y, epsilons=[1.0]
            )
        assert not ledger.history


class TestEvaluationDisplay:
    @pytest.mark.parametrize("kind", ["roc", "calibration", "confusion_matrix"])
    @pytest.mark.parametrize("groups", [None, np.arange(30) // 3])
    def test_what_is_drawn_is_what_was_released(self, kind: str, groups: Any) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(30, 3)), np.arange(30) % 2
        svc = dp.OutputPerturbationSVC(delta=1e-5, classes=[0, 1], loss="logistic").fit(X, y)
        found = evaluate(svc, X, y, groups=groups, metrics=[kind])
        display = EvaluationDisplay.from_evaluation(found, kind=kind)
        metric = getattr(found, kind)
        if kind == "confusion_matrix":
            texts = [text.get_text().splitlines()[0] for text in display.intervals_]
            assert texts == [f"{count:.0f}" for count in metric.value.ravel()]
            assert display.image_.get_array().shape == (2, 2)
        else:
            y_ = metric.observed if kind == "calibration" else metric.true_positive_rate
            assert np.array_equal(display.line_.get_ydata(), y_.value)
            segments = display.intervals_[0].lines[2][1].get_segments()
            assert np.allclose([s[:, 1] for s in segments], np.stack([y_.low, y_.high], axis=1))
        assert ("persons" if groups is not None else "rows") in display.ax_.get_title(loc="left")
        other = "roc" if kind != "roc" else "calibration"
        with pytest.raises(dp.InvalidParameterError) as told:
            EvaluationDisplay.from_evaluation(found, kind=other)
        assert told.value.parameter == "kind"
        with pytest.raises(TypeError):
            EvaluationDisplay(evaluation=found.privacy_)
