"""The example of three hospitals, as far as it runs without servers."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dpsvm_fast import verify
from dpsvm_fast.federated import FederatedSpec, simulate

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/federated"
HOSPITALS = ("hospital_a", "hospital_b", "hospital_c")


OWN_MODULES = ("hospitals", "prepare_data", "make_spec", "evaluate")


@pytest.fixture(scope="module")
def example() -> Iterator[Callable[[str], ModuleType]]:
    """The example's modules by name; they import each other as its scripts do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        yield importlib.import_module
        for name in [name for name in sys.modules if name.split(".")[0] in OWN_MODULES]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def columns(example: Callable[[str], ModuleType]) -> ModuleType:
    """The agreed columns."""
    return example("hospitals.columns")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, example: Callable[[str], ModuleType]) -> Path:
    """What the example's script writes."""
    folder = tmp_path_factory.mktemp("hospitals")
    example("prepare_data").main([str(folder)])
    return folder


def test_hospitals_share_no_record(data: Path) -> None:
    lines = [
        line
        for name in (*HOSPITALS, "held_out")
        for line in (data / f"{name}.csv").read_text(encoding="utf-8").splitlines()[1:]
    ]
    assert len(lines) == len(set(lines)) == 569


def test_the_study_trains_and_its_certificate_holds(
    data: Path,
    tmp_path: Path,
    example: Callable[[str], ModuleType],
    columns: ModuleType,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example("make_spec").main([str(tmp_path / "spec.json"), "a name"])
    shown = capsys.readouterr().out
    spec = FederatedSpec.from_json((tmp_path / "spec.json").read_text(encoding="utf-8"))
    assert f"digest: {spec.digest()}" in shown
    assert spec.study == "a name"
    # One may vanish, one may help the server: the noise of one honest hospital carries the proof.
    assert (spec.n_users, spec.survivors_needed, spec.threshold) == (3, 2, 2)
    assert spec.honest_survivors == 1
    parties = [columns.read(data / f"{name}.csv") for name in HOSPITALS]
    model = simulate(spec, parties)
    assert verify(model.privacy_.to_json()).ok
    assert model.privacy_.epsilon <= 4.0
    np.savez(
        tmp_path / "model.npz",
        coef=model.coef_,
        intercept=model.intercept_,
        classes=np.array(model.classes_, dtype=str),
    )
    example("evaluate").main([str(tmp_path / "model.npz"), str(data / "held_out.csv")])
    found = re.search(r"right about (\S+) of 119 records", capsys.readouterr().out)
    rows, labels = columns.read(data / "held_out.csv")
    assert float(found[1]) == pytest.approx(model.score(rows, labels), abs=6e-4)


def test_scaling_needs_no_data(columns: ModuleType) -> None:
    low, high = np.array(columns.RANGES).T
    corners = columns.scaled(np.array([low, high, low - 1.0, high + 1e9]))
    expected = 1.0 / (0.5 * np.sqrt(len(columns.COLUMNS)))
    assert corners == pytest.approx(expected * np.outer([-1.0, 1.0, -1.0, 1.0], np.ones(len(low))))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("diagnosis", "outcome", "header"),
        ("mean radius", "mean diameter", "header"),
        ("malignant,", "unsure 4711,", "label"),
        ("benign,", "benign,4711,", "number of cells"),
        ("benign,", "benign,4711x", "not a number"),
        ("benign,", "benign,nan", "not a number|not finite"),
    ],
)
def test_a_wrong_file_is_refused_without_its_values(
    data: Path, tmp_path: Path, columns: ModuleType, old: str, new: str, problem: str
) -> None:
    text = (data / "hospital_a.csv").read_text(encoding="utf-8")
    assert old in text
    file = tmp_path / "wrong.csv"
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=problem) as raised:
        columns.read(file)
    assert "4711" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_the_readme_names_every_file() -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    for file in (*EXAMPLE.glob("*.py"), *EXAMPLE.glob("*.sh")):
        assert file.name in readme
