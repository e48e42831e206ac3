"""The check of what a wheel holds finds what is missing, strays, and weight."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from oracles.scripts import module_of

ROOT = Path(__file__).resolve().parents[1]
INFO = "dpsvm_fast-1.0.dist-info"
GOOD = (
    "dpsvm_fast/__init__.py",
    "dpsvm_fast/cli/training.py",
    "dpsvm_fast/_core.pyi",
    "dpsvm_fast/_core.abi3.so",
    "dpsvm_fast/py.typed",
    *(f"{INFO}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")),
    *(f"{INFO}/licenses/LICENSE{kind}" for kind in ("", "-APACHE", "-MIT")),
    f"{INFO}/licenses/THIRD_PARTY_NOTICES",
    f"{INFO}/sboms/crates.json",
)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return module_of("tools/check_wheel.py")


def wheel(
    folder: Path, names: tuple[str, ...], *, tag: str = "manylinux_2_17_x86_64", size: int = 0
) -> Path:
    file = folder / f"dpsvm_fast-1.0-cp310-abi3-{tag}.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
        archive.writestr(f"{INFO}/padding", bytes(size))
    return file


def test_a_good_wheel(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(wheel(tmp_path, GOOD))]) == 0
    assert "1 of 1 wheels as expected" in capsys.readouterr().out


@pytest.mark.parametrize("missing", [name for name in GOOD if "schema" in name or "LIC" in name])
def test_missing_files(script: ModuleType, tmp_path: Path, missing: str) -> None:
    names = tuple(name for name in GOOD if name != missing)
    (fault,) = script.faults(wheel(tmp_path, names))
    assert fault.endswith("is missing")


@pytest.mark.parametrize(
    "stray", ["dpsvm_fast/notes.txt", "tests/test_x.py", "dpsvm_fast/io/__pycache__/a.pyc"]
)
def test_strays(script: ModuleType, tmp_path: Path, stray: str) -> None:
    assert script.faults(wheel(tmp_path, (*GOOD, stray))) == [
        f"{stray} does not belong in the wheel"
    ]


def test_one_module_a_wheel(script: ModuleType, tmp_path: Path) -> None:
    names = (*GOOD, "dpsvm_fast/_core.cpython-314t-x86_64-linux-gnu.so")
    assert script.faults(wheel(tmp_path, names)) == ["expected one compiled module, found 2"]


def test_weight_and_platform(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = wheel(tmp_path, GOOD, tag="linux_x86_64", size=script.LARGEST)
    assert script.main([str(file)]) == 1
    shown = capsys.readouterr().out
    assert "more than 5,000,000" in shown
    assert "runs on this machine alone" in shown
