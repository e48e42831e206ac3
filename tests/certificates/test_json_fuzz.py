"""Certificates and ledgers from anywhere: read, or refused with a typed error; never anything else.

Random documents, and true ones with something changed: deep nesting, huge integers, lone
surrogates, repeated keys, other types.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsvm_fast import LedgerError, PrivacyLedger, verify
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from oracles.odd_inputs import X, Y
from oracles.subjects import made
from oracles.tampering import places, replaced

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**63, 10**400, -(10**400), 0.0, -0.0, 1e308, 5e-324, 1e-320,
    float("nan"), float("inf"), float("-inf"), "", "1", "\ud800", "\0", "x" * 10_000, [], {}, [[]],
    {"": None}, [None] * 100,
]  # fmt: skip
odd = st.sampled_from(ODD)
documents = st.recursive(
    odd | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.fixture(scope="module", params=["output", "linear", "pca", "objective"])
def certificate(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(json.loads(made(request.param).fit(X, Y).privacy_.to_json()))


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("ledger") / "ledger.json"
    ledger = PrivacyLedger(2.0, 1e-6)
    ledger.spend(PureEvent(0.5, "add_remove"), "first")
    ledger.spend(GaussianEvent(sigma=9.0, sensitivity=1.0, adjacency="add_remove"), "second")
    ledger.save(path)
    return dict(json.loads(path.read_text()))


def paths_in(document: Any) -> list[tuple[Any, ...]]:
    """All ways from the root to a value."""
    return [(), *(path for path, _ in places(document))]


def read_as_certificate(value: Any) -> bool:
    """As text and as a mapping; neither may raise anything but a TypeError for no document."""
    text = value if isinstance(value, str) else json.dumps(value)
    outcome = verify(text)
    assert outcome.ok == (outcome.problems == ())
    if isinstance(value, dict):
        assert verify(value).ok == outcome.ok
    return bool(outcome)


def read_as_ledger(path: Path, text: str) -> bool:
    """Whether it is one."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        ledger = PrivacyLedger.load(path)
    except LedgerError as error:
        assert len(str(error)) < 1000  # noqa: PT017
        return False
    assert 0.0 < ledger.epsilon <= 1e4
    return len(ledger.history) > 0


@given(value=documents)
def test_random_documents_are_no_certificates(value: Any) -> None:
    assert not read_as_certificate(value)


@given(data=st.data())
@in_one_folder
def test_changed_certificates_hold_or_do_not(certificate: dict[str, Any], data: Any) -> None:
    path = data.draw(st.sampled_from(paths_in(certificate)))
    value = data.draw(odd | documents)
    outcome = read_as_certificate(replaced(certificate, path, value))
    assert isinstance(outcome, bool)


def test_the_unchanged_ones_hold(certificate: dict[str, Any]) -> None:
    """Negative control."""
    assert read_as_certificate(certificate)
    assert not read_as_certificate(replaced(certificate, ("delta",), 1e-30))


@given(value=documents)
@in_one_folder
def test_random_documents_are_no_ledgers(tmp_path: Path, value: Any) -> None:
    assert not read_as_ledger(tmp_path / "ledger.json", json.dumps(value))


@given(data=st.data())
@in_one_folder
def test_changed_ledgers_are_read_or_refused(
    tmp_path: Path, snapshot: dict[str, Any], data: Any
) -> None:
    path = data.draw(st.sampled_from(paths_in(snapshot)))
    value = data.draw(odd | documents)
    read_as_ledger(tmp_path / "ledger.json", json.dumps(replaced(snapshot, path, value)))


def test_the_unchanged_ledger_is_read(tmp_path: Path, snapshot: dict[str, Any]) -> None:
    """Negative control."""
    assert read_as_ledger(tmp_path / "ledger.json", json.dumps(snapshot))


TEXTS = {
    "nothing": "",
    "half": '{"format": "dpsvm_fast.certi',
    "deep lists": "[" * 200_000 + "]" * 200_000,
    "deep objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "open lists": "[" * 200_000,
    "huge integer": '{"epsilon": ' + "9" * 10_000 + "}",
    "huge exponent": '{"epsilon": 1e999999999}',
    "not a number": '{"epsilon": NaN}',
    "lone surrogate": '{"format": "\\ud800"}',
    "zero byte": '{"format": "\\u0000"}\0',
    "byte order mark": "\ufeff{}",
    "comment": "{} // nothing",
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_that_are_no_documents(name: str, tmp_path: Path) -> None:
    assert not verify(TEXTS[name])
    assert not read_as_ledger(tmp_path / "ledger.json", TEXTS[name])


def test_a_deep_value_in_a_document(
    certificate: dict[str, Any], snapshot: dict[str, Any], tmp_path: Path
) -> None:
    for depth in (100, 900):
        assert not verify(replaced(certificate, ("epsilon",), nested(depth)))
        text = json.dumps(replaced(snapshot, ("epsilon",), nested(depth)))
        assert not read_as_ledger(tmp_path / "ledger.json", text)


@pytest.mark.parametrize("name", ["epsilon", "delta", "adjacency"])
def test_repeated_keys_are_refused(
    name: str, certificate: dict[str, Any], snapshot: dict[str, Any], tmp_path: Path
) -> None:
    """Two readers might take one the first, the other the last of them."""
    for document in (certificate, snapshot):
        text = json.dumps(document)
        twice = text[:-1] + f", {json.dumps(name)}: {json.dumps(document[name])}}}"
        assert json.loads(twice) == document
        if document is certificate:
            assert not verify(twice)
        else:
            assert not read_as_ledger(tmp_path / "ledger.json", twice)


def test_files_that_are_no_ledgers_never_become_one(tmp_path: Path) -> None:
    """A ledger that was cut off, to nothing at the worst, must not become a new budget."""
    path = tmp_path / "ledger"
    for content in (b"", b"\xff\xfe{}", b"\x80", b"SQLite format 3\0", bytes(range(256))):
        path.write_bytes(content)
        with pytest.raises(LedgerError):
            PrivacyLedger.load(path)
        for _ in range(2):
            with pytest.raises(LedgerError):
                PrivacyLedger(1.0, 0.0, path=path)
    path.unlink()
    assert PrivacyLedger(1.0, 0.0, path=path).history == ()
