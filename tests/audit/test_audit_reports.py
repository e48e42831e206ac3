"""Audits as a user meets them: reports, callables, pipelines, the command, the display."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline

import dpsvm_fast as dp
from dpsvm_fast.audit import AuditReport, Pair, audit, audit_density, audit_one_run
from dpsvm_fast.audit.pair_audit import ROWS
from dpsvm_fast.cli import main
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.model_selection import PrivateGridSearch
from twins.selection import selection_epsilon, selection_probabilities

Array = NDArray[Any]
DELTA = 1e-5
OUTPUT: dict[str, Any] = {"classes": [0, 1], "C": 0.1, "fit_intercept": False}
X = np.array([[0.0], [1.0]])
PAIR = Pair((X, np.array([0, 1])), (X[:1], np.array([0])), "add_remove")


def output(**changes: Any) -> dp.OutputPerturbationSVC:
    return dp.OutputPerturbationSVC(**({"epsilon": 4.0, "delta": DELTA} | OUTPUT | changes))


def small(estimator: Any, **options: Any) -> AuditReport:
    return audit(estimator, **({"n_trials": 2000, "random_state": 1} | options))


class TestReport:
    def test_every_field_survives_json(self) -> None:
        report = small(output())
        record = json.loads(report.to_json())
        assert record["format"] == "dpsvm_fast.audit_report"
        assert record["version"] == 1
        assert record["certified"] == report.certified
        assert record["exceeds_claim"] is False
        assert record["counts"] == list(report.counts)
        assert sum(record["histogram"]["first"]) <= report.n_trials
        assert len(record["histogram"]["edges"]) == len(record["histogram"]["first"]) + 1

    def test_a_seed_repeats_everything_for_any_number_of_threads(self) -> None:
        reports = [small(output(), n_threads=n) for n in (1, 2, 2)]
        found = [(r.certified, r.counts, r.threshold, str(r.histogram)) for r in reports]
        assert found[0] == found[1] == found[2]
        assert small(output(), random_state=2).counts != reports[0].counts

    def test_time_ends_an_audit(self) -> None:
        report = audit(dp.GradientPerturbationSVC(1.0, classes=[0, 1], n_steps=3), seconds=0.5)
        assert 100 < report.n_trials < 1_000_000
        assert report.seconds < 30.0


class TestWhatIsAudited:
    def test_ledgers_are_not_charged_and_nothing_is_fitted(self) -> None:
        ledger = dp.PrivacyLedger(4.0, DELTA)
        estimator = output(ledger=ledger)
        small(estimator)
        assert len(ledger.history) == 0
        assert not hasattr(estimator, "coef_")

    def test_classes_may_be_left_out_or_be_strings(self) -> None:
        assert small(output(classes=None)).certified > 1.0
        assert small(output(classes=["no", "yes"])).certified > 1.0
        assert small(output(classes=["a", "b", "c"], epsilon=50.0)).certified > 1.0

    def test_defaults_of_every_estimator_are_audited(self) -> None:
        for kind in (
            dp.OutputPerturbationSVC,
            dp.ObjectivePerturbationSVC,
            dp.GradientPerturbationSVC,
            dp.PrivateGaussianMarginClassifier,
            dp.PrivateLinearSVC,
        ):
            report = small(kind(2.0, classes=[0, 1]), n_trials=100)
            assert not report.exceeds_claim

    @pytest.mark.slow
    def test_a_whole_pipeline_is_fitted_again_and_again(self) -> None:
        model = make_pipeline(
            dp.PrivateStandardScaler(40.0, DELTA, bounds=(-1, 1)),
            output(epsilon=40.0, data_norm=2.0),
        )
        report = small(model, n_trials=100, pair=PAIR, method="clopper_pearson")
        assert report.mechanism == "Pipeline"
        # The whole costs more than either part.
        assert report.epsilon > 40.0
        assert not report.exceeds_claim

    @pytest.mark.slow
    def test_an_estimator_of_a_users_own_is_fitted_as_a_whole(self) -> None:
        class Mean(BaseEstimator):  # type: ignore[misc]
            def __init__(self, epsilon: float = 1.0, wrong: bool = False) -> None:
                self.epsilon = epsilon
                self.wrong = wrong

            def fit(self, X: Array, y: Array) -> Mean:
                scale = 1.0 / self.epsilon * (0.5 if self.wrong else 1.0)
                self.mean_ = float(X.sum()) + np.random.default_rng().laplace(0.0, scale)
                return self

        options: dict[str, Any] = {"pair": PAIR, "claim": (1.0, 0.0), "n_trials": 6000}
        honest, wrong = (small(Mean(1.0, wrong), **options) for wrong in (False, True))
        assert honest.method == "clopper_pearson"
        assert 0.5 < honest.certified <= 1.0
        assert wrong.exceeds_claim

    def test_a_function_is_called(self) -> None:
        rng = np.random.default_rng(0)

        def noisy_count(X: Array, y: Array) -> float:
            return len(X) + rng.laplace(0.0, 1.0)

        report = small(noisy_count, pair=PAIR, claim=(1.0, 0.0), n_trials=6000)
        assert report.mechanism == "noisy_count"
        assert 0.5 < report.certified <= 1.0

    def test_a_function_may_return_a_model(self) -> None:
        def train(X: Array, y: Array) -> dp.OutputPerturbationSVC:
            return output(epsilon=40.0).fit(X, y)

        report = small(train, pair=PAIR, claim=(40.0, DELTA), n_trials=500)
        assert report.mechanism == "train"
        assert 1.0 < report.certified <= 40.0

    @pytest.mark.nightly
    def test_a_search_is_fitted_as_a_whole(self) -> None:
        search = PrivateGridSearch(output(C=0.1), {"C": [0.05, 0.1]}, 4.0, DELTA)
        rows = np.repeat([[0.0], [1.0]], 200, axis=0)
        labels = np.repeat([0, 1], 200)
        pair = Pair((rows, labels), (rows[:-1], labels[:-1]), "add_remove")
        report = small(search, pair=pair, n_trials=100)
        assert report.epsilon <= 4.0
        assert not report.exceeds_claim

    @pytest.mark.parametrize(
        ("estimator", "options", "named"),
        [
            (output(), {"n_trials": 99}, "n_trials"),
            (output(), {"seconds": 0.0}, "seconds"),
            (output(), {"confidence": 1.0}, "confidence"),
            (output(), {"method": "magic"}, "method"),
            (output(noise="gamma"), {"method": "gaussian"}, "method"),
            (output(), {"adjacency": "other"}, "adjacency"),
            (output(), {"part": "centre"}, "part"),
            (dp.PrivateLinearSVC(1.0), {"part": "other"}, "part"),
            (len, {}, "pair"),
            (len, {"pair": PAIR}, "claim"),
        ],
    )
    def test_refusals_name_the_argument(
        self, estimator: Any, options: dict[str, Any], named: str
    ) -> None:
        with pytest.raises(dp.InvalidParameterError, match=named):
            audit(estimator, **options)

    def test_what_cannot_be_run_is_refused(self) -> None:
        with pytest.raises(TypeError, match="estimator"):
            audit(3)


class TestDensity:
    """The exact epsilons, against what is known in other ways."""

    @pytest.mark.sampled
    @pytest.mark.parametrize("name", [n for n in ROWS if n.startswith(("output", "objective"))])
    @pytest.mark.parametrize("epsilon", [0.5, 4.0])
    def test_no_pair_exceeds_the_claim(self, name: str, epsilon: float) -> None:
        for adjacency in ROWS[name].relations:
            report = audit_density(ROWS[name].make(epsilon, adjacency))
            assert report.certified <= epsilon
            # The label flip is not the dearest pair of a curved objective.
            assert report.certified >= 0.5 * epsilon

    def test_sums_spend_all_of_the_claim(self) -> None:
        for adjacency in ("add_remove", "replace_one"):
            for delta in (0.0, DELTA):
                report = audit_density(dp.PrivateCenter(1.5, delta, adjacency=adjacency))
                assert report.certified == pytest.approx(1.5, rel=1e-6)

    @pytest.mark.slow
    def test_one_weight_by_adaptive_quadrature(self) -> None:
        """Objective perturbation by scipy, in the weight and not in the noise."""
        estimator = dp.ObjectivePerturbationSVC(
            2.0, DELTA, loss="huber", C=0.3, classes=[0, 1], fit_intercept=False
        )
        found = audit_density(estimator, pair=PAIR).certified
        mechanism = estimator.checked().plan(Facts(n_features=1))
        sigma, lam = mechanism.inside.scale, mechanism.regularization
        _, h, m = mechanism.loss.kernel

        def log_density(w: float, count: int) -> float:
            z = m - w
            slope = min(max((z + h) / (2 * h), 0.0), 1.0)
            curve = 1.0 / (2 * h) if abs(z) < h else 0.0
            b = count * slope - lam * w
            return float(stats.norm.logpdf(b, scale=sigma) + math.log(lam + count * curve))

        def delta(epsilon: float, sides: tuple[int, int]) -> float:
            def over(w: float) -> float:
                logs = [log_density(w, count) for count in sides]
                return max(0.0, math.exp(logs[0]) - math.exp(epsilon + logs[1]))

            reach = 9.0 * (sigma + 1.0) / lam
            edges = np.concatenate([np.linspace(-reach, reach, 400), [m - h, m + h]])
            edges.sort()
            parts = itertools.pairwise(edges)
            return float(sum(integrate.quad(over, a, b, epsabs=1e-15)[0] for a, b in parts))

        # At the epsilon that was found, the larger delta is the claim's.
        larger = max(delta(found, (1, 0)), delta(found, (0, 1)))
        assert larger == pytest.approx(DELTA, rel=2e-3)

    @pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
    def test_a_sampled_step_spends_what_the_accountant_says(self, adjacency: str) -> None:
        report = audit_density(ROWS["descent, one sampled step"].make(2.0, adjacency))
        assert 0.999 * 2.0 <= report.certified <= 2.0

    def test_refuses_what_has_no_closed_form(self) -> None:
        for estimator, named in (
            (ROWS["descent"].make(1.0, "add_remove"), "n_steps"),
            (dp.PrivateLinearSVC(1.0, classes=[0, 1]), "estimator"),
            (dp.ObjectivePerturbationSVC(1.0, classes=[0, 1, 2]), "estimator"),
        ):
            with pytest.raises(dp.InvalidParameterError, match=named):
                audit_density(estimator)

    @pytest.mark.parametrize("scores", [[3, 1, 2], [0, 0], [5, 9, 5, 7, 6]])
    @pytest.mark.parametrize("law", ["exponential", "permute_and_flip"])
    def test_choices_by_simulation(self, scores: list[int], law: str) -> None:
        """False alarms at 5 standard errors: 1e-6 for each of 20 numbers."""
        rng, n, rate = np.random.default_rng(0), 40_000, 0.7
        z = np.array(scores)
        if law == "exponential":
            chosen = (rng.gumbel(size=(n, z.size)) - rate * z).argmax(axis=1)
        else:
            # Exponential noise is a permute-and-flip (Ding et al. 2021).
            chosen = (rng.exponential(size=(n, z.size)) - rate * z).argmax(axis=1)
        wanted = selection_probabilities(scores, rate, law)
        assert wanted.sum() == pytest.approx(1.0, rel=1e-12)
        found = np.bincount(chosen, minlength=z.size) / n
        assert (np.abs(found - wanted) <= 5.0 * np.sqrt(wanted / n)).all()

    @pytest.mark.parametrize("law", ["exponential", "permute_and_flip"])
    def test_a_choice_spends_at_most_twice_its_rate(self, law: str) -> None:
        """Scores that move by 1: all the same way costs the rate, any way twice it."""
        rng = np.random.default_rng(3)
        for _ in range(200):
            z = rng.integers(0, 6, size=int(rng.integers(2, 6)))
            same = selection_epsilon(z, z + rng.integers(0, 2, size=z.size), 0.5, law)
            any_way = selection_epsilon(z, z + rng.integers(-1, 2, size=z.size), 0.5, law)
            assert same <= 0.5 * (1.0 + 1e-9)
            assert any_way <= 1.0 + 1e-9
        assert selection_epsilon([0, 50], [1, 50], 0.5, "exponential") > 0.0


class TestOneRun:
    @pytest.mark.sampled
    @pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
    @pytest.mark.parametrize("mechanism", ["output", "descent"])
    def test_one_fit_proves_something_and_never_more_than_the_claim(
        self, adjacency: str, mechanism: str
    ) -> None:
        """Fixed seed: the same canaries and the same noise each time."""
        estimator: Any = output(epsilon=8.0, adjacency=adjacency)
        if mechanism == "descent":
            estimator = ROWS["descent"].make(8.0, adjacency)
        report = audit_one_run(estimator, 2000, confidence=0.99, random_state=4)
        assert 1.0 < report.certified <= 8.0
        assert report.method == "one_run_gaussian"
        assert "2000 canaries" in str(report)
        assert sum(report.counts) <= 2000

    def test_a_model_without_noise_is_refuted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from dpsvm_fast.mechanisms import noise as weight_noise

        monkeypatch.setattr(weight_noise, "gaussian_sigma", lambda *_: 1e-3)
        report = audit_one_run(output(epsilon=1.0), 1000, confidence=0.99, n_guesses=500)
        assert report.counts == (500, 0)
        assert report.exceeds_claim

    def test_too_little_noise_is_refuted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A third of it; the seed of coins and noise is fixed."""
        from dpsvm_fast.mechanisms import noise as weight_noise

        right = weight_noise.gaussian_sigma
        monkeypatch.setattr(weight_noise, "gaussian_sigma", lambda *a: right(*a) / 3.0)
        report = audit_one_run(output(epsilon=1.0), 5000, random_state=2)
        assert report.exceeds_claim

    def test_refusals_name_the_argument(self) -> None:
        for estimator, options, named in (
            (dp.PrivateLinearSVC(1.0), {}, "estimator"),
            (output(classes=[0, 1, 2]), {}, "classes"),
            (output(), {"n_canaries": 1}, "n_canaries"),
            (output(), {"confidence": 1.0}, "confidence"),
            (output(), {"n_guesses": 2000}, "n_guesses"),
        ):
            with pytest.raises(dp.InvalidParameterError, match=named):
                audit_one_run(estimator, **({"n_canaries": 100} | options))


