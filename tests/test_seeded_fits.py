"""Seeded fits agree between processors, and the script that compares them sees what differs."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from oracles.scripts import ROOT, module_of

EMULATOR = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return module_of("tools/seeded_fits.py")


def test_a_changed_weight_is_seen(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    weights, wrong = script.fits()
    assert not wrong
    monkeypatch.setattr(script, "fits", lambda: (weights, []))
    first, second = str(tmp_path / "first.npz"), str(tmp_path / "second.npz")
    assert script.main([first]) == 0
    assert script.main([second, first]) == 0
    assert capsys.readouterr().out.count(": same") == len(script.MODELS)
    weights["kernel"][3, 5] += 1e-5 * np.abs(weights["kernel"]).max()
    assert script.main([second, first]) == 1
    assert "kernel: weights differ by 1.0e-05" in capsys.readouterr().out


def test_a_verifier_that_confirms_everything_is_seen(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "MODELS", {"output": script.MODELS["output"]})
    monkeypatch.setattr(script, "verify", lambda certificate: True)
    assert script.fits()[1] == ["output: a forged certificate holds"]


@pytest.mark.nightly
@pytest.mark.skipif(EMULATOR is None, reason="needs qemu-x86_64")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="emulates x86-64 on itself")
@pytest.mark.parametrize(("processor", "level"), [("Haswell", "x86-64-v3"), ("Nehalem", "x86-64")])
def test_an_older_processor_fits_the_same_models(
    tmp_path: Path, processor: str, level: str
) -> None:
    """Without AVX-512, and without AVX: the kernels of the wheel for those."""
    command = [sys.executable, str(ROOT / "tools" / "seeded_fits.py")]
    here, there = str(tmp_path / "here.npz"), str(tmp_path / "there.npz")
    subprocess.run([*command, here], check=True)
    emulated = [str(EMULATOR), "-cpu", processor, *command, there, here]
    done = subprocess.run(emulated, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[0] == level
