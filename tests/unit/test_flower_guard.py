"""What a party refuses to do for a server, and how little it says when it refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("dpsvm_fast.federated.flower", reason="secure sums need flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common import bytes_to_ndarray

from dpsvm_fast import PrivacyLeakWarning
from dpsvm_fast.federated import FederatedSpec, PartyRefusedError, SecureSumAborted
from dpsvm_fast.federated.flower import make_client_app, make_server_app
from dpsvm_fast.federated.flower import protocol as said
from dpsvm_fast.federated.flower.client import (
    FileJournal,
    checked_vector,
    current_terms,
    make_party_app,
)
from dpsvm_fast.federated.flower.protocol import RoundTerms
from dpsvm_fast.federated.flower.secsum import LocalGrid, server_identity
from dpsvm_fast.federated.flower.server import run_training, sum_of_parties
from dpsvm_fast.ledger import PrivacyLedger

N, NEEDED, THRESHOLD, LENGTH = 5, 4, 3, 6
TERMS = RoundTerms(
    digest="d", name="sum", length=LENGTH, n_users=N, min_survivors=NEEDED, threshold=THRESHOLD
)
CONFIGS, TAG = "secaggplus_configs", "dpsvm_fast"
VECTOR = np.array([5, -7, 2**29 - 1, 0, 3, 1], dtype=np.int64)
SECRET = "patient 4711"


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    with server_identity():
        yield


class Wire:
    """A grid that changes the server's requests to one party, and keeps that party's replies."""

    def __init__(self, grid: LocalGrid, stage: str, change: Callable[[Message], Any]) -> None:
        self._grid, self._stage, self._change = grid, stage, change
        self.victim = grid.get_node_ids()[0]
        self.replies: list[Message] = []

    def get_node_ids(self) -> list[int]:
        return self._grid.get_node_ids()

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        replies = []
        for message in messages:
            mine = message.metadata.dst_node_id == self.victim
            stage = message.content.config_records[CONFIGS]["stage"]
            if mine and stage == self._stage:
                # Stages before went through one record for all parties.
                copy = {name: dict(r) for name, r in message.content.config_records.items()}
                content = RecordDict({n: ConfigRecord(r) for n, r in copy.items()})
                for name, record in message.content.array_records.items():
                    content[name] = record
                message.content = content
                self._change(message)
            reply = self._grid.send_and_receive([message], timeout=timeout)
            self.replies += reply if mine else []
            replies += reply
        return replies


def parties(vector: NDArray[np.int64] = VECTOR) -> LocalGrid:
    return LocalGrid([make_party_app(lambda _: {"sum": TERMS}, lambda *_: vector)] * N)


def refusal(stage: str, change: Callable[[Message], Any]) -> str:
    """What the first party answers to a changed request."""
    wire = Wire(parties(), stage, change)
    sum_of_parties(wire, TERMS, wire.get_node_ids(), attempts=1)
    (answer,) = [reply.error.reason for reply in wire.replies if reply.has_error()]
    assert not wire.replies[-1].has_content()
    return str(answer)


def configs(message: Message) -> Any:
    return message.content.config_records[CONFIGS]


def setting(name: str, value: Any) -> Callable[[Message], Any]:
    return lambda message: configs(message).__setitem__(name, value)


def tagged(name: str, value: str) -> Callable[[Message], Any]:
    return lambda message: message.content.config_records[TAG].__setitem__(name, value)


def test_an_unchanged_request_is_answered() -> None:
    """Negative control of all tests below."""
    wire = Wire(parties(), "setup", lambda _: None)
    result = sum_of_parties(wire, TERMS, wire.get_node_ids())
    assert result.survivors == N
    assert np.array_equal(result.total, N * VECTOR)
    assert [reply.has_error() for reply in wire.replies] == [False] * 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clipping_range", 8.0),
        ("clipping_range", 2.0**30),
        ("target_range", 2**22),
        ("mod_range", 2**32),
        ("mod_range", 2**62),
        ("max_weight", 1000.0),
        ("max_weight", 1),
        ("threshold", THRESHOLD - 1),
        ("threshold", 1),
        ("threshold", N + 1),
        ("share_num", 3),
        ("share_num", N + 1),
        ("sample_num", N + 1),
        ("another", 1),
    ],
)
def test_other_terms_are_refused(name: str, value: Any) -> None:
    assert said.WRONG_TERMS in refusal("setup", setting(name, value))


def test_a_round_planned_for_too_few_is_refused() -> None:
    def shrink(message: Message) -> None:
        configs(message)["sample_num"] = configs(message)["share_num"] = NEEDED - 1

    assert said.TOO_FEW_PARTIES in refusal("setup", shrink)


STAGES = ("setup", "share_keys", "collect_masked_vectors", "unmask")
TAGS = [
    ("digest", "e", said.ANOTHER_SPECIFICATION),
    ("protocol", "secagg-mask/v0", said.ANOTHER_SPECIFICATION),
    ("round", "other", said.ANOTHER_SPECIFICATION),
    ("session", "another", said.OUT_OF_ORDER),
    ("more", "x", said.UNKNOWN_MESSAGE),
]
# A session may have any name when it begins.
WRONG_TAGS = [(s, *t) for s in STAGES for t in TAGS if (s, t[0]) != ("setup", "session")]


@pytest.mark.parametrize(("stage", "name", "value", "text"), WRONG_TAGS)
def test_another_specification_round_or_session_is_refused(
    stage: str, name: str, value: str, text: str
) -> None:
    assert text in refusal(stage, tagged(name, value))


def without_tag(message: Message) -> None:
    del message.content.config_records[TAG]


def test_a_server_without_our_tag_is_refused() -> None:
    assert said.UNKNOWN_MESSAGE in refusal("setup", without_tag)


@pytest.mark.parametrize(
    ("stage", "other"),
    [
        ("setup", "unmask"),
        ("share_keys", "unmask"),
        ("share_keys", "collect_masked_vectors"),
        ("collect_masked_vectors", "share_keys"),
        ("collect_masked_vectors", "unmask"),
        ("unmask", "collect_masked_vectors"),
    ],
)
def test_stages_out_of_order_are_refused(stage: str, other: str) -> None:
    assert said.OUT_OF_ORDER in refusal(stage, setting("stage", other))


@pytest.mark.parametrize("other", ["", "Setup", "evaluate", 3])
def test_unknown_stages_are_refused(other: Any) -> None:
    assert said.UNKNOWN_MESSAGE in refusal("share_keys", setting("stage", other))


def last_key(message: Message) -> str:
    return max(name for name in configs(message) if name.isdigit())


KEYS = {
    "fewer than needed": (
        lambda m: [configs(m).pop(last_key(m)) for _ in range(N - NEEDED + 1)],
        said.TOO_FEW_PARTIES,
    ),
    "a stranger more": (
        lambda m: configs(m).__setitem__("99", configs(m)[last_key(m)]),
        said.WRONG_PARTIES,
    ),
    "one party twice": (
        lambda m: configs(m).__setitem__("0" + last_key(m), configs(m).pop(last_key(m))),
        said.WRONG_PARTIES,
    ),
    "no number": (
        lambda m: configs(m).__setitem__("x", configs(m).pop(last_key(m))),
        said.WRONG_PARTIES,
    ),
    "not oneself": (lambda m: configs(m).pop("1001"), said.WRONG_PARTIES),
    "one key": (
        lambda m: configs(m).__setitem__(last_key(m), configs(m)[last_key(m)][:1]),
        said.WRONG_PARTIES,
    ),
    "a key of no length": (
        lambda m: configs(m).__setitem__(last_key(m), [b"", b"x"]),
        said.WRONG_PARTIES,
    ),
    "a key twice": (
        lambda m: configs(m).__setitem__(last_key(m), list(configs(m)["1002"])),
        said.NO_CONTRIBUTION,
    ),
    "own keys replaced": (
        lambda m: configs(m).__setitem__("1001", [b"x" * 200, b"y" * 200]),
        said.NO_CONTRIBUTION,
    ),
}


@pytest.mark.parametrize(("change", "text"), KEYS.values(), ids=KEYS)
def test_wrong_lists_of_keys_are_refused(change: Any, text: str) -> None:
    assert text in refusal("share_keys", change)


def packets(change: Callable[[list[int], list[bytes]], Any]) -> Callable[[Message], Any]:
    def changed(message: Message) -> None:
        sources, texts = list(configs(message)["srcs"]), list(configs(message)["ctxts"])
        change(sources, texts)
        configs(message)["srcs"], configs(message)["ctxts"] = sources, texts

    return changed


PACKETS = {
    "fewer than needed": (lambda s, c: (s.pop(), c.pop(), s.pop(), c.pop()), said.TOO_FEW_PARTIES),
    "one source twice": (lambda s, c: (s.append(s[0]), c.append(c[0])), said.WRONG_PARTIES),
    "a stranger": (lambda s, c: s.__setitem__(0, 99), said.WRONG_PARTIES),
    "oneself": (lambda s, c: s.__setitem__(0, 1001), said.WRONG_PARTIES),
    "a packet more": (lambda s, c: c.append(c[0]), said.WRONG_PARTIES),
    "sources swapped": (
        lambda s, c: s.__setitem__(slice(0, 2), [s[1], s[0]]),
        said.NO_CONTRIBUTION,
    ),
    "a damaged packet": (lambda s, c: c.__setitem__(0, b"x" * 90), said.NO_CONTRIBUTION),
    "a huge packet": (lambda s, c: c.__setitem__(0, b"x" * 5000), said.WRONG_PARTIES),
}


@pytest.mark.parametrize(("change", "text"), PACKETS.values(), ids=PACKETS)
def test_wrong_packets_are_refused(change: Any, text: str) -> None:
    assert text in refusal("collect_masked_vectors", packets(change))


def lists(change: Callable[[list[int], list[int]], Any]) -> Callable[[Message], Any]:
    def changed(message: Message) -> None:
        active, dead = list(configs(message)["active_nids"]), list(configs(message)["dead_nids"])
        change(active, dead)
        configs(message)["active_nids"], configs(message)["dead_nids"] = active, dead

    return changed


OTHERS = [1002, 1003, 1004, 1005]
LISTS = {
    # Both kinds of shares of one party together open its vector.
    "active and dead": (lambda a, d: d.append(1002), said.WRONG_PARTIES),
    "twice": (lambda a, d: a.append(1002), said.WRONG_PARTIES),
    "left out": (lambda a, d: a.remove(1002), said.WRONG_PARTIES),
    "a stranger": (lambda a, d: d.append(99), said.WRONG_PARTIES),
    "oneself dead": (lambda a, d: (a.remove(1001), d.append(1001)), said.WRONG_PARTIES),
    "too few": (
        lambda a, d: (a.remove(1002), a.remove(1003), d.extend([1002, 1003])),
        said.TOO_FEW_PARTIES,
    ),
    "all others dead": (
        lambda a, d: (a.__setitem__(slice(None), [1001]), d.extend(OTHERS)),
        said.TOO_FEW_PARTIES,
    ),
}


@pytest.mark.parametrize(("change", "text"), LISTS.values(), ids=LISTS)
def test_wrong_lists_of_who_is_left_are_refused(change: Any, text: str) -> None:
    assert text in refusal("unmask", lists(change))


def session_of(grid: LocalGrid) -> list[Message]:
    """All requests of a round to the first party."""
    recorded = [sent for sent in grid.traffic if sent.party == 0 and not sent.upwards]
    return [sent.message for sent in recorded]


def test_shares_are_given_once() -> None:
    """Who is asked to unmask again could be told of other survivors."""
    grid = LocalGrid([make_party_app(lambda _: {"sum": TERMS}, lambda *_: VECTOR)] * N, record=True)
    sum_of_parties(grid, TERMS, grid.get_node_ids())
    unmask = session_of(grid)[-1]
    (again,) = grid.send_and_receive([unmask])
    assert said.OUT_OF_ORDER in again.error.reason


@pytest.mark.parametrize("kind", ["train.default", "train.other", "evaluate", "query"])
def test_the_way_past_the_masks_is_closed(kind: str) -> None:
    """Flower's modifier ignores other types; ClientApp routes one of them to the same handler."""
    asked: list[int] = []

    def contribute(*_: object) -> NDArray[np.int64]:
        asked.append(1)
        return VECTOR

    app = make_party_app(lambda _: {"sum": TERMS}, contribute)
    grid = LocalGrid([app] * N, record=True)
    sum_of_parties(grid, TERMS, grid.get_node_ids())
    asked.clear()
    collect = session_of(grid)[2]
    content = collect.content
    for party in range(N):
        del grid.contexts[party].state.config_records["dpsvm_fast.answered"]
    message = Message(content, dst_node_id=1001, message_type=kind)
    (answer,) = grid.send_and_receive([message])
    assert answer.has_error()
    assert not asked


