"""The command line: exit codes, texts, and files, as a user meets them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsvm_fast import ObjectivePerturbationSVC, OutputPerturbationSVC

pytest.importorskip("click")

from oracles.command_line import Cli, fact, python

MECHANISMS = {"objective": ObjectivePerturbationSVC, "output": OutputPerturbationSVC}
PLAN = ["plan", "--epsilon=1", "--delta=1e-5", "--features=4", "--classes=3"]


# Of both.
either = pytest.mark.parametrize("mechanism", MECHANISMS)


def fitted(mechanism: str = "output", **settings: Any) -> Any:
    """A model of what ``PLAN`` plans."""
    model = MECHANISMS[mechanism](epsilon=1.0, delta=1e-5, classes=range(3), **settings)
    return model.fit(np.eye(3, 4), np.arange(3))


def planned(cli: Cli, *options: str, mechanism: str = "output") -> str:
    """What ``plan`` prints for these options."""
    return cli.planned(PLAN, f"--model={mechanism}", *options)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"C": 0.25},
    {"adjacency": "replace_one"},
    {"data_norm": 3.0},
]


def as_options(settings: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


class TestPlan:
    @pytest.mark.parametrize("settings", SETTINGS)
    def test_it_names_the_noise_on_weights_that_a_fit_then_adds(
        self, cli: Cli, settings: dict[str, Any]
    ) -> None:
        shown = planned(cli, *as_options(settings))
        statement = fitted(**settings).privacy_
        assert fact("noise in a weight", shown) == float(f"{statement.noise.sigma:.6g}")
        assert fact("C", shown) == float(f"{statement.sensitivity.C:.6g}")
        assert fact("sensitivity", shown) == float(f"{statement.sensitivity.total:.6g}")
        assert fact("weights", shown) == statement.noise.n_weights

    @pytest.mark.parametrize("settings", SETTINGS)
    def test_it_names_the_noise_in_the_objective_that_a_fit_then_adds(
        self, cli: Cli, settings: dict[str, Any]
    ) -> None:
        shown = planned(cli, *as_options(settings), mechanism="objective")
        inside = fitted("objective", **settings).privacy_.objective
        assert ("\nC " in shown) == ("C" in settings)
        assert fact("lambda", shown) == float(f"{inside.regularization:.6g}")
        assert fact("noise inside the objective", shown) == float(f"{inside.sigma:.6g}")
        deviation = fact("noise in a weight", shown)
        assert deviation == pytest.approx(inside.sigma / inside.regularization, rel=0.01)
        assert "is at most this" in shown
        score = fact("noise in a score", shown)
        assert score == pytest.approx(deviation * inside.row_norm, rel=1e-3)

    def test_the_pipeline_is_what_is_planned_unless_asked_otherwise(self, cli: Cli) -> None:
        assert cli(*PLAN).startswith("PrivateLinearSVC, loss soft")
        assert planned(cli).startswith("OutputPerturbationSVC, loss crammer_singer")
        shown = planned(cli, mechanism="objective")
        assert shown.startswith("ObjectivePerturbationSVC, loss softmax_margin")

    def test_what_is_added_to_one_over_C_is_reported(self, cli: Cli) -> None:
        shown = planned(cli, "--C=1000", mechanism="objective")
        more = fact("part of it for privacy", shown)
        assert more == pytest.approx(fact("lambda", shown) - 0.001, rel=1e-3)

    def test_weights_vary_as_much_as_planned_and_not_more(self, cli: Cli) -> None:
        """A row of zeros bends nothing but the intercepts, which are left out here."""
        arguments = ["plan", "--epsilon=1", "--delta=1e-5", "--features=2000", "--classes=3"]
        bound = fact("noise in a weight", cli(*arguments, "--model=objective"))
        model = MECHANISMS["objective"](delta=1e-5, classes=range(3))
        weights = model.fit(np.zeros((1, 2000)), [0]).coef_
        # 6000 of them: the standard deviation is known to 0.9 %, five times that is allowed.
        assert abs(weights.std() / bound - 1.0) < 0.046

    @either
    def test_a_lead_has_the_stated_chance(self, cli: Cli, mechanism: str) -> None:
        shown = planned(cli, mechanism=mechanism)
        lead = fact("lead that survives the noise, 95 %", shown)
        score = fact("noise in a score", shown)
        draws = np.random.default_rng(0).normal(scale=score, size=(200_000, 2))
        survived = np.mean(lead + draws[:, 0] > draws[:, 1])
        # Standard deviation of this frequency: 5e-4; a lead without the sqrt 2 gives 0.88.
        assert abs(survived - 0.95) < 3e-3

    def test_the_one_score_of_two_classes_is_the_lead(self, cli: Cli) -> None:
        shown = planned(cli, "--classes=2", mechanism="objective")
        assert fact("weights", shown) == 5
        score = fact("noise in a score", shown)
        draws = np.random.default_rng(0).normal(scale=score, size=200_000)
        survived = np.mean(fact("lead that survives the noise, 95 %", shown) + draws > 0.0)
        assert abs(survived - 0.95) < 3e-3

    @either
    def test_few_rows_are_called_hopeless_and_many_are_not(self, cli: Cli, mechanism: str) -> None:
        assert "noise dominates  " in planned(cli, "--samples=1", mechanism=mechanism)
        assert "Use a larger" in planned(cli, "--samples=1", mechanism=mechanism)
        shown = planned(cli, "--samples=100000", mechanism=mechanism)
        assert "about 100000 rows" in shown
        assert "Use a larger" not in shown

    @pytest.mark.sampled
    @either
    @pytest.mark.parametrize("n_classes", [2, 3])
    @pytest.mark.parametrize("n_samples", [50, 5000])
    def test_no_data_set_leads_by_more_than_the_bound(
        self, cli: Cli, mechanism: str, n_classes: int, n_samples: int
    ) -> None:
        # With this epsilon there is next to no noise.
        settings: dict[str, Any] = {"epsilon": 1e4, "delta": 1e-5, "C": 0.001}
        X = np.tile([1.0, 0.0], (n_samples, 1))
        y = np.zeros(n_samples, dtype=int)
        model = MECHANISMS[mechanism](classes=range(n_classes), **settings).fit(X, y)
        scores = model.decision_function(X[:1])[0]
        lead = abs(float(scores)) if n_classes == 2 else float(np.ptp(scores))
        options = ["--epsilon=1e4", "--C=0.001", f"--classes={n_classes}", "--features=2"]
        shown = planned(cli, *options, f"--samples={n_samples}", mechanism=mechanism)
        bound = fact("largest possible lead", shown)
        noise = fact("noise in a score", shown)
        assert noise < 0.01 * bound
        assert lead <= bound + 10.0 * noise
        # Few rows pull as hard as they can; many are content once they have their margin.
        assert n_samples > 50 or lead > 0.3 * bound


class TestDemo:
    @either
    def test_table_statement_and_plot(self, tmp_path: Path, cli: Cli, mechanism: str) -> None:
        pytest.importorskip("matplotlib")
        plot, certificate = tmp_path / "plot.png", tmp_path / "certificate.json"
        arguments = ["demo", f"--model={mechanism}", "--repeats=3", "--output", str(plot)]
        out, err = cli.both(*arguments, "--certificate", str(certificate))
        assert not err
        lines = out.splitlines()
        # Paths are as long as they are.
        assert max(len(line) for line in lines if str(tmp_path) not in line) <= 90
        assert "\x1b" not in out
        rows = re.findall(r"^ *(0\.5|1|2|4|8) +(0\.\d+) (?:±|\+-) 0\.\d+ ", out, re.M)
        assert [epsilon for epsilon, _ in rows] == ["0.5", "1", "2", "4", "8"]
        accuracies = [float(accuracy) for _, accuracy in rows]
        ceiling = float(re.search(r"without privacy +(0\.\d+)", out)[1])  # type: ignore[index]
        assert ceiling > 0.9
        assert re.search(r"majority class +0\.1\d\d ", out)
        # Far outside the noise of three draws: chance is 0.1, a standard error about 0.02.
        assert accuracies[0] < accuracies[-1] - (0.1 if mechanism == "objective" else 0.2)
        assert 0.8 < accuracies[-1] < ceiling + 0.02
        # At epsilon 1 objective perturbation has about 0.87 and output perturbation about 0.6.
        assert (accuracies[1] > 0.8) == (mechanism == "objective")
        assert f"({mechanism} perturbation)" in lines[1]
        assert "Privacy statement: PRIVATE" in out
        assert "epsilon = 1, delta = 1e-05" in out
        assert lines[-1] == f"Plot: {plot}"
        assert plot.read_bytes().startswith(b"\x89PNG")
        cli("verify", str(certificate))

    def test_a_seed_repeats_and_is_called_not_private(self, cli: Cli) -> None:
        runs = []
        for _ in range(2):
            runs.append(cli("demo", "--repeats=1", "--seed=7", "--no-plot"))
        assert runs[0] == runs[1]
        assert "Privacy statement: NOT PRIVATE" in runs[0]
        assert "Plot:" not in runs[0]

    @pytest.mark.usefixtures("without_matplotlib")
    def test_without_matplotlib_it_says_how_to_get_a_plot(self, tmp_path: Path, cli: Cli) -> None:
        plot = tmp_path / "plot.png"
        assert (
            'pip install "dpsvm-fast[plot]"'
            in cli("demo", "--repeats=1", "--output", str(plot)).splitlines()[-1]
        )
        assert not plot.exists()


class TestMain:
    def test_the_module_hands_the_exit_code_to_the_shell(self, tmp_path: Path) -> None:
        run = python("-m", "dpsvm_fast", "verify", str(tmp_path / "nowhere.json"))
        assert run.returncode == 2
        assert not run.stdout
        assert run.stderr.count("\n") == 1

    def test_interrupt(self, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("dpsvm_fast.plotting.displays.private_scores", interrupted)
        assert cli.stderr("demo", "--no-plot", code=130) == "dpsvm-fast: interrupted\n"
