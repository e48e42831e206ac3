"""What a party refuses to do for a server, and how little it says when it refuses."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("cryptography", reason="secure sums need it")

from dpsvm_fast.federated import PartyRefusedError, SecureSumAborted
from dpsvm_fast.federated import protocol as said
from dpsvm_fast.federated.party import FileJournal, Party, checked_vector
from dpsvm_fast.federated.protocol import ADVERTISE, MASK, SHARE, STAGES, UNMASK, RoundTerms
from dpsvm_fast.federated.server import sum_of_parties
from oracles.secure_sums import Room, party, room_of

N, NEEDED, THRESHOLD, LENGTH = 5, 4, 3, 6
TERMS = RoundTerms(
    digest="d", name="sum", length=LENGTH, n_users=N, min_survivors=NEEDED, threshold=THRESHOLD
)
VECTOR = np.array([5, -7, 2**29 - 1, 0, 3, 1], dtype=np.int64)
SECRET = "patient 4711"
Change = Callable[[dict[str, Any]], Any]


class Changed(Room):
    """Parties of which the first gets a changed request at one stage."""

    def __init__(self, stage: str, change: Change) -> None:
        super().__init__([party(i, TERMS, VECTOR) for i in range(N)])
        self.stage, self.change = stage, change

    def deliver(self, i: int, request: bytes) -> bytes | None:
        record = json.loads(request)
        if (i, record["stage"]) == (0, self.stage):
            self.change(record)
        return super().deliver(i, json.dumps(record).encode())


def refusal(stage: str, change: Change) -> str:
    """What the first party answers to a changed request; the others have their sum."""
    room, result = Changed(stage, change), None
    with contextlib.suppress(SecureSumAborted):
        result = sum_of_parties(room, TERMS, room.numbers, attempts=1)
    answers = [sent.record for sent in room.traffic if sent.upwards and sent.party == 0]
    assert set(answers[-1]) == {"refused"}
    assert result is not None
    # Keys and shares are dropped with every refusal.
    kept = json.loads(room.states[0])
    assert not any(kept[name] for name in ("keys", "shares", "session"))
    return str(answers[-1]["refused"])


def test_an_unchanged_request_is_answered() -> None:
    """Negative control of all tests below."""
    room = Changed(ADVERTISE, lambda _: None)
    result = sum_of_parties(room, TERMS, room.numbers)
    assert result.survivors == N
    assert np.array_equal(result.total, N * VECTOR)
    assert not any("refused" in sent.record for sent in room.traffic if sent.upwards)


HEADS = [
    ("digest", "e", said.ANOTHER_SPECIFICATION),
    ("digest", None, said.ANOTHER_SPECIFICATION),
    ("protocol", "secagg-mask/v0", said.ANOTHER_SPECIFICATION),
    ("round", "other", said.ANOTHER_SPECIFICATION),
    ("round", ["sum"], said.UNKNOWN_MESSAGE),
    ("session", "another", said.OUT_OF_ORDER),
    ("session", 3, said.UNKNOWN_MESSAGE),
    ("stage", "evaluate", said.UNKNOWN_MESSAGE),
    ("stage", "", said.UNKNOWN_MESSAGE),
    ("stage", [], said.UNKNOWN_MESSAGE),
    ("party", 1002, said.WRONG_PARTIES),
    ("party", "1001", said.WRONG_PARTIES),
]
# A session may have any name when it begins.
WRONG_HEADS = [(s, *h) for s in STAGES for h in HEADS if (s, h[1]) != (ADVERTISE, "another")]


@pytest.mark.sampled
@pytest.mark.parametrize(("stage", "name", "value", "text"), WRONG_HEADS)
def test_another_specification_round_session_or_party_is_refused(
    stage: str, name: str, value: Any, text: str
) -> None:
    assert refusal(stage, lambda m: m.update({name: value})) == text


@pytest.mark.parametrize("name", ["protocol", "digest", "round", "session", "stage"])
def test_a_message_without_its_head_is_refused(name: str) -> None:
    assert refusal(ADVERTISE, lambda m: m.pop(name)) == said.UNKNOWN_MESSAGE


@pytest.mark.parametrize(
    "message", [b"", b"{", b"[]", b"3", b"\xff", b'{"stage": NaN}', b'{"stage":1,"stage":2}']
)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    state, reply = party(0, TERMS, VECTOR).respond(b"", message)
    assert json.loads(reply) == {"refused": said.UNKNOWN_MESSAGE}
    assert json.loads(state)["answered"] == []


# To begin anew is in order.
DISORDER = [(s, o) for s in STAGES for o in STAGES if o not in (s, ADVERTISE)]


@pytest.mark.parametrize(("stage", "other"), DISORDER)
def test_stages_out_of_order_are_refused(stage: str, other: str) -> None:
    assert refusal(stage, lambda m: m.update(stage=other)) == said.OUT_OF_ORDER


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def changed(field: str, change: Callable[[list[Any]], Any]) -> Change:
    return lambda message: change(message[field])


KEYS: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "fewer than needed": (lambda k: k.__delitem__(slice(NEEDED - 1, N)), said.TOO_FEW_PARTIES),
    "a stranger more": (
        lambda k: k.append([99, text(b"x" * 32), text(b"y" * 32)]),
        said.WRONG_PARTIES,
    ),
    "one party twice": (lambda k: k.__setitem__(2, k[1]), said.WRONG_PARTIES),
    "no number": (lambda k: k[1].__setitem__(0, "1002"), said.WRONG_PARTIES),
    "no whole number": (lambda k: k[1].__setitem__(0, 1002.0), said.WRONG_PARTIES),
    "not oneself": (lambda k: k.pop(0), said.WRONG_PARTIES),
    "one key": (lambda k: k[1].pop(), said.WRONG_PARTIES),
    "a key of no length": (lambda k: k[1].__setitem__(1, ""), said.WRONG_PARTIES),
    "a key that is too long": (lambda k: k[1].__setitem__(1, text(b"x" * 33)), said.WRONG_PARTIES),
    "no text": (lambda k: k[1].__setitem__(1, 3), said.WRONG_PARTIES),
    "no base64": (lambda k: k[1].__setitem__(1, "*" * 44), said.WRONG_PARTIES),
    "a key twice": (lambda k: k[1].__setitem__(2, k[2][2]), said.WRONG_PARTIES),
    "own keys replaced": (lambda k: k[0].__setitem__(1, text(b"x" * 32)), said.WRONG_PARTIES),
    "own keys swapped": (
        lambda k: k[0].__setitem__(slice(1, 3), [k[0][2], k[0][1]]),
        said.WRONG_PARTIES,
    ),
    # What anybody agrees on with it is known to everybody.
    "a key of low order": (lambda k: k[1].__setitem__(1, text(bytes(32))), said.NO_CONTRIBUTION),
}


@pytest.mark.parametrize(("change", "expected"), KEYS.values(), ids=KEYS)
def test_wrong_lists_of_keys_are_refused(change: Any, expected: str) -> None:
    assert refusal(SHARE, changed("keys", change)) == expected


@pytest.mark.sampled
@pytest.mark.parametrize(("stage", "field"), [(SHARE, "keys"), (MASK, "packets"), (UNMASK, "gone")])
@pytest.mark.parametrize("value", [None, 3, "text", {}, [3, [4]]])
def test_lists_of_another_form_are_refused(stage: str, field: str, value: Any) -> None:
    assert refusal(stage, lambda m: m.update({field: value})) == said.WRONG_PARTIES
    assert refusal(stage, lambda m: m.pop(field)) == said.WRONG_PARTIES


def swap(packets: list[Any]) -> None:
    packets[0][1], packets[1][1] = packets[1][1], packets[0][1]


PACKETS: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "fewer than needed": (lambda p: p.__delitem__(slice(0, 2)), said.TOO_FEW_PARTIES),
    "one source twice": (lambda p: p.append(p[0]), said.WRONG_PARTIES),
    "a stranger": (lambda p: p[0].__setitem__(0, 99), said.WRONG_PARTIES),
    "oneself": (lambda p: p[0].__setitem__(0, 1001), said.WRONG_PARTIES),
    "a packet more": (lambda p: p[0].append(p[0][1]), said.WRONG_PARTIES),
    "a short packet": (lambda p: p[0].__setitem__(1, text(b"x" * 90)), said.WRONG_PARTIES),
    "sources swapped": (swap, said.NO_CONTRIBUTION),
    "a damaged packet": (lambda p: p[0].__setitem__(1, text(b"x" * 148)), said.NO_CONTRIBUTION),
}


@pytest.mark.parametrize(("change", "expected"), PACKETS.values(), ids=PACKETS)
def test_wrong_packets_are_refused(change: Any, expected: str) -> None:
    assert refusal(MASK, changed("packets", change)) == expected


def moved(message: dict[str, Any], *parties: int) -> None:
    for number in parties:
        message["active"].remove(number)
        message["gone"].append(number)


LISTS: dict[str, tuple[Change, str]] = {
    # Both kinds of shares of one party together open its vector.
    "active and gone": (lambda m: m["gone"].append(1002), said.WRONG_PARTIES),
    "twice": (lambda m: m["active"].append(1002), said.WRONG_PARTIES),
    "left out": (lambda m: m["active"].remove(1002), said.WRONG_PARTIES),
    "a stranger": (lambda m: m["gone"].append(99), said.WRONG_PARTIES),
    "oneself gone": (lambda m: moved(m, 1001), said.WRONG_PARTIES),
    "too few": (lambda m: moved(m, 1002, 1003), said.TOO_FEW_PARTIES),
    "all others gone": (lambda m: moved(m, 1002, 1003, 1004, 1005), said.TOO_FEW_PARTIES),
}


@pytest.mark.parametrize(("change", "expected"), LISTS.values(), ids=LISTS)
def test_wrong_lists_of_who_is_left_are_refused(change: Any, expected: str) -> None:
    assert refusal(UNMASK, change) == expected


def requests_to_the_first(room: Room) -> list[bytes]:
    return [sent.data for sent in room.traffic if sent.party == 0 and not sent.upwards]


@pytest.mark.parametrize("stage", range(4))
def test_every_stage_is_answered_once(stage: int) -> None:
    """Who is asked to unmask again could be told of other survivors."""
    room = room_of([VECTOR] * N, TERMS)
    sum_of_parties(room, TERMS, room.numbers)
    state, reply = room.parties[0].respond(room.states[0], requests_to_the_first(room)[stage])
    expected = said.ANSWERED_BEFORE if stage == 0 else said.OUT_OF_ORDER
    assert json.loads(reply) == {"refused": expected}
    assert json.loads(state)["answered"] == ["d sum"]


def test_a_new_attempt_has_new_keys_and_forgets_the_old_one() -> None:
    room = room_of([VECTOR] * N, TERMS)
    sum_of_parties(room, TERMS, room.numbers)
    first, *_ = requests_to_the_first(room)
    asked = party(0, TERMS, VECTOR)
    state, reply = asked.respond(b"", first)
    again, other = asked.respond(state, first)
    assert json.loads(reply)["keys"] != json.loads(other)["keys"]
    assert not set(json.loads(state)["keys"]) & set(json.loads(again)["keys"])


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
    with pytest.raises(PartyRefusedError):
        checked_vector(vector, TERMS)
    room = Room([party(i, TERMS, VECTOR if i else vector) for i in range(N)])
    result = sum_of_parties(room, TERMS, room.numbers)
    assert np.array_equal(result.total, (N - 1) * VECTOR)


@pytest.mark.parametrize(
    "public",
    [
        3,
        {"shape": [1]},
        {"shape": [2], "values": text(bytes(8))},
        {"shape": [1], "values": text(bytes(7))},
        {"shape": [1], "values": text(np.array([np.nan]).tobytes())},
    ],
)
def test_public_numbers_of_another_form_are_refused_before_the_round_is_claimed(
    public: Any,
) -> None:
    assert refusal(MASK, lambda m: m.update(public=public)) == said.NO_CONTRIBUTION


@pytest.mark.parametrize("kind", [PartyRefusedError, ValueError])
def test_what_a_party_raises_reaches_neither_the_server_nor_its_own_log(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def contribute(*_: object) -> NDArray[np.int64]:
        raise kind(f"row of {SECRET}") from KeyError(SECRET)

    room = Room([party(i, TERMS, VECTOR if i else contribute) for i in range(N)])
    with caplog.at_level(logging.DEBUG):
        result = sum_of_parties(room, TERMS, room.numbers)
    assert result.survivors == N - 1
    refusals = [sent.record for sent in room.traffic if "refused" in sent.record]
    assert refusals == [{"refused": said.NO_CONTRIBUTION}]
    assert all(SECRET.encode() not in sent.data for sent in room.traffic)
    assert SECRET not in caplog.text
    # It counts as sent all the same.
    assert json.loads(room.states[0])["answered"] == ["d sum"]


@pytest.mark.parametrize("part", ["terms", "journal"])
def test_a_party_whose_own_files_fail_refuses_without_their_text(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Any:
        raise OSError(SECRET)

    parts: dict[str, Any] = {"terms": lambda: {"sum": TERMS}, "journal": lambda: None, part: fail}
    asked = Party(1001, contribute=lambda *_: VECTOR, **parts)
    request = json.dumps(TERMS.head("s", ADVERTISE, 1001)).encode()
    _, reply = asked.respond(b"", request)
    assert json.loads(reply) == {"refused": said.NO_CONTRIBUTION}
    assert SECRET not in caplog.text


@pytest.mark.parametrize("state", [b"{", b"[]", b"3", b'{"more": 1}'])
def test_a_damaged_state_does_not_turn_into_a_fresh_one(state: bytes) -> None:
    request = json.dumps(TERMS.head("s", ADVERTISE, 1001)).encode()
    kept, reply = party(0, TERMS, VECTOR).respond(state, request)
    assert json.loads(reply) == {"refused": said.NO_CONTRIBUTION}
    assert kept == state


def test_a_server_learns_how_many_refused_and_why() -> None:
    other = RoundTerms(
        digest="e", name="sum", length=LENGTH, n_users=N, min_survivors=NEEDED, threshold=THRESHOLD
    )
    room = room_of([VECTOR] * N, TERMS)
    with pytest.raises(SecureSumAborted) as caught:
        sum_of_parties(room, other, room.numbers)
    assert caught.value.stage == ADVERTISE
    assert caught.value.__notes__ == [f"{N} of the parties: {said.ANOTHER_SPECIFICATION}"]


def test_a_journal_lets_one_of_two_claims_win(tmp_path: Path) -> None:
    first, second = FileJournal(tmp_path / "answered"), FileJournal(tmp_path / "answered")
    assert not first.holds("d sum")
    assert first.claim("d sum")
    assert second.holds("d sum")
    assert not second.claim("d sum")
    assert second.claim("d other")
    assert second.claim("e sum")
    (entry, *_) = sorted((tmp_path / "answered").iterdir())
    assert entry.stat().st_mode & 0o077 == 0


def test_masked_vectors_tell_nothing_about_equal_vectors() -> None:
    """Five parties with one vector: their masked vectors have no number in common.

    False alarm: 10 pairs of 6 numbers of 48 bits, below 2**-42.
    """
    room = room_of([VECTOR] * N, TERMS)
    sum_of_parties(room, TERMS, room.numbers)
    masked = [
        said.unpack(base64.b64decode(sent.record["masked"]), LENGTH)
        for sent in room.traffic
        if sent.upwards and sent.stage == MASK
    ]
    assert len(masked) == N
    for i in range(N):
        for j in range(i):
            assert (masked[i] != masked[j]).all()


def test_after_masking_a_party_keeps_one_share_of_each_secret_and_no_secret() -> None:
    before: list[Any] = []
    room = Changed(UNMASK, lambda _: before.append(json.loads(room.states[0])))
    sum_of_parties(room, TERMS, room.numbers)
    (kept,) = before
    assert kept["keys"] == kept["others"] == []
    assert [len(entry) for entry in kept["shares"]] == [3] * N
    # And nothing but the name of the round after it.
    after = json.loads(room.states[0])
    assert after.pop("answered") == ["d sum"]
    assert not any(after.values())
