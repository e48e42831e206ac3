"""Flower as a postman: it carries our messages, and nothing that it does changes what is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("flwr", reason="needs Flower")

import dpsvm_fast.federated.flower as postman
from dpsvm_fast import PrivacyLeakWarning
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated import FederatedSpec, SecureSumAborted, finalize
from dpsvm_fast.federated.flower import (
    RECORD,
    exchange_over,
    make_client_app,
    make_server_app,
    require,
    run_secure_round,
    run_training,
)
from dpsvm_fast.federated.protocol import ANSWERED_BEFORE, UNKNOWN_MESSAGE, RoundTerms, read, write
from dpsvm_fast.ledger import PrivacyLedger
from oracles.flower_grid import LocalGrid, context_of, server_identity

from flwr.app import ConfigRecord, Message, RecordDict  # isort: skip  (after it is kept quiet)

SECRET = "patient 4711"


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    with server_identity():
        yield


def records(party: int, n: int = 30) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(party)
    y = rng.integers(0, 2, n)
    X = np.where(y[:, None] == 1, 1.0, -1.0) * np.eye(1, 4) + 0.2 * rng.normal(size=(n, 4))
    return X / np.linalg.norm(X, axis=1).max(), y


SHARED: dict[str, Any] = {
    "n_users": 4,
    "n_features": 4,
    "classes": [0, 1],
    "epsilon": 4.0,
    "delta": 1e-6,
    "max_records": 30,
    "max_dropout": 0.25,
    "honest_fraction": 0.75,
}


def study(**others: Any) -> FederatedSpec:
    return FederatedSpec.dp_helmet(**(SHARED | others))


def apps(spec: FederatedSpec, folder: Path, **others: Any) -> list[Any]:
    return [
        make_client_app(spec, lambda _, i=i: records(i), journal=folder / str(i), **others)
        for i in range(4)
    ]


def test_apps_train_a_model_charge_the_ledgers_and_answer_one_run(tmp_path: Path) -> None:
    agreed = study()
    ledgers = [PrivacyLedger(8.0, 1e-5, "replace_one") for _ in range(4)]
    parties = [
        make_client_app(
            agreed, lambda _, i=i: records(i), ledger=ledgers[i], journal=tmp_path / str(i)
        )
        for i in range(4)
    ]
    models: list[Any] = []
    server = make_server_app(agreed, on_result=lambda model, _: models.append(model), wait=0.0)
    server(LocalGrid(parties), context_of(1))
    (model,) = models
    assert model.privacy_.trust == "secure_sum"
    assert model.score(*records(99)) > 0.5
    spent = [ledger.total() for ledger in ledgers]
    assert all(0.0 < epsilon <= 4.0 + 1e-6 for epsilon, _ in spent)
    with pytest.raises(SecureSumAborted) as caught:
        server(LocalGrid(parties), context_of(1))
    assert caught.value.stage == "advertise_keys"
    assert caught.value.__notes__ == [f"4 of the parties: {ANSWERED_BEFORE}"]
    assert [ledger.total() for ledger in ledgers] == spent


def test_two_rounds_with_public_numbers_in_between(tmp_path: Path) -> None:
    agreed = FederatedSpec.fed_dpdr(**SHARED, n_components=2)
    grid = LocalGrid(apps(agreed, tmp_path))
    model = run_training(grid, agreed, grid.get_node_ids())
    assert model.components_.shape == (2, 4)


def test_persons_are_counted_by_their_ids(tmp_path: Path) -> None:
    # Five rows a person: rows would be too many for the specification, persons are not.
    agreed = study(unit="person", local="exact", max_records=6)

    def app(i: int, *groups: Any) -> Any:
        return make_client_app(agreed, lambda _: (*records(i), *groups), journal=tmp_path / str(i))

    ids = np.arange(30) // 5
    grid = LocalGrid([app(0), *(app(i, ids) for i in range(1, 4))])
    model = run_training(grid, agreed, grid.get_node_ids())
    assert model.n_survivors_ == 3
    assert model.n_records_ == 18
    assert model.privacy_.unit == "person"


def test_without_a_journal_a_round_is_answered_once_in_a_run(tmp_path: Path) -> None:
    agreed = study()
    ledger = PrivacyLedger(20.0, 1e-4, "replace_one")
    parties = [make_client_app(agreed, lambda _: records(0), ledger=ledger)] * 4
    grid = LocalGrid(parties)
    run_secure_round(grid, agreed, "model", grid.get_node_ids())
    with pytest.raises(SecureSumAborted):
        run_secure_round(grid, agreed, "model", grid.get_node_ids())
    # Another run of the server has other noise, and is charged.
    before = len(ledger.history)
    again = LocalGrid(parties)
    run_secure_round(again, agreed, "model", again.get_node_ids())
    assert len(ledger.history) == 2 * before


def test_a_ledger_that_refuses_keeps_its_party_out_and_its_data_unread() -> None:
    agreed = study()
    budgets = [0.01, 8.0, 8.0, 8.0]
    ledgers = [PrivacyLedger(epsilon, 1e-5, "replace_one") for epsilon in budgets]
    read_by: list[int] = []

    def load(party: int) -> Any:
        read_by.append(party)
        return records(party)

    parties = [
        make_client_app(agreed, lambda _, i=i: load(i), ledger=ledger)
        for i, ledger in enumerate(ledgers)
    ]
    grid = LocalGrid(parties)
    model = run_training(grid, agreed, grid.get_node_ids())
    assert model.n_survivors_ == 3
    assert sorted(read_by) == [1, 2, 3]
    assert not ledgers[0].history


def test_a_party_that_counts_nothing_is_warned() -> None:
    with pytest.warns(PrivacyLeakWarning):
        make_client_app(study(), lambda _: records(0))


def test_the_server_waits_for_enough_parties_and_takes_no_strangers(tmp_path: Path) -> None:
    agreed = study()
    app = make_client_app(agreed, lambda _: records(0), journal=tmp_path)
    server = make_server_app(agreed, on_result=lambda *_: None, wait=0.01)
    with pytest.raises(SecureSumAborted) as aborted:
        server(LocalGrid([app] * 2), context_of(1))
    assert aborted.value.stage == "waiting"
    with pytest.raises(InvalidParameterError) as refused:
        server(LocalGrid([app] * 5), context_of(1))
    assert refused.value.parameter == "parties"


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"timeout": 0.0}, "timeout"), ({"attempts": 0}, "attempts"), ({"round_name": "x"}, None)],
)
def test_wrong_settings_of_a_round_are_refused_before_anything_is_sent(
    settings: dict[str, Any], name: str | None
) -> None:
    given = {"round_name": "model"} | settings
    with pytest.raises(InvalidParameterError) as caught:
        run_secure_round(None, study(), given.pop("round_name"), range(4), **given)
    assert caught.value.parameter == (name or "round_name")


def test_endless_waiting_is_refused() -> None:
    with pytest.raises(TypeError):
        run_secure_round(None, study(), "model", range(4), timeout=None)  # type: ignore[arg-type]


def message_of(content: RecordDict, kind: str = "train") -> Message:
    return Message(content, dst_node_id=1001, message_type=kind)


STRANGE = {
    "nothing": RecordDict(),
    "another record": RecordDict({"x": ConfigRecord({"message": b"{}"})}),
    "no bytes": RecordDict({RECORD: ConfigRecord({"message": "{}"})}),
    "no message": RecordDict({RECORD: ConfigRecord({"other": b"{}"})}),
}


@pytest.mark.parametrize("kind", ["train", "train.default"])
@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE)
def test_what_carries_no_message_of_ours_gets_a_constant_text(
    content: RecordDict, kind: str, tmp_path: Path
) -> None:
    app = make_client_app(study(), lambda _: records(0), journal=tmp_path)
    reply = app(message=message_of(content, kind), context=context_of(1001))
    assert set(reply.content) == {RECORD}
    assert read(reply.content[RECORD]["message"]) == {"refused": UNKNOWN_MESSAGE}


@pytest.mark.parametrize("kind", ["train.default", "train.other", "evaluate", "query"])
def test_no_type_of_message_gets_past_the_masks(kind: str, tmp_path: Path) -> None:
    """Flower hands some types to the same function: it is the protocol that answers."""
    agreed = study()
    read_by: list[int] = []

    def load(_: Any) -> Any:
        read_by.append(1)
        return records(0)

    app = make_client_app(agreed, load, journal=tmp_path)
    head = RoundTerms.of_rounds(agreed)["model"].head("s", "masked_input", 1001)
    content = RecordDict({RECORD: ConfigRecord({"message": write(head | {"packets": []})})})
    (reply,) = LocalGrid([app]).send_and_receive([message_of(content, kind)])
    assert not read_by
    assert reply.has_error() or "refused" in read(reply.content[RECORD]["message"])


@pytest.mark.parametrize("place", ["spec", "load", "ledger", "journal"])
def test_what_a_partys_own_code_raises_reaches_nobody(place: str, tmp_path: Path) -> None:
    def fail(_: Any) -> Any:
        raise RuntimeError(SECRET)

    agreed = study()
    own: dict[str, Any] = {
        "spec": agreed,
        "load_data": lambda _: records(0),
        "ledger": PrivacyLedger(8.0, 1e-5, "replace_one"),
        "journal": tmp_path / "0",
    }
    own["load_data" if place == "load" else place] = fail
    grid = LocalGrid([make_client_app(**own), *apps(agreed, tmp_path)[1:]])
    model = run_training(grid, agreed, grid.get_node_ids())
    assert model.n_survivors_ == 3
    assert not any(reply.has_error() for reply in grid.replies)
    assert all(SECRET not in str(vars(reply)) for reply in grid.replies)


def test_of_two_replies_the_first_counts_and_failures_are_empty() -> None:
    class Twice:
        def send_and_receive(self, messages: Any, *, timeout: float) -> list[Message]:
            (message,) = messages
            message.metadata._message_id = "1"  # type: ignore[attr-defined]
            contents = [
                RecordDict({RECORD: ConfigRecord({"message": data})}) for data in (b"1", b"2")
            ]
            return [Message(content, reply_to=message) for content in contents]

    assert exchange_over(Twice(), 1.0)({1001: b"0"}) == {1001: b"1"}

    def raising(message: Message, context: Any) -> Message:
        raise RuntimeError(SECRET)

    assert exchange_over(LocalGrid([raising]), 1.0)({1001: b"0"}) == {1001: b""}


def test_the_model_is_that_of_the_sums(tmp_path: Path) -> None:
    agreed = study()
    grid = LocalGrid(apps(agreed, tmp_path))
    total = run_secure_round(grid, agreed, "model", grid.get_node_ids())
    assert finalize({"model": total}, agreed).n_survivors_ == 4


@pytest.mark.slow
def test_nothing_of_flower_is_replaced() -> None:
    """Modules of Flower hold what they held before, but for what Flower itself does."""
    code = (
        "import os, sys\n"
        "os.environ['FLWR_HOME'] = os.environ['HOME'] = '/nonexistent'\n"
        "import flwr.app, flwr.clientapp, flwr.serverapp\n"
        "flower = {n: m for n, m in sys.modules.items() if n.startswith('flwr')}\n"
        "before = {n: dict(vars(m)) for n, m in flower.items()}\n"
        "import dpsvm_fast.federated.flower as postman\n"
        "for name, module in flower.items():\n"
        "    now = vars(module)\n"
        "    assert all(now[k] is v for k, v in before[name].items()), name\n"
        "    new = [v for k, v in now.items() if k not in before[name]]\n"
        "    ours = [v for v in new if 'dpsvm' in str(getattr(v, '__module__', ''))]\n"
        "    assert not ours, name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_flower_is_silenced_before_it_is_imported() -> None:
    code = (
        "import os, sys\n"
        "import dpsvm_fast.federated\n"
        "assert 'flwr' not in sys.modules and 'cryptography' not in sys.modules\n"
        "import dpsvm_fast.federated.flower\n"
        "import flwr.supercore.telemetry as telemetry\n"
        "assert telemetry.FLWR_TELEMETRY_ENABLED == '0'\n"
        "home = os.environ['FLWR_HOME']\n"
        "assert os.stat(home).st_mode & 0o077 == 0\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(postman.__file__).parents[2])}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=environment)


def test_a_missing_flower_says_what_to_install() -> None:
    with pytest.raises(ImportError) as caught:
        require("numpy", "no_such_engine")
    assert "no_such_engine" in str(caught.value)
    assert "numpy" not in str(caught.value)
