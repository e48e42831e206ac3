"""Secure sums: exact integers, drop-outs at every stage, clear ends."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("cryptography", reason="secure sums need it")

from dpsvm_fast.exceptions import InconsistentSumError, InvalidParameterError, SecureSumAborted
from dpsvm_fast.federated.protocol import ADVERTISE, MASK, SHARE, STAGES, UNMASK, RoundTerms, unpack
from dpsvm_fast.federated.secsum import SecureSum, SumResult, TrustedSum
from dpsvm_fast.federated.server import ServerRound, sum_of_parties
from oracles.secure_sums import Fault, InOneProcess, Room, party, room_of

N, NEEDED, THRESHOLD = 7, 5, 4
LARGEST = 2**29 - 1


def rows(n: int, length: int, seed: int = 0) -> NDArray[np.int64]:
    """Vectors over the whole range, its ends included."""
    numbers = np.random.default_rng(seed).integers(-LARGEST, LARGEST + 1, (n, length))
    numbers[:, 0], numbers[:, 1] = LARGEST, -LARGEST
    numbers[:, -1] = 1
    return numbers


def terms(size: int, **others: Any) -> RoundTerms:
    settings: dict[str, Any] = {
        "digest": "d",
        "name": "sum",
        "length": size,
        "n_users": N,
        "min_survivors": NEEDED,
        "threshold": THRESHOLD,
    }
    return RoundTerms(**(settings | others))


def summed(
    vectors: NDArray[np.int64], faults: Sequence[Fault] = (), attempts: int = 2
) -> SumResult:
    """A sum of seven parties of which five are needed."""
    return InOneProcess(NEEDED, THRESHOLD, faults, attempts).sum(vectors)


@given(n=st.integers(2, 12), length=st.integers(3, 40), data=st.data())
def test_the_sum_of_who_is_left_is_exact(n: int, length: int, data: st.DataObject) -> None:
    threshold = n // 2 + 1
    needed = data.draw(st.integers(max(2, threshold), n))
    gone = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n - needed))
    stages = [data.draw(st.sampled_from(STAGES)) for _ in gone]
    vectors = rows(n, length)
    faults = [Fault(stage, [i]) for stage, i in zip(stages, gone, strict=True)]
    result = InOneProcess(needed, threshold, faults).sum(vectors)
    # Who vanishes at the end has sent its vector: it is part of the sum.
    lost = [i for stage, i in zip(stages, gone, strict=True) if stage != UNMASK]
    left = [i for i in range(n) if i not in lost]
    assert result.survivors == len(left)
    assert result.total.dtype == np.int64
    assert np.array_equal(result.total, vectors[left].sum(axis=0))


@pytest.mark.slow
def test_the_sum_of_many_is_exact() -> None:
    vectors = rows(150, 1000)
    result = InOneProcess(100, 76, [Fault(MASK, range(50))]).sum(vectors)
    assert np.array_equal(result.total, vectors[50:].sum(axis=0))


def test_it_is_a_secure_sum_like_the_trusted_one() -> None:
    vectors = rows(4, 9)
    assert isinstance(InOneProcess(), SecureSum)
    assert np.array_equal(InOneProcess().sum(vectors).total, TrustedSum().sum(vectors).total)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["silent", "lost", "raises"])
@pytest.mark.parametrize("stage", STAGES)
def test_allowed_drop_outs_leave_the_exact_sum_of_the_others(stage: str, kind: str) -> None:
    vectors = rows(N, 20)
    lost = range(1, 1 + N - NEEDED)
    left = [i for i in range(N) if stage == UNMASK or i not in lost]
    result = summed(vectors, [Fault(stage, lost, kind)])
    assert result.survivors == len(left)
    assert np.array_equal(result.total, vectors[left].sum(axis=0))


def test_at_the_end_as_many_may_vanish_as_the_threshold_allows() -> None:
    vectors = rows(N, 20)
    result = summed(vectors, [Fault(UNMASK, range(N - THRESHOLD))])
    assert result.survivors == N
    assert np.array_equal(result.total, vectors.sum(axis=0))


@pytest.mark.parametrize("kind", ["silent", "lost", "raises"])
@pytest.mark.parametrize("stage", STAGES)
def test_one_drop_out_too_many_ends_the_sum_at_its_stage(stage: str, kind: str) -> None:
    allowed = N - THRESHOLD if stage == UNMASK else N - NEEDED
    needed = THRESHOLD if stage == UNMASK else NEEDED
    with pytest.raises(SecureSumAborted) as caught:
        summed(rows(N, 20), [Fault(stage, range(allowed + 1), kind)], attempts=1)
    aborted = caught.value
    assert (aborted.stage, aborted.survivors, aborted.needed) == (stage, N - allowed - 1, needed)
    assert aborted.__notes__


def test_a_sum_without_some_parties_says_so(caplog: pytest.LogCaptureFixture) -> None:
    summed(rows(N, 20), [Fault(ADVERTISE, [1], "raises"), Fault(UNMASK, [2])])
    told = [r.getMessage() for r in caplog.records if r.name == "dpsvm_fast.federated"]
    assert told == [
        "round 'sum': 6 of 7 parties in the sum",
        "1 of the parties: another failure",
        "1 of the parties: no reply",
    ]
    caplog.clear()
    summed(rows(N, 20))
    assert not [r for r in caplog.records if r.name == "dpsvm_fast.federated"]


@pytest.mark.parametrize("stage", [ADVERTISE, SHARE])
def test_before_any_vector_is_sent_the_round_begins_again(stage: str) -> None:
    vectors = rows(N, 20)
    faults = [Fault(stage, range(4), "lost", times=1)]
    result = summed(vectors, faults)
    assert result.survivors == N
    assert np.array_equal(result.total, vectors.sum(axis=0))
    with pytest.raises(SecureSumAborted):
        summed(vectors, faults, attempts=1)


class Asked(Room):
    """Counts how often a party is asked for its vector."""

    def __init__(self, vectors: NDArray[np.int64], agreed: RoundTerms, faults: Any) -> None:
        self.times = [0] * len(vectors)

        def making(i: int) -> Any:
            def contribute(*_: object) -> NDArray[np.int64]:
                self.times[i] += 1
                return np.asarray(vectors[i])

            return contribute

        super().__init__([party(i, agreed, making(i)) for i in range(len(vectors))], faults)


@pytest.mark.parametrize("stage", [MASK, UNMASK])
def test_once_vectors_are_sent_no_party_sends_another(stage: str) -> None:
    """Two sums of the same vectors of different parties would tell their difference."""
    room = Asked(rows(N, 20), terms(20), [Fault(stage, range(4), "lost", times=1)])
    with pytest.raises(SecureSumAborted) as caught:
        sum_of_parties(room, terms(20), room.numbers, attempts=5)
    assert caught.value.stage == stage
    assert room.times == [1] * N
    # A server that tries it nevertheless is refused by everybody, before anything is made.
    with pytest.raises(SecureSumAborted) as caught:
        sum_of_parties(room, terms(20), room.numbers, attempts=1)
    assert caught.value.stage == ADVERTISE
    assert caught.value.__notes__ == ["7 of the parties: this round was already answered"]
    assert room.times == [1] * N


def test_a_restart_makes_each_vector_once() -> None:
    vectors = rows(N, 20)
    room = Asked(vectors, terms(20), [Fault(SHARE, range(4), "lost", times=1)])
    result = sum_of_parties(room, terms(20), room.numbers)
    assert np.array_equal(result.total, vectors.sum(axis=0))
    assert room.times == [1] * N


def test_two_rounds_of_different_length_with_public_numbers_in_between() -> None:
    both = [terms(20, name="first"), terms(5, name="second")]
    seen: list[NDArray[np.float64] | None] = []

    def contribute(asked: RoundTerms, public: Any) -> NDArray[np.int64]:
        seen.append(public)
        return rows(N, asked.length)[0]

    room = Room([party(i, both, contribute) for i in range(N)])
    public = np.array([[0.1, -2.5]])
    sum_of_parties(room, both[0], room.numbers)
    total = sum_of_parties(room, both[1], room.numbers, public=public).total
    assert np.array_equal(total, N * rows(N, 5)[0])
    assert seen[:N] == [None] * N
    assert all(np.array_equal(array, public) for array in seen[N:])


def masked_by(change: Any) -> Any:
    """Change the bytes of a masked vector on its way."""

    def changed(reply: dict[str, Any]) -> None:
        data = change(base64.b64decode(reply["masked"]))
        reply["masked"] = base64.b64encode(data).decode()

    return changed


def without(name: str) -> Any:
    return lambda reply: reply.pop(name)


def setting(**others: Any) -> Any:
    return lambda reply: reply.update(others)


EVERYWHERE = {
    "no digest": without("digest"),
    "another protocol": setting(protocol="secagg-mask/v0"),
    "another session": setting(session="0"),
    "another party": setting(party=1001),
    "a field more": setting(num_examples=20),
    "an unknown refusal": lambda reply: (reply.clear(), reply.update(refused="rows 3 and 4")),
}
WRONG = [
    *[(stage, name, change) for stage in STAGES for name, change in EVERYWHERE.items()],
    (ADVERTISE, "one key", lambda r: r["keys"].pop()),
    (ADVERTISE, "a short key", lambda r: r["keys"].__setitem__(0, "AAAA")),
    (ADVERTISE, "no list", setting(keys=3)),
    (ADVERTISE, "one key for both", lambda r: r["keys"].__setitem__(0, r["keys"][1])),
    (ADVERTISE, "a key of low order", lambda r: r["keys"].__setitem__(1, "A" * 43 + "=")),
    (SHARE, "a packet less", lambda r: r["packets"].pop()),
    (SHARE, "a packet for a stranger", lambda r: r["packets"][0].__setitem__(0, 99)),
    (SHARE, "a short packet", lambda r: r["packets"][0].__setitem__(1, "AAAA")),
    (MASK, "too short", masked_by(lambda data: data[:-6])),
    (MASK, "too long", masked_by(lambda data: data + data[:6])),
    (MASK, "stretchable", masked_by(lambda data: data[:6])),
    (MASK, "a part of a number", masked_by(lambda data: data[:-1])),
    (MASK, "a list", setting(masked=[1, 2])),
    (UNMASK, "a share less", lambda r: r["shares"].pop()),
    (UNMASK, "a share of a stranger", lambda r: r["shares"][0].__setitem__(0, 99)),
    (UNMASK, "a short share", lambda r: r["shares"][0].__setitem__(1, "AAAA")),
]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("stage", "change"), [w[::2] for w in WRONG], ids=[f"{w[0]}-{w[1]}" for w in WRONG]
)
def test_a_reply_of_another_form_counts_as_missing(stage: str, change: Any) -> None:
    vectors = rows(N, 20)
    result = summed(vectors, [Fault(stage, [2], "changed", change)])
    left = list(range(N)) if stage == UNMASK else [0, 1, 3, 4, 5, 6]
    assert result.survivors == len(left)
    assert np.array_equal(result.total, vectors[left].sum(axis=0))


def check_sum_on_the_way(change: Callable[[dict[int, bytes]], Any], *missing: int) -> None:
    """Replies are changed on their way to the server: the sum is that of all but some parties."""
    vectors = rows(N, 20)
    room = room_of(vectors, terms(20))

    def exchange(requests: Any) -> dict[int, bytes]:
        replies = room(requests)
        change(replies)
        return replies

    result = sum_of_parties(exchange, terms(20), room.numbers)
    assert result.survivors == N - len(missing)
    assert np.array_equal(result.total, np.delete(vectors, missing, axis=0).sum(axis=0))


def test_who_takes_the_keys_of_another_counts_as_missing() -> None:
    def taken(replies: dict[int, bytes]) -> None:
        if all(b"keys" in reply for reply in replies.values()):
            replies[1003] = replies[1001].replace(b'"party": 1001', b'"party": 1003')

    check_sum_on_the_way(taken, 2)


@pytest.mark.parametrize("reply", [b"", b"{", b"[]", b"\xff", b'{"refused": 3}', b"null"])
def test_what_is_no_record_counts_as_missing(reply: bytes) -> None:
    def broken(replies: dict[int, bytes]) -> None:
        if 1002 in replies:
            replies[1002] = reply

    check_sum_on_the_way(broken, 1)


def test_replies_of_strangers_have_no_part_in_the_sum() -> None:
    check_sum_on_the_way(lambda replies: replies.update({99: replies[1001]}))


def test_a_vector_with_other_masks_is_noticed_by_the_check_number() -> None:
    other = masked_by(lambda data: np.random.default_rng(1).bytes(len(data)))
    # Passes unnoticed with probability below 2**-40: the last number has to come out right.
    with pytest.raises(InconsistentSumError):
        summed(rows(N, 20), [Fault(MASK, [2], "changed", other)])


def test_too_large_a_sum_is_none() -> None:
    """A party that adds 2**47 to a masked number, and is right about the last one."""

    def larger(data: bytes) -> bytes:
        words = unpack(data, 20)
        words[3] += np.uint64(2**47)
        return bytes(words.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :6].tobytes())

    with pytest.raises(InconsistentSumError):
        summed(rows(N, 20), [Fault(MASK, [2], "changed", masked_by(larger))])


def damaged(reply: dict[str, Any]) -> None:
    reply["shares"] = [
        [owner, base64.b64encode(bytes(66)).decode()] for owner, _ in reply["shares"]
    ]


@pytest.mark.parametrize("gone", [[], [5, 6]])
def test_damaged_shares_end_the_sum(gone: list[int]) -> None:
    with pytest.raises(SecureSumAborted) as caught:
        summed(rows(N, 20), [Fault(MASK, gone), Fault(UNMASK, [2], "changed", damaged)])
    assert caught.value.stage == UNMASK


def test_the_server_sees_nothing_but_the_fields_of_the_protocol() -> None:
    """Neither numbers of records nor metrics; and masked vectors look uniform."""
    vectors = rows(N, 20)
    room = room_of(vectors, terms(20))
    sum_of_parties(room, terms(20), room.numbers)
    fields = {ADVERTISE: "keys", SHARE: "packets", MASK: "masked", UNMASK: "shares"}
    head = set(terms(20).head("", "", 0))
    upwards = [sent for sent in room.traffic if sent.upwards]
    assert len(upwards) == 4 * N
    for sent in upwards:
        assert set(sent.record) == head | {fields[sent.stage]}
        if sent.stage == MASK:
            numbers = unpack(base64.b64decode(sent.record["masked"]), 20)
            # By chance at most one of 140 numbers is small: a million times in 2**17.
            assert (numbers > 2**31).sum() >= 19


def test_secrets_are_gone_after_the_round_and_after_a_failure() -> None:
    room = room_of(rows(N, 20), terms(20), [Fault(UNMASK, [3])])
    sum_of_parties(room, terms(20), room.numbers)
    kept = [json.loads(state) for state in room.states]
    assert kept[0].pop("answered") == ["d sum"]
    assert not any(kept[0].values())
    # Who was never asked to unmask still has shares, until the next message.
    assert kept[3]["shares"]
    assert not kept[3]["keys"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_users", 2**18 + 1),
        ("n_users", 1),
        ("min_survivors", 8),
        ("threshold", 3),
        ("threshold", 6),
        ("length", 1),
    ],
)
def test_terms_that_do_not_protect_or_overflow_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        terms(4, **{name: value})
    assert caught.value.parameter in (name, "threshold")


@pytest.mark.parametrize(
    ("parties", "attempts", "name"),
    [(range(4), 2, "parties"), (range(8), 2, "parties"), (range(7), 0, "attempts")],
)
def test_the_wrong_number_of_parties_or_attempts_is_refused(
    parties: range, attempts: int, name: str
) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        sum_of_parties(room_of([], terms(4)), terms(4), parties, attempts=attempts)
    assert caught.value.parameter == name


def test_two_rounds_have_no_key_and_no_mask_in_common_whatever_is_seeded() -> None:
    both = [terms(20, name=name) for name in ("first", "second")]
    room = Room([party(i, both, rows(N, 20)[0]) for i in range(N)])
    for agreed in both:
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        sum_of_parties(room, agreed, room.numbers)
    sent = [sent.record for sent in room.traffic if sent.upwards]
    keys = [key for record in sent for key in record.get("keys", [])]
    masked = [record["masked"] for record in sent if "masked" in record]
    assert len(keys) == len(set(keys)) == 2 * 2 * N
    assert len(masked) == len(set(masked)) == 2 * N


def test_fewer_shares_than_the_threshold_open_nothing() -> None:
    """Colluders with all that a server saw, and one share too few of every secret."""
    room = room_of(rows(N, 20), terms(20))
    round = ServerRound(terms(20), room.numbers)
    for _ in range(3):
        round.receive(room(round.requests()))
    replies = room(dict(list(round.requests().items())[: THRESHOLD - 1]))
    with pytest.raises(SecureSumAborted) as caught:
        round.receive(replies)
    assert caught.value.survivors == THRESHOLD - 1
    with pytest.raises(SecureSumAborted):
        round.result(N)
