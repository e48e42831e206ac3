"""The script that compares seeded fits of two machines sees what differs."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from oracles.scripts import module_of


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