def test_without_the_guard_that_way_is_open() -> None:
    """Negative control: Flower's own client gives the plain vector to "train.default"."""
    from flwr.client.mod import secaggplus_mod
    from flwr.clientapp import ClientApp

    app = ClientApp()
    app.train(mods=[secaggplus_mod])(lambda m, c: Message(RecordDict(), reply_to=m))
    grid = LocalGrid([app])
    message = Message(RecordDict(), dst_node_id=1001, message_type="train.default")
    (answer,) = grid.send_and_receive([message])
    assert answer.has_content()


def test_the_handler_answers_nobody_but_the_guard() -> None:
    with pytest.raises(PartyRefusedError, match=said.UNKNOWN_MESSAGE):
        current_terms()


BAD_VECTORS = {
    "too short": VECTOR[:-1],
    "a row": VECTOR[None, :],
    "a column": VECTOR[:, None],
    "floats": VECTOR.astype(np.float64),
    "not a number": np.full(LENGTH, np.nan),
    "32 bits": VECTOR.astype(np.int32),
    "too large": np.array([2**29, 0, 0, 0, 0, 1]),
    "too small": np.array([-(2**29), 0, 0, 0, 0, 1]),
    "smallest of all": np.array([-(2**63), 0, 0, 0, 0, 1]),
    "another last number": np.array([0, 0, 0, 0, 0, 2]),
    "a list": VECTOR.tolist(),
    "nothing": None,
}


