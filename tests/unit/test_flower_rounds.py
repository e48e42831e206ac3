"""Secure sums through Flower's protocol: exact integers, drop-outs at every stage, clear ends."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("dpsvm_fast.federated.flower", reason="secure sums need flwr")

from flwr.app import Message
from flwr.common import bytes_to_ndarray, ndarray_to_bytes

from dpsvm_fast.exceptions import InconsistentSumError, InvalidParameterError, SecureSumAborted
from dpsvm_fast.federated.flower import FlowerSum
from dpsvm_fast.federated.flower.client import make_party_app
from dpsvm_fast.federated.flower.protocol import RoundTerms
from dpsvm_fast.federated.flower.secsum import Fault, LocalGrid, server_identity
from dpsvm_fast.federated.flower.server import sum_of_parties, whole_sum
from dpsvm_fast.federated.secsum import SecureSum, SumResult, TrustedSum

STAGES = ("setup", "share_keys", "collect_masked_vectors", "unmask")
N, NEEDED, THRESHOLD = 7, 5, 4
LARGEST = 2**29 - 1


def rows(n: int, length: int, seed: int = 0) -> NDArray[np.int64]:
    """Vectors over the whole range, its ends included."""
    numbers = np.random.default_rng(seed).integers(-LARGEST, LARGEST + 1, (n, length))
    numbers[:, 0], numbers[:, 1] = LARGEST, -LARGEST
    numbers[:, -1] = 1
    return numbers


def summed(
    vectors: NDArray[np.int64], faults: Sequence[Fault] = (), attempts: int = 2
) -> SumResult:
    """A sum of seven parties of which five are needed."""
    chosen = FlowerSum(NEEDED, THRESHOLD, faults, attempts)
    return chosen.sum(vectors)


@pytest.mark.parametrize(
    ("n", "length"),
    [(2, 2), (3, 1000), (10, 200), pytest.param(50, 1000, marks=pytest.mark.slow)],
)
def test_the_sum_is_exact(n: int, length: int) -> None:
    vectors = rows(n, length)
    result = FlowerSum().sum(vectors)
    assert result.survivors == n
    assert result.total.dtype == np.int64
    assert np.array_equal(result.total, vectors.sum(axis=0))


def test_it_is_a_secure_sum_like_the_trusted_one() -> None:
    vectors = rows(4, 9)
    assert isinstance(FlowerSum(), SecureSum)
    assert np.array_equal(FlowerSum().sum(vectors).total, TrustedSum().sum(vectors).total)


@pytest.mark.parametrize("kind", ["silent", "lost", "raises"])
@pytest.mark.parametrize("gone", [1, N - NEEDED])
@pytest.mark.parametrize("stage", STAGES)
def test_allowed_drop_outs_leave_the_exact_sum_of_the_others(
    stage: str, gone: int, kind: str
) -> None:
    vectors = rows(N, 20)
    lost = list(range(1, 1 + gone))
    # Who vanishes at the end has sent its vector: it is part of the sum.
    left = [i for i in range(N) if stage == "unmask" or i not in lost]
    result = summed(vectors, [Fault(stage, lost, kind)])
    assert result.survivors == len(left)
    assert np.array_equal(result.total, vectors[left].sum(axis=0))


def test_at_the_end_as_many_may_vanish_as_the_threshold_allows() -> None:
    vectors = rows(N, 20)
    result = summed(vectors, [Fault("unmask", range(N - THRESHOLD))])
    assert result.survivors == N
    assert np.array_equal(result.total, vectors.sum(axis=0))


def test_a_sum_without_some_parties_says_so(caplog: pytest.LogCaptureFixture) -> None:
    summed(rows(N, 20), [Fault("setup", [1], "raises", text="a secret"), Fault("unmask", [2])])
    told = [r.getMessage() for r in caplog.records if r.name == "dpsvm_fast.federated"]
    assert told == [
        "round 'sum': 6 of 7 parties in the sum",
        "1 of the parties: another failure",
        "1 of the parties: no reply",
    ]
    caplog.clear()
    summed(rows(N, 20))
    assert not [r for r in caplog.records if r.name == "dpsvm_fast.federated"]


def test_drop_outs_at_all_stages_at_once() -> None:
    vectors = rows(9, 20)
    faults = [Fault(stage, [i]) for i, stage in enumerate(STAGES)]
    result = FlowerSum(6, 5, faults).sum(vectors)
    assert result.survivors == 6
    assert np.array_equal(result.total, vectors[3:].sum(axis=0))


@pytest.mark.parametrize("kind", ["silent", "lost", "raises"])
@pytest.mark.parametrize("stage", STAGES)
def test_one_drop_out_too_many_ends_the_sum_at_its_stage(stage: str, kind: str) -> None:
    allowed = N - THRESHOLD if stage == "unmask" else N - NEEDED
    needed = THRESHOLD if stage == "unmask" else NEEDED
    with pytest.raises(SecureSumAborted) as caught:
        summed(rows(N, 20), [Fault(stage, range(allowed + 1), kind)], attempts=1)
    aborted = caught.value
    assert (aborted.stage, aborted.survivors, aborted.needed) == (
        stage,
        N - allowed - 1,
        needed,
    )
    assert str(needed) in str(aborted)
    assert stage in str(aborted)
    assert aborted.__notes__


@pytest.mark.parametrize("stage", ["setup", "share_keys"])
def test_before_any_vector_is_sent_the_round_begins_again(stage: str) -> None:
    vectors = rows(N, 20)
    faults = [Fault(stage, range(4), times=1)]
    result = summed(vectors, faults)
    assert result.survivors == N
    assert np.array_equal(result.total, vectors.sum(axis=0))
    with pytest.raises(SecureSumAborted):
        summed(vectors, faults, attempts=1)


class Asked:
    """Counts how often a party is asked for its vector."""

    def __init__(self, vectors: NDArray[np.int64], terms: RoundTerms) -> None:
        self.times = [0] * len(vectors)
        self.apps = [self._app(i, row, terms) for i, row in enumerate(vectors)]

    def _app(self, party: int, row: NDArray[np.int64], terms: RoundTerms) -> Any:
        def contribute(*_: object) -> NDArray[np.int64]:
            self.times[party] += 1
            return row

        return make_party_app(lambda _: {terms.name: terms}, contribute)


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


@pytest.fixture
def identity() -> Iterator[None]:
    with server_identity():
        yield


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize("stage", ["collect_masked_vectors", "unmask"])
def test_once_vectors_are_sent_no_party_sends_another(stage: str) -> None:
    """Two sums of the same vectors of different parties would tell their difference."""
    vectors = rows(N, 20)
    asked = Asked(vectors, terms(20))
    grid = LocalGrid(asked.apps, faults=[Fault(stage, range(4), "lost", times=1)])
    with pytest.raises(SecureSumAborted) as caught:
        sum_of_parties(grid, terms(20), grid.get_node_ids(), attempts=5)
    assert caught.value.stage == stage
    assert asked.times == [1] * N
    # A server that tries it nevertheless is refused by everybody, before anything is made.
    with pytest.raises(SecureSumAborted) as caught:
        sum_of_parties(grid, terms(20), grid.get_node_ids(), attempts=1)
    assert caught.value.stage == "setup"
    assert caught.value.__notes__ == ["7 of the parties: this round was answered before"]
    assert asked.times == [1] * N


@pytest.mark.usefixtures("identity")
def test_a_restart_makes_each_vector_once() -> None:
    vectors = rows(N, 20)
    asked = Asked(vectors, terms(20))
    grid = LocalGrid(asked.apps, faults=[Fault("share_keys", range(4), "lost", times=1)])
    result = sum_of_parties(grid, terms(20), grid.get_node_ids())
    assert np.array_equal(result.total, vectors.sum(axis=0))
    assert asked.times == [1] * N


@pytest.mark.usefixtures("identity")
def test_two_rounds_of_different_length_with_public_numbers_in_between() -> None:
    first, second = terms(20, name="first"), terms(5, name="second")
    seen: list[NDArray[np.float64] | None] = []

    def contribute(_: Any, asked: RoundTerms, public: Any) -> NDArray[np.int64]:
        seen.append(public)
        return rows(N, asked.length)[0]

    apps = [make_party_app(lambda _: {"first": first, "second": second}, contribute)] * N
    grid = LocalGrid(apps)
    public = np.array([[0.1, -2.5]])
    sum_of_parties(grid, first, grid.get_node_ids())
    total = sum_of_parties(grid, second, grid.get_node_ids(), public=public).total
    assert np.array_equal(total, N * rows(N, 5)[0])
    assert seen[:N] == [None] * N
    assert all(np.array_equal(array, public) for array in seen[N:])


def changed_arrays(reply: Message, change: Any) -> None:
    """Change the numbers of a masked vector on its way."""
    record = reply.content.config_records["secaggplus_configs"]
    arrays = [bytes_to_ndarray(part) for part in record["masked_params"]]
    record["masked_params"] = [ndarray_to_bytes(array) for array in change(arrays)]


CHANGES = {
    "too short": lambda a: [a[0], a[1][:-1]],
    "stretchable": lambda a: [a[0], a[1][:1]],
    "a matrix": lambda a: [a[0], a[1][None, :]],
    "floats": lambda a: [a[0], a[1].astype(np.float64)],
    "negative": lambda a: [a[0], a[1] - 2**48],
    "above the modulus": lambda a: [a[0], a[1] + 2**48],
    "an array more": lambda a: [*a, a[1]],
    "no weight": lambda a: [a[1]],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_masked_vector_of_another_form_counts_as_missing(change: Any) -> None:
    vectors = rows(N, 20)
    fault = Fault("collect_masked_vectors", [2], "changed", lambda m: changed_arrays(m, change))
    result = summed(vectors, [fault])
    assert result.survivors == N - 1
    assert np.array_equal(result.total, vectors[[0, 1, 3, 4, 5, 6]].sum(axis=0))


def test_a_vector_with_other_masks_is_noticed_by_the_check_number() -> None:
    def other_masks(arrays: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        noise = np.random.default_rng(1).integers(0, 2**48, arrays[1].shape)
        return [arrays[0], (arrays[1] + noise) % 2**48]

    change = Fault(
        "collect_masked_vectors", [2], "changed", lambda m: changed_arrays(m, other_masks)
    )
    # Passes unnoticed with probability below 2**-40: the last number has to come out right.
    with pytest.raises(InconsistentSumError):
        summed(rows(N, 20), [change])


def without_tag(reply: Message) -> None:
    del reply.content.config_records["dpsvm_fast"]


def other_protocol(reply: Message) -> None:
    reply.content.config_records["dpsvm_fast"]["protocol"] = "secagg-mask/v0"


def damaged_shares(reply: Message) -> None:
    record = reply.content.config_records["secaggplus_configs"]
    record["shares"] = [bytes(len(share)) for share in record["shares"]]


def foreign_parties(reply: Message) -> None:
    record = reply.content.config_records["secaggplus_configs"]
    record["nids"] = [number + 1 for number in record["nids"]]


@pytest.mark.parametrize("change", [without_tag, other_protocol])
@pytest.mark.parametrize("stage", STAGES)
def test_a_party_that_speaks_another_protocol_counts_as_missing(stage: str, change: Any) -> None:
    vectors = rows(N, 20)
    result = summed(vectors, [Fault(stage, [2], "changed", change)])
    left = list(range(N)) if stage == "unmask" else [0, 1, 3, 4, 5, 6]
    assert result.survivors == len(left)
    assert np.array_equal(result.total, vectors[left].sum(axis=0))


def test_foreign_shares_count_as_missing_and_damaged_ones_end_the_sum() -> None:
    vectors = rows(N, 20)
    result = summed(vectors, [Fault("unmask", [2], "changed", foreign_parties)])
    assert np.array_equal(result.total, vectors.sum(axis=0))
    with pytest.raises(SecureSumAborted) as caught:
        summed(vectors, [Fault("unmask", [2], "changed", damaged_shares)])
    assert caught.value.stage == "unmask"


@given(
    survivors=st.integers(1, 2**18 - 1),
    share=st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=8),
)
def test_integers_survive_the_division_by_the_number_of_parties(
    survivors: int, share: list[float]
) -> None:
    """What Flower does with them, step by step, over the whole range that terms allow."""
    most = survivors * LARGEST
    total = [*(round(part * most) for part in share), most, -most, most - 1, survivors]
    exact = np.array(total, dtype=np.int64)
    ratio = np.array([survivors * 2**30], dtype=np.int64)[0]
    mean = (exact + survivors * 2**29).astype(float) * 1.0 + -(2.0**29)
    mean += -(survivors - 1) * 2.0**29
    mean *= 2**30 / ratio
    agreed = terms(len(total), n_users=2**18 - 1, min_survivors=2**17, threshold=2**17)
    assert np.array_equal(whole_sum([mean], survivors, agreed), exact)


@pytest.mark.parametrize("means", [None, [], [np.ones(3)], [np.ones(4), np.ones(4)]])
def test_a_sum_of_another_shape_is_none(means: Any) -> None:
    with pytest.raises(InconsistentSumError):
        whole_sum(means, 5, terms(4))


def test_too_large_a_sum_is_none() -> None:
    with pytest.raises(InconsistentSumError, match="larger"):
        whole_sum([np.array([2.0**29 + 1, 0.0, 0.0, 1.0])], 5, terms(4))


@pytest.mark.usefixtures("identity")
def test_the_server_sees_neither_numbers_of_records_nor_metrics_nor_arrays() -> None:
    vectors = rows(N, 20)
    asked = Asked(vectors, terms(20))
    grid = LocalGrid(asked.apps, record=True)
    sum_of_parties(grid, terms(20), grid.get_node_ids())
    upwards = [sent for sent in grid.traffic if sent.upwards]
    assert {sent.stage for sent in upwards} == set(STAGES)
    for sent in upwards:
        content = sent.message.content
        counts = [dict(record) for record in content.metric_records.values()]
        vector = sent.stage == "collect_masked_vectors"
        assert counts == ([{"num_examples": 1}] if vector else [])
        assert not any(len(record) for record in content.array_records.values())
        assert not content.config_records.get("fitres.metrics", {})
    masked = [sent for sent in upwards if sent.stage == "collect_masked_vectors"]
    for sent in masked:
        record = sent.message.content.config_records["secaggplus_configs"]
        numbers = bytes_to_ndarray(record["masked_params"][1])
        # By chance at most one of 140 numbers is small: a million times in 2**17.
        assert (numbers > 2**31).sum() >= 19


@pytest.mark.usefixtures("identity")
def test_keys_are_forgotten_after_the_round_and_after_a_failure() -> None:
    asked = Asked(rows(N, 20), terms(20))
    grid = LocalGrid(asked.apps, faults=[Fault("unmask", [3], "silent")])
    sum_of_parties(grid, terms(20), grid.get_node_ids())
    kept = [set(context.state.config_records) for context in grid.contexts]
    assert kept[0] == {"dpsvm_fast.answered"}
    # Who was never asked to unmask still has them, until the next message.
    assert "secaggplus_state" in kept[3]


def test_settings_without_protection_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="vectors"):
        FlowerSum().sum(rows(1, 4))
    with pytest.raises(InvalidParameterError, match="threshold"):
        FlowerSum(threshold=3).sum(rows(N, 4))
    with pytest.raises(InvalidParameterError, match="threshold"):
        FlowerSum(min_survivors=4, threshold=5).sum(rows(N, 4))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_users", 2**18),
        ("n_users", 1),
        ("min_survivors", 8),
        ("threshold", 3),
        ("threshold", 6),
        ("modulus", 2**48 + 2),
        ("modulus", 2**32),
        ("bits", 31),
        ("length", 1),
        ("protocol", "secagg"),
    ],
)
def test_terms_that_do_not_protect_or_overflow_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError):
        terms(4, **{name: value})


@pytest.mark.usefixtures("identity")
def test_the_wrong_number_of_parties_and_endless_waiting_are_refused() -> None:
    grid = LocalGrid([])
    with pytest.raises(InvalidParameterError, match="node_ids"):
        sum_of_parties(grid, terms(4), range(4))
    with pytest.raises(InvalidParameterError, match="node_ids"):
        sum_of_parties(grid, terms(4), range(8))
    with pytest.raises(InvalidParameterError, match="timeout"):
        sum_of_parties(grid, terms(4), range(7), timeout=0.0)
    with pytest.raises(TypeError, match="timeout"):
        sum_of_parties(grid, terms(4), range(7), timeout=None)  # type: ignore[arg-type]


def masked_and_keys(grid: LocalGrid) -> tuple[list[bytes], list[bytes]]:
    """All masked vectors and all public keys that went to the server."""
    masked, keys = [], []
    for sent in grid.traffic:
        if sent.upwards:
            record = sent.message.content.config_records["secaggplus_configs"]
            masked += record.get("masked_params", [])
            keys += [record[name] for name in ("pk1", "pk2") if name in record]
    return masked, keys


@pytest.mark.usefixtures("identity")
def test_two_rounds_have_no_key_and_no_mask_in_common_whatever_is_seeded() -> None:
    both = {name: terms(20, name=name) for name in ("first", "second")}
    apps = [make_party_app(lambda _: both, lambda *_: rows(N, 20)[0])] * N
    grid = LocalGrid(apps, record=True)
    for agreed in both.values():
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        sum_of_parties(grid, agreed, grid.get_node_ids())
    masked, keys = masked_and_keys(grid)
    assert len(keys) == len(set(keys)) == 2 * 2 * N
    assert len(masked) == len(set(masked)) == 2 * 2 * N
