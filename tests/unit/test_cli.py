"""The command line: exit codes, texts, and files, as a user meets them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsvm_fast import OutputPerturbationSVC, __version__
from dpsvm_fast.cli import BAR_WIDTH, main

PLAN = ["plan", "--epsilon=1", "--delta=1e-5", "--features=4", "--classes=3"]


def fitted(**settings: Any) -> OutputPerturbationSVC:
    model = OutputPerturbationSVC(epsilon=1.0, delta=1e-5, classes=range(3), **settings)
    return model.fit(np.eye(3, 4), np.arange(3))


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "certificate.json"
    path.write_text(fitted().privacy_.to_json(), encoding="utf-8")
    return path


def tamper(path: Path, section: str | None, field: str, factor: float) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    place = record if section is None else record[section]
    place[field] *= factor
    path.write_text(json.dumps(record), encoding="utf-8")


class TestVerify:
    def test_a_certificate_that_holds(
        self, certificate: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["verify", str(certificate)]) == 0
        shown = capsys.readouterr()
        assert shown.out.startswith("The certificate holds")
        assert "epsilon = 1, delta = 1e-05 (add_remove)" in shown.out
        assert not shown.err

    @pytest.mark.parametrize(
        ("section", "field", "factor"),
        [
            (None, "epsilon", 0.5),
            (None, "delta", 0.1),
            ("noise", "sigma", 0.9),
            ("sensitivity", "C", 2.0),
            ("sensitivity", "total", 0.5),
        ],
    )
    def test_a_tampered_certificate(
        self,
        certificate: Path,
        capsys: pytest.CaptureFixture[str],
        section: str | None,
        field: str,
        factor: float,
    ) -> None:
        tamper(certificate, section, field, factor)
        assert main(["verify", str(certificate)]) == 1
        shown = capsys.readouterr().out
        assert shown.startswith("The certificate does NOT hold")
        assert "promises" not in shown

    @pytest.mark.parametrize("content", ["{}", "[]", "1", '"text"', "null"])
    def test_json_that_is_no_certificate(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "other.json"
        path.write_text(content, encoding="utf-8")
        assert main(["verify", str(path)]) == 1

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000])
    def test_what_is_not_json(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
    ) -> None:
        path = tmp_path / "broken.json"
        path.write_bytes(content)
        assert main(["verify", str(path)]) == 2
        shown = capsys.readouterr()
        assert not shown.out
        assert shown.err == f"dpsvm-fast: {path} cannot be read: it is not JSON text\n"

    def test_what_cannot_be_opened(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["verify", str(tmp_path / "nowhere.json")]) == 2
        assert main(["verify", str(tmp_path)]) == 2
        assert capsys.readouterr().err.count("cannot be read") == 2

    def test_a_certificate_cannot_steer_the_terminal(
        self, certificate: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        record = json.loads(certificate.read_text(encoding="utf-8"))
        record |= {"mechanism": "\x1b[2J", "\x1b[1A": "The certificate holds", "loss": "\x07"}
        certificate.write_text(json.dumps(record), encoding="utf-8")
        assert main(["verify", str(certificate)]) == 1
        shown = capsys.readouterr().out.replace("\n", "")
        assert shown.isprintable()


class TestPlan:
    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"C": 0.25},
            {"adjacency": "replace_one"},
            {"data_norm": 3.0},
        ],
    )
    def test_it_names_the_noise_that_a_fit_then_adds(
        self, capsys: pytest.CaptureFixture[str], settings: dict[str, Any]
    ) -> None:
        options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        assert main([*PLAN, *options]) == 0
        shown = capsys.readouterr().out
        statement = fitted(**settings).privacy_
        assert f"standard deviation {statement.noise.sigma:.6g} on every weight" in shown
        assert re.search(rf"C +{statement.sensitivity.C:.6g} ", shown)
        assert re.search(rf"sensitivity +{statement.sensitivity.total:.6g}\n", shown)
        assert re.search(rf"= {statement.noise.n_weights}\n", shown)

    def test_a_lead_has_the_stated_chance(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(PLAN) == 0
        lead = float(re.search(r"a lead of (\S+)", capsys.readouterr().out)[1])  # type: ignore[index]
        sigma, norm = fitted().privacy_.noise.sigma, np.hypot(1.0, 0.2)
        assert sigma is not None
        draws = np.random.default_rng(0).normal(scale=sigma, size=(200_000, 2)) * norm
        survived = np.mean(lead + draws[:, 0] > draws[:, 1])
        # Standard deviation of this frequency: 5e-4; a lead without the sqrt 2 gives 0.88.
        assert abs(survived - 0.95) < 3e-3

    def test_few_rows_are_called_hopeless_and_many_are_not(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([*PLAN, "--samples=1"]) == 0
        assert "drowns" in capsys.readouterr().out
        assert main([*PLAN, "--samples=100000"]) == 0
        shown = capsys.readouterr().out
        assert "that 100000 rows can lead by" in shown
        assert "drowns" not in shown

    def test_no_data_set_leads_by_more_than_the_bound(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # Noise of this epsilon is far below what is compared.
        settings = {"epsilon": 1e4, "delta": 1e-5, "C": 0.01}
        n_samples = 50
        X = np.tile([1.0, 0.0], (n_samples, 1))
        y = np.zeros(n_samples, dtype=int)
        model = OutputPerturbationSVC(classes=range(2), **settings).fit(X, y)
        lead = abs(float(model.decision_function(X[:1])[0]))
        arguments = ["plan", "--epsilon=1e4", "--delta=1e-5", "--C=0.01"]
        assert main([*arguments, "--features=2", "--classes=2", f"--samples={n_samples}"]) == 0
        bound = float(capsys.readouterr().out.rpartition("lead by: ")[2])
        assert 0.5 * bound < lead <= bound

    @pytest.mark.parametrize(
        ("option", "named"),
        [
            ("--epsilon=0", "epsilon"),
            ("--epsilon=nan", "epsilon"),
            ("--delta=0", "delta"),
            ("--delta=1", "delta"),
            ("--features=0", "features"),
            ("--classes=1", "classes"),
            ("--C=-1", "C"),
            ("--data-norm=inf", "data_norm"),
            ("--samples=0", "samples"),
        ],
    )
    def test_wrong_settings(
        self, capsys: pytest.CaptureFixture[str], option: str, named: str
    ) -> None:
        assert main([*PLAN, option]) == 2
        assert capsys.readouterr().err.startswith(f"dpsvm-fast: {named}: ")


class TestDemo:
    def test_table_statement_and_plot(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        pytest.importorskip("matplotlib")
        plot, certificate = tmp_path / "plot.png", tmp_path / "certificate.json"
        arguments = ["demo", "--repeats=3", "--output", str(plot)]
        assert main([*arguments, "--certificate", str(certificate)]) == 0
        shown = capsys.readouterr()
        assert not shown.err
        lines = shown.out.splitlines()
        # Paths are as long as they are.
        assert max(len(line) for line in lines if str(tmp_path) not in line) <= 90
        assert "\x1b" not in shown.out
        rows = re.findall(r"^ *(0\.5|1|2|4|8) +(0\.\d+) (?:±|\+-) 0\.\d+ ", shown.out, re.M)
        assert [epsilon for epsilon, _ in rows] == ["0.5", "1", "2", "4", "8"]
        accuracies = [float(accuracy) for _, accuracy in rows]
        ceiling = float(re.search(r"not private +(0\.\d+)", shown.out)[1])  # type: ignore[index]
        assert ceiling > 0.9
        # Far outside the noise of three draws: chance is 0.1, a standard error about 0.02.
        assert accuracies[0] < accuracies[-1] - 0.2
        assert 0.8 < accuracies[-1] < ceiling + 0.02
        assert "Privacy statement: PRIVATE" in shown.out
        assert "epsilon = 1, delta = 1e-05" in shown.out
        assert lines[-1] == f"Plot: {plot}"
        assert plot.read_bytes().startswith(b"\x89PNG")
        assert main(["verify", str(certificate)]) == 0

    def test_a_seed_repeats_and_is_called_not_private(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        runs = []
        for _ in range(2):
            assert main(["demo", "--repeats=1", "--seed=7", "--no-plot"]) == 0
            runs.append(capsys.readouterr().out)
        assert runs[0] == runs[1]
        assert "Privacy statement: NOT PRIVATE" in runs[0]
        assert "Plot:" not in runs[0]

    def test_without_matplotlib_it_says_how_to_get_a_plot(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        plot = tmp_path / "plot.png"
        assert main(["demo", "--repeats=1", "--output", str(plot)]) == 0
        assert "pip install dpsvm-fast[plot]" in capsys.readouterr().out.splitlines()[-1]
        assert not plot.exists()

    @pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
    def test_any_terminal_can_show_it(
        self, encoding: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        path = tmp_path / "shown.txt"
        with path.open("w", encoding=encoding) as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            assert main(["demo", "--repeats=2", "--no-plot"]) == 0
        monkeypatch.undo()
        bars = re.findall(r"#+$", path.read_text(encoding=encoding), re.M)
        assert len(bars) == 6
        assert max(map(len, bars)) <= BAR_WIDTH

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (["--seed=-1"], "--seed"),
            (["--output", "no_such_folder/plot.png"], "--output"),
            (["--output", "plot.xyz"], "--output"),
            (["--certificate", "no_such_folder/c.json"], "--certificate"),
        ],
    )
    def test_wrong_options_end_it_before_any_model(
        self, arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["demo", *arguments]) == 2
        shown = capsys.readouterr()
        assert shown.err.startswith(f"dpsvm-fast: {named}")
        assert not shown.out


class TestMain:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "COMMAND"),
            (["unheard"], "unheard"),
            (["demo", "--repeats=0"], "--repeats"),
            (["plan"], "--epsilon"),
            (["plan", "--epsilon=much"], "--epsilon"),
        ],
    )
    def test_arguments_that_cannot_be_read(
        self, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert exit_.value.code == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as exit_:
            main(["--version"])
        assert exit_.value.code == 0
        assert capsys.readouterr().out == f"dpsvm-fast {__version__}\n"

    def test_the_module_hands_the_exit_code_to_the_shell(self, tmp_path: Path) -> None:
        run = subprocess.run(
            [sys.executable, "-m", "dpsvm_fast", "verify", str(tmp_path / "nowhere.json")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 2
        assert not run.stdout
        assert run.stderr.count("\n") == 1

    def test_interrupt(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("dpsvm_fast.cli.private_scores", interrupted)
        assert main(["demo", "--no-plot"]) == 130
        assert capsys.readouterr().err == "dpsvm-fast: interrupted\n"