@pytest.mark.parametrize("vector", BAD_VECTORS.values(), ids=BAD_VECTORS)
def test_vectors_of_another_form_stay_with_the_party(vector: Any) -> None:
    with pytest.raises(PartyRefusedError, match=said.NO_CONTRIBUTION):
        checked_vector(vector, TERMS)


def test_what_a_party_raises_reaches_neither_the_server_nor_its_own_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object) -> NDArray[np.int64]:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise PartyRefusedError(f"row of {SECRET}") from error

    def broken_otherwise(*_: object) -> NDArray[np.int64]:
        raise ValueError(f"row of {SECRET}")

    good = make_party_app(lambda _: {"sum": TERMS}, lambda *_: VECTOR)
    for function in (broken, broken_otherwise):
        bad = make_party_app(lambda _: {"sum": TERMS}, function)
        grid = LocalGrid([bad, *[good] * (N - 1)], record=True)
        with caplog.at_level(logging.DEBUG):
            result = sum_of_parties(grid, TERMS, grid.get_node_ids())
        assert result.survivors == N - 1
        errors = [sent.message.error for sent in grid.traffic if sent.message.has_error()]
        assert len(errors) == 1
        assert said.NO_CONTRIBUTION in errors[0].reason
        for sent in grid.traffic:
            assert SECRET not in str(sent.message.__dict__)
        assert SECRET not in caplog.text


