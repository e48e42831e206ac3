"""The command line about the whole private pipeline: what it plans, what it demonstrates."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dpsvm_fast import PrivateKernelSVC, PrivateLinearSVC
from oracles.command_line import Cli, fact

pytest.importorskip("click")

PLAN = ["plan", "--epsilon=1", "--delta=1e-5", "--features=5", "--classes=3"]


class TestPlanOfThePipeline:
    def test_what_depends_on_the_number_of_rows_is_left_open(self, cli: Cli) -> None:
        shown = cli.planned(PLAN)
        threshold = int(fact("rows required for whitening", shown))
        assert "give --samples" in shown
        whitened = r"rows are whitened +yes\n"
        assert re.search(whitened, cli.planned(PLAN, f"--samples={threshold}"))
        assert not re.search(whitened, cli.planned(PLAN, f"--samples={threshold - 1}"))

    def test_without_delta_the_pure_recipe_is_planned(self, cli: Cli) -> None:
        options = ["--delta=0", "--classes=2", "--samples=500"]
        shown = cli.planned(PLAN, *options)
        assert "loss huber: " in shown
        assert "; delta = 0 (" in shown
        assert fact("epsilon of the centre", shown) == 0.1
        model = PrivateLinearSVC(1.0, 0.0, classes=[0, 1]).fit(np.eye(2, 5), [0, 1])
        inside = model.privacy_.objective
        deviation = fact("noise inside the objective", shown)
        assert deviation == pytest.approx(np.sqrt(7.0) / inside.beta, rel=1e-4)
        assert fact("lambda", shown) == pytest.approx(inside.regularization, rel=1e-5)

    def test_no_data_set_leads_by_more_than_the_bound(self, cli: Cli) -> None:
        options = ["--epsilon=1e4", "--classes=3", "--features=2", "--samples=50"]
        bound = fact("largest possible lead", cli.planned(PLAN, *options))
        X = np.tile([1.0, 0.0], (50, 1))
        model = PrivateLinearSVC(1e4, 1e-5, classes=range(3), whiten=False).fit(X, np.zeros(50))
        lead = float(np.ptp(model.decision_function(X[:1])))
        assert lead <= 1.02 * bound
        assert "Use a larger" in cli.planned(PLAN, "--samples=1")


class TestPlanOfAKernel:
    @pytest.mark.sampled
    @pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
    @pytest.mark.parametrize("kernel", ["auto", "rbf", "laplacian", "linear"])
    @pytest.mark.parametrize(("n_samples", "curved"), [(120, False), (4000, True)])
    def test_it_names_what_a_fit_then_chooses(
        self, cli: Cli, adjacency: str, kernel: str, n_samples: int, curved: bool
    ) -> None:
        options = [f"--kernel={kernel}", f"--adjacency={adjacency}", f"--samples={n_samples}"]
        shown = cli.planned(PLAN, *options)
        assert shown.startswith("PrivateKernelSVC, ")
        X = np.random.default_rng(0).normal(size=(n_samples, 5))
        model = PrivateKernelSVC(
            1.0, 1e-5, kernel=kernel, adjacency=adjacency, classes=range(3), n_threads=1
        ).fit(X, np.arange(n_samples) % 3)
        chosen = ("rbf" if curved else "linear") if kernel == "auto" else kernel
        assert re.search(rf"\nkernel +{chosen}\n", shown)
        assert model.kernel_ == chosen
        # The fit sees the number of rows with noise of standard deviation 31 where it is private.
        q = fact("signal q of its rule", shown) * model.n_samples_ / n_samples
        assert q == pytest.approx(model.q_, rel=1e-3)
        assert fact("weights", shown) == model.coef_.size + model.intercept_.size
        assert fact("steps", shown) == model.n_steps_
        if chosen == "linear":
            assert "gamma" not in shown
        else:
            assert fact("gamma", shown) == pytest.approx(model.gamma_, rel=0.03)
            assert fact("frequencies", shown) == model.n_components_

    def test_what_depends_on_the_number_of_rows_is_left_open(self, cli: Cli) -> None:
        shown = cli.planned(PLAN, "--kernel")
        assert "depends on the number of rows: give --samples" in shown
        assert "signal q" not in shown

    def test_without_delta_frequencies_have_to_suffice(self, cli: Cli) -> None:
        options = ["--kernel", "--delta=0", "--classes=2", "--samples=100000"]
        for n_features, kernel in ((5, "rbf"), (6, "linear")):
            shown = cli.planned(PLAN, *options, f"--features={n_features}")
            assert re.search(rf"\nkernel +{kernel}\n", shown)


def test_the_pipeline_is_shown_by_default(tmp_path: Path, cli: Cli) -> None:
    pytest.importorskip("matplotlib")
    plot, certificate = tmp_path / "plot.png", tmp_path / "certificate.json"
    arguments = ["demo", "--repeats=3", "--output", str(plot)]
    shown = cli(*arguments, "--certificate", str(certificate))
    rows = re.findall(r"^ *(0\.5|1|2|4|8) +(0\.\d+) (?:±|\+-) 0\.\d+ ", shown, re.M)
    accuracies = [float(accuracy) for _, accuracy in rows]
    # 0.88, 0.92, 0.94, 0.95 and 0.96, with standard errors of about 0.005.
    assert len(accuracies) == 5
    assert accuracies[0] > 0.8
    assert accuracies[1] > 0.88
    assert accuracies[-1] > 0.93
    ceiling = float(re.search(r"without privacy +(0\.\d+)", shown)[1])  # type: ignore[index]
    assert accuracies[0] < accuracies[-1] < ceiling + 0.02
    assert "Privacy statement: PRIVATE" in shown
    assert "(PrivateLinearSVC)" in shown.splitlines()[1]
    assert "private linear, loss softmax_margin" in shown
    assert plot.read_bytes().startswith(b"\x89PNG")
    cli("verify", str(certificate))