@pytest.mark.skipif(find_spec("click") is None, reason="needs click")
class TestCommand:
    def test_json_has_every_report(self, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ["audit", "--trials", "500", "--mechanism", "whitener", "--json"]
        assert main(arguments) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["refuted"] == []
        records = found["audits"]
        assert [r["epsilon"] for r in records] == [1.0, 4.0, 1.0, 4.0]
        assert {r["mechanism"] for r in records} == {"PrivateWhitener"}

    def test_a_wrong_build_sets_the_exit_code(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from dpsvm_fast.mechanisms import noise as noisy_sum

        monkeypatch.setattr(noisy_sum, "scale_for", lambda moved, mu: 0.5 * moved / mu)
        arguments = [
            "audit",
            "--trials",
            "5000",
            "--mechanism",
            "PrivateWhitener",
            "--epsilon",
            "4",
        ]
        assert main(arguments) == 1
        assert "REFUTED" in capsys.readouterr().out

    @pytest.mark.slow
    def test_the_module_can_be_run_and_does_not_load_matplotlib(self) -> None:
        code = (
            "import runpy, sys; "
            "sys.argv[1:] = ['--trials', '100', '--mechanism', 'whitener', '--epsilon', '1']\n"
            "try: runpy.run_module('dpsvm_fast.audit', run_name='__main__')\n"
            "except SystemExit as ended: sys.exit(ended.code or 'matplotlib' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


class TestDisplay:
    def test_worlds_threshold_claim_and_bound_are_drawn(self) -> None:
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("Agg")
        from matplotlib import pyplot

        from dpsvm_fast.plotting.displays import AuditDisplay

        report = small(output())
        display = AuditDisplay.from_report(report)
        filled, outline = display.worlds_
        for artist, name in ((filled, "first"), (outline, "second")):
            wanted = np.array(report.histogram[name]) / report.n_trials
            assert np.array_equal(artist.get_data().values, wanted)
        # Told apart in black and white.
        assert filled.get_fill()
        assert not outline.get_fill()
        assert np.asarray(display.threshold_.get_xdata())[0] == report.threshold
        title = display.ax_.get_title(loc="left")
        assert r"claimed: $\epsilon$ = 4" in title
        assert f"{report.certified:.3g}" in title
        assert AuditDisplay.from_report(report, ax=display.ax_).ax_ is display.ax_
        pyplot.close("all")
