"""``dpsvm-fast verify`` as somebody uses it who was handed a file: what it says, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpsvm_fast.cli import main
from oracles.statements import statement_of

pytest.importorskip("click")

CERTIFICATES = {
    "release": ("output", "output_perturbation with loss crammer_singer"),
    "pipeline": ("pipeline pure", "a pipeline of 2 steps"),
    "search": ("search", "a search over 2 candidates"),
    "parties": ("helmet", "dp_helmet across 20 parties"),
}


def document(name: str) -> dict[str, Any]:
    """The certificate of a kind as plain values."""
    made: dict[str, Any] = statement_of(CERTIFICATES[name][0], "add_remove").to_dict()
    return made


def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> tuple[int, str, str]:
    """Exit code and what was written, for a file with this text."""
    path = tmp_path / "file.json"
    path.write_text(text, encoding="utf-8")
    code = main(["verify", str(path)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


every_certificate = pytest.mark.parametrize("name", CERTIFICATES)


@every_certificate
def test_a_good_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = said(tmp_path, capsys, json.dumps(document(name)))
    assert (code, err) == (0, "")
    assert "The certificate holds" in out
    assert f"for {CERTIFICATES[name][1]}." in out
    assert "No recomputation can show" in out


@every_certificate
def test_a_tampered_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    made = document(name)
    code, out, _ = said(tmp_path, capsys, json.dumps(made | {"epsilon": made["epsilon"] / 2.0}))
    assert code == 1
    assert "does NOT hold" in out
    assert "Do not rely on it" in out
    assert "promises" not in out


@every_certificate
def test_a_truncated_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = json.dumps(document(name), indent=2)
    for end in (1, len(text) // 2, len(text) - 1):
        code, out, err = said(tmp_path, capsys, text[:end].rstrip(' "abcdefghijklmnopqrstuvwxyz_'))
        assert (code, out) == (2, "")
        assert "ends too early" in err
        assert "again" in err


@every_certificate
def test_a_file_of_the_future(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    code, out, _ = said(tmp_path, capsys, json.dumps(document(name) | {"version": 3}))
    assert code == 1
    assert "version: got 3, expected 2" in out
    assert "release of dpsvm_fast" in out


def test_a_file_that_ends_within_a_string(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(tmp_path, capsys, '{"format": "dpsvm_fast.mod')
    assert (code, out) == (2, "")
    assert "ends too early; copy or download the whole file again" in err


@pytest.mark.parametrize("text", ["not JSON", "<html></html>", "epsilon = 1", "\x00"])
def test_a_file_of_another_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    code, out, err = said(tmp_path, capsys, text)
    assert (code, out) == (2, "")
    assert "not JSON text; expected a file with what model.privacy_.to_json() returns" in err


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"format": 3}', '{"format": "other"}'])
def test_json_of_another_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    code, out, _ = said(tmp_path, capsys, text)
    assert code == 1
    assert "no certificate of dpsvm_fast" in out
    assert "to_json()" in out


def test_numbers_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = json.dumps(document("release"))
    for number in ("NaN", "Infinity", "1e999"):
        code, out, _ = said(
            tmp_path, capsys, text.replace('"epsilon": 2.0', f'"epsilon": {number}')
        )
        assert code == 1
        assert "does NOT hold" in out


def test_a_file_that_would_fill_the_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsvm_fast.certificates.record.MAX_VALUES", 1000)
    code, _, err = said(tmp_path, capsys, json.dumps([[]] * 600))
    assert code == 2
    assert "cannot be read" in err
