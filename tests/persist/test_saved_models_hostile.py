"""Files that nobody should trust: loaded as they were saved, or refused with one sentence."""

from __future__ import annotations

import builtins
import errno
import json
import os
import pickle
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsvm_fast import InvalidParameterError
from dpsvm_fast.exceptions import ModelFormatError
from dpsvm_fast.persist import load_model, read_model, save_model
from dpsvm_fast.persist import values as text_module
from oracles.forging import (
    assert_refused,
    assert_same_answers,
    at,
    changed,
    coefficients,
    document_of,
    places,
)
from oracles.saved import QUICK, fitted, rewritten, sealed

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
every_kind = pytest.mark.parametrize("kind", QUICK)
KEY = bytes(range(32))

# Changes that leave the digest as it was.


@given(data=st.data())
@in_one_folder
def test_changed_bytes_are_refused_or_change_nothing(tmp_path: Path, data: Any) -> None:
    kind = data.draw(st.sampled_from(QUICK))
    save_model(fitted(kind), tmp_path / "good.json")
    good = (tmp_path / "good.json").read_bytes()
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 40)))
    put = data.draw(st.binary(max_size=8) | st.sampled_from([b" ", b"\n", good[start:end] * 2]))
    path = tmp_path / "bad.json"
    path.write_bytes(good[:start] + put + good[end:])
    try:
        again = load_model(path, verify=False)
    except ModelFormatError as error:
        assert len(str(error)) < 700  # noqa: PT017
    else:
        assert_same_answers(fitted(kind), again)


@every_kind
def test_a_file_that_was_cut_off_says_so(tmp_path: Path, kind: str) -> None:
    document_of(kind, tmp_path)
    path = tmp_path / f"{kind}.json"
    data = path.read_bytes().rstrip()
    for end in range(1, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:end])
        assert_refused(path, "is cut off; copy or save it again")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b" \n", b"\xff\xfe{", b"hello", b"[]", b"{}", b'{"a": 1,}', b'{"a": 1, "a": 1}'),
        *(b'{"format": "dpsvm_fast.certificate"}', b'{"format": "dpsvm_fast.model"}'),
        *(
            f'{{"format": "dpsvm_fast.model", "version": {version}}}'.encode()
            for version in ("0", "true", "1", "3")
        ),
        *(b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": ' + b"9" * 5000 + b"}"),
        *(b'{"a": ' + b"[" * deep + b"]" * deep + b"}" for deep in (200, 200_000)),
        b'{"a": ' + b'{"a": ' * 100_000 + b"1" + b"}" * 100_000 + b"}",
        b'{"a": [' + b"0," * 1_000_001 + b"0]}",
        *(pickle.dumps(3), b"PK\x03\x04rest", b"\x1f\x8brest", b"PAR1rest"),
    ],
    ids=range(26),
)
def test_what_is_no_model_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(data)
    assert_refused(path, ".")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    document = document_of("output", tmp_path) | {"version": 5, "something": "new"}
    assert_refused(rewritten(tmp_path / "model.json", document), "newer")


@every_kind
def test_every_single_change_breaks_the_digest(tmp_path: Path, kind: str) -> None:
    document = document_of(kind, tmp_path)
    path = tmp_path / "model.json"
    ways = [way for way in places(document) if not isinstance(at(document, way), (dict, list))]
    for way in ways[:: max(1, len(ways) // 25)]:
        value = at(document, way)
        other = "0" + value[1:] if isinstance(value, str) and value[:1] != "0" else "1"
        path.write_text(json.dumps(changed(document, way, other)))
        assert_refused(path, "was changed or damaged|format|version|missing or unknown fields")


def test_too_large_a_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document_of("output", tmp_path)
    monkeypatch.setattr("dpsvm_fast.files.LARGEST_FILE", 1000)
    assert_refused(tmp_path / "output.json", "larger than 1000 bytes")
    with pytest.raises(InvalidParameterError, match="at most 1000"):
        save_model(fitted("output"), tmp_path / "other.json")


# Keys.


def test_with_a_key_every_forgery_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save_model(fitted("output"), path, key=KEY)
    assert_same_answers(fitted("output"), load_model(path, key=KEY))
    assert_same_answers(fitted("output"), load_model(path))
    document = json.loads(path.read_text())
    assert KEY.hex() not in path.read_text()
    assert read_model(path, key=KEY).signature == "checked"
    assert read_model(path).signature == "not checked"
    zeros = coefficients(np.zeros((3, 4)))
    forged = changed(document, ("model", "attributes", "coef_"), zeros)
    rewritten(path, forged)
    assert not load_model(path).coef_.any()
    assert_refused(path, "not signed with this key, or was changed", key=KEY)
    rewritten(path, {k: v for k, v in document.items() if k != "hmac_sha256"})
    assert read_model(path).signature == "none"
    assert_refused(path, "is not signed", key=KEY)
    rewritten(path, document | {"hmac_sha256": "ä"})
    assert_refused(path, "not signed with this key", key=KEY)


def test_a_key_may_be_in_a_file_and_another_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    path = tmp_path / "model.json"
    save_model(fitted("output"), path, key=tmp_path / "key")
    assert_same_answers(fitted("output"), load_model(path, key=str(tmp_path / "key")))
    assert_same_answers(fitted("output"), read_model(path, key=KEY).estimator)
    assert_refused(path, "not signed with this key", key=KEY[::-1])


# What a load does to the process.


@every_kind
def test_loading_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = tmp_path / "model.json"
    save_model(fitted(kind), path)
    load_model(path)
    seen: list[str] = []
    watching = [True]
    forbidden = ("exec", "compile", "import", "pickle", "os.", "subprocess", "socket", "ctypes")

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and (event.startswith(forbidden) or (event == "open")):
            seen.append(f"{event} {arguments[0]}")

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("code was run")

    sys.addaudithook(watch)
    for name in ("eval", "exec", "compile"):
        monkeypatch.setattr(builtins, name, refuse)
    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    again = load_model(path)
    watching.clear()
    monkeypatch.undo()
    assert set(seen) == {f"open {path}"}
    assert_same_answers(fitted(kind), again)


def test_the_hook_of_the_test_above_sees_code() -> None:
    """Negative control: the events are raised in this interpreter."""
    seen: list[str] = []
    watching = [True]
    sys.addaudithook(lambda event, _: seen.append(event) if watching else None)
    eval("1 + 1")
    pickle.loads(pickle.dumps(InvalidParameterError))
    watching.clear()
    assert {"exec", "compile", "pickle.find_class"} <= set(seen)


# Files.


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.json"
    save_model(fitted("output"), path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left on device"):
        save_model(fitted("linear"), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_file_modes(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    before = os.umask(0o027)
    try:
        save_model(fitted("output"), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        save_model(fitted("output"), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        link = tmp_path / "link.json"
        link.symlink_to(path)
        save_model(fitted("linear"), link)
        assert link.is_symlink()
        assert type(load_model(path)).__name__ == "PrivateLinearSVC"
    finally:
        os.umask(before)


def test_the_digest_is_that_of_the_page(tmp_path: Path) -> None:
    document = document_of("output", tmp_path)
    assert sealed(document) == document
    assert document["version"] == text_module.VERSION
