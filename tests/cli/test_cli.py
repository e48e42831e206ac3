"""The command line: exit codes, texts, and files, as a user meets them."""

from __future__ import annotations

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


def planned(cli: Cli, *options: str, mechanism: str = "output") -> str:
    """What ``plan`` prints for these options."""
    return cli.planned(PLAN, f"--model={mechanism}", *options)


class TestPlan:
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