def test_refusals_leave_without_their_history() -> None:
    """Flower prints the whole chain of errors; a chain would hold the party's own."""
    app = make_party_app(lambda _: {"sum": TERMS}, lambda *_: VECTOR)
    grid = LocalGrid([app])
    message = Message(RecordDict(), dst_node_id=1001, message_type="train")
    with pytest.raises(PartyRefusedError) as caught:
        app(message=message, context=grid.contexts[0])
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert str(caught.value) == said.UNKNOWN_MESSAGE


def test_a_server_learns_how_many_refused_and_why() -> None:
    other = RoundTerms(
        digest="e", name="sum", length=LENGTH, n_users=N, min_survivors=NEEDED, threshold=THRESHOLD
    )
    grid = parties()
    with pytest.raises(SecureSumAborted) as caught:
        sum_of_parties(grid, other, grid.get_node_ids())
    assert caught.value.stage == "setup"
    assert caught.value.__notes__ == [f"{N} of the parties: {said.ANOTHER_SPECIFICATION}"]


def test_a_journal_lets_one_of_two_claims_win(tmp_path: Path) -> None:
    first, second = FileJournal(tmp_path / "answered"), FileJournal(tmp_path / "answered")
    assert not first.holds("d", "sum")
    assert first.claim("d", "sum")
    assert second.holds("d", "sum")
    assert not second.claim("d", "sum")
    assert second.claim("d", "other")
    assert second.claim("e", "sum")
    (entry, *_) = sorted((tmp_path / "answered").iterdir())
    assert entry.stat().st_mode & 0o077 == 0


def records(party: int, n: int = 30) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(party)
    y = rng.integers(0, 2, n)
    X = np.where(y[:, None] == 1, 1.0, -1.0) * np.eye(1, 4) + 0.2 * rng.normal(size=(n, 4))
    return X / np.linalg.norm(X, axis=1).max(), y


def study(**others: Any) -> FederatedSpec:
    settings: dict[str, Any] = {
        "n_users": 4,
        "n_features": 4,
        "classes": [0, 1],
        "epsilon": 4.0,
        "delta": 1e-6,
        "max_records": 30,
        "max_dropout": 0.25,
        "honest_fraction": 0.75,
    }
    return FederatedSpec.dp_helmet(**(settings | others))


def test_apps_train_a_model_charge_the_ledgers_and_answer_one_run(tmp_path: Path) -> None:
    agreed = study()
    ledgers = [PrivacyLedger(8.0, 1e-5, "replace_one") for _ in range(4)]
    apps = [
        make_client_app(
            agreed, lambda _, i=i: records(i), ledger=ledgers[i], journal=tmp_path / str(i)
        )
        for i in range(4)
    ]
    models: list[Any] = []
    server = make_server_app(agreed, on_result=lambda model, _: models.append(model), wait=0.0)
    context = LocalGrid([None]).contexts[0]
    server(LocalGrid(apps), context)
    (model,) = models
    assert model.privacy_.trust == "secure_sum"
    assert model.score(*records(99)) > 0.5
    spent = [ledger.total() for ledger in ledgers]
    assert all(0.0 < epsilon <= 4.0 + 1e-6 for epsilon, _ in spent)
    with pytest.raises(SecureSumAborted, match="setup"):
        server(LocalGrid(apps), context)
    assert [ledger.total() for ledger in ledgers] == spent


def test_a_ledger_that_refuses_keeps_its_party_out_and_its_data_unread() -> None:
    agreed = study()
    budgets = [0.01, 8.0, 8.0, 8.0]
    ledgers = [PrivacyLedger(epsilon, 1e-5, "replace_one") for epsilon in budgets]
    read: list[int] = []

    def load(party: int) -> Any:
        read.append(party)
        return records(party)

    apps = [
        make_client_app(agreed, lambda _, i=i: load(i), ledger=ledger)
        for i, ledger in enumerate(ledgers)
    ]
    grid = LocalGrid(apps)
    model = run_training(grid, agreed, grid.get_node_ids())
    assert model.n_survivors_ == 3
    assert sorted(read) == [1, 2, 3]
    assert not ledgers[0].history


def test_a_party_that_counts_nothing_is_warned() -> None:
    with pytest.warns(PrivacyLeakWarning, match="every run that the server starts is answered"):
        make_client_app(study(), lambda _: records(0))


def test_the_server_waits_for_enough_parties_and_takes_no_strangers(tmp_path: Path) -> None:
    agreed = study()
    app = make_client_app(agreed, lambda _: records(0), journal=tmp_path)
    server = make_server_app(agreed, on_result=lambda *_: None, wait=0.01)
    context = LocalGrid([None]).contexts[0]
    with pytest.raises(SecureSumAborted, match="waiting"):
        server(LocalGrid([app] * 2), context)
    with pytest.raises(ValueError, match="at most 4"):
        server(LocalGrid([app] * 5), context)


def test_masked_vectors_tell_nothing_about_equal_vectors() -> None:
    """Five parties with one vector: their masked vectors have no number in common.

    False alarm: 10 pairs of 6 numbers of 48 bits, below 2**-42.
    """
    grid = LocalGrid([make_party_app(lambda _: {"sum": TERMS}, lambda *_: VECTOR)] * N, record=True)
    sum_of_parties(grid, TERMS, grid.get_node_ids())
    masked = [
        bytes_to_ndarray(sent.message.content.config_records[CONFIGS]["masked_params"][1])
        for sent in grid.traffic
        if sent.upwards and sent.stage == "collect_masked_vectors"
    ]
    assert len(masked) == N
    for i in range(N):
        for j in range(i):
            assert (masked[i] != masked[j]).all()
