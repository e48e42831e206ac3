"""Files that nobody should trust: changed bytes, and digests that whoever changed them wrote anew.

They are refused, or load as sound models.
"""

from __future__ import annotations

import builtins
import errno
import json
import os
import pickle
import stat
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from dpsvm_fast import InvalidParameterError, PrivateLinearSVC
from dpsvm_fast.certificates.words import SEED_REASON
from dpsvm_fast.data import TableSchema
from dpsvm_fast.exceptions import ModelFormatError
from dpsvm_fast.persist import load_model, read_model, save_certificate, save_model
from dpsvm_fast.persist import values as text_module
from oracles.forging import (
    ODD,
    assert_refused,
    assert_same_answers,
    at,
    changed,
    coefficients,
    document_of,
    places,
)
from oracles.saved import QUICK, answers, fitted, rewritten, sealed
from oracles.tampering import with_events

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
every_kind = pytest.mark.parametrize("kind", QUICK)
# Something else, or nothing.
either = st.sampled_from([..., *ODD])


@given(data=st.data())
@in_one_folder
def test_forged_files_are_refused_or_give_a_sound_model(tmp_path: Path, data: Any) -> None:
    """Whatever is loaded is an estimator whose answers are numbers."""
    kind = data.draw(st.sampled_from(QUICK))
    document = document_of(kind, tmp_path)
    for _ in range(data.draw(st.integers(1, 2))):
        ways = list(places(document))
        document = changed(document, data.draw(st.sampled_from(ways)), data.draw(either))
    if not isinstance(document, dict):
        return
    path = rewritten(tmp_path / "forged.json", document)
    try:
        model = load_model(path, verify=False)
    except ModelFormatError as error:
        assert len(str(error)) < 1500  # noqa: PT017
        return
    for values in answers(model).values():
        assert values.dtype.kind != "f" or np.isfinite(values).all()


SCHEMA = {
    "target": "kind",
    "classes": [0, 1, 2],
    "columns": {
        "a": {"bounds": [0.0, 1.0], "missing": 0.5},
        "b": {"categories": ["x", "y"], "unknown": "none"},
        "c": {"bounds": [-2, 3]},
        "d": {"ignore": True},
    },
}


@given(data=st.data())
@in_one_folder
def test_forged_schemas_are_refused_or_read(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "model.json"
    save_model(fitted("output"), path, schema=TableSchema.from_dict(SCHEMA))
    document = json.loads(path.read_text())
    ways = [way for way in places(document) if way[0] == "schema"]
    document = changed(document, data.draw(st.sampled_from(ways)), data.draw(either))
    try:
        found = read_model(rewritten(path, document), verify=False)
    except ModelFormatError as error:
        assert len(str(error)) < 1500  # noqa: PT017
    else:
        assert found.schema is None or found.schema.n_features == 4


@every_kind
def test_what_is_taken_out_or_added_is_missed(tmp_path: Path, kind: str) -> None:
    document = document_of(kind, tmp_path)
    path = tmp_path / "forged.json"
    ways = [way for way in places(document) if isinstance(way[-1], str) and "privacy" not in way]
    optional = {"feature_names_in_", "best_score_", "output", "sha256", "mu_"}
    # A search may have candidates that do not say these of themselves.
    optional |= {"n_features_in_", "classes_"} if kind == "search" else set()
    for way in ways:
        if way[-1] in optional or "mu_" in way or "pairs" in way:
            continue
        assert_refused(rewritten(path, changed(document, way, ...)), ".", verify=False)
        more = changed(document, (*way[:-1], "more"), 1)
        assert_refused(rewritten(path, more), ".", verify=False)


@every_kind
def test_null_in_any_place_is_met_by_the_check_of_that_place(tmp_path: Path, kind: str) -> None:
    """The net for errors without a type, whose sentence names nothing, has nothing to catch."""
    document = document_of(kind, tmp_path)
    for way in (way for way in places(document) if way[0] == "model" and "privacy" not in way):
        path = rewritten(tmp_path / "forged.json", changed(document, way, None))
        try:
            load_model(path, verify=False)
        except ModelFormatError as error:
            assert "its contents are inconsistent" not in str(error), way  # noqa: PT017


@pytest.mark.parametrize("name", ["os.system", "eval", "SVC", "StandardScaler", "", 3, None])
def test_no_other_class_is_made(tmp_path: Path, name: Any) -> None:
    document = document_of("output", tmp_path)
    forged = changed(document, ("model", "class"), name)
    assert_refused(rewritten(tmp_path / "forged.json", forged), "which this version cannot load")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (coefficients(np.full((3, 4), np.nan)), "finite"),
        (coefficients(np.full((3, 4), np.inf)), "finite"),
        (coefficients(np.zeros((3, 5))), r"got the shape \(3, 5\), expected \(3, 4\)"),
        (coefficients(np.zeros((3, 4)), [3, 4, 1]), "shape"),
        (coefficients(np.zeros((3, 3)), [3, 4]), "got 72 bytes"),
        (coefficients(np.zeros((3, 4)), [2**40, 2**40]), "shape"),
        (coefficients(np.zeros((3, 4)), [-3, -4]), "shape: got -3"),
        (coefficients(np.zeros((3, 4))) | {"dtype": "|O"}, "dtype"),
        (coefficients(np.zeros((3, 4))) | {"data": "äöü"}, "base64"),
        (coefficients(np.zeros((3, 4))) | {"data": None}, "data: got NoneType"),
        ([[0.0] * 4] * 3, "expected a mapping"),
    ],
    ids=range(11),
)
def test_odd_weights_are_refused(tmp_path: Path, value: Any, words: str) -> None:
    document = document_of("output", tmp_path)
    forged = changed(document, ("model", "attributes", "coef_"), value)
    sentence = assert_refused(rewritten(tmp_path / "forged.json", forged), words)
    assert "model.attributes.coef_" in sentence


@pytest.mark.parametrize(
    ("way", "value", "words"),
    [
        (("epsilon",), 0.1, "another epsilon: 1.0, the certificate 0.1"),
        (("delta",), 1e-9, "delta"),
        (("adjacency",), "replace_one", "assumed_public"),
        (("private",), False, "private"),
        (("mechanism",), "objective_perturbation", "another mechanism"),
        (("loss",), "huber", "loss|caveats"),
        (("noise", "shape"), [3, 40], "n_weights|noisy numbers"),
        (("noise", "sigma"), 1e-3, "events"),
        (("events", 0, "sigma"), 1e3, "events"),
        (("version",), 6, "newer version"),
        (("version",), 1, "expected 5"),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "",
)
def test_certificates_that_do_not_go_with_the_model_are_refused(
    tmp_path: Path, way: tuple[Any, ...], value: Any, words: str
) -> None:
    document = document_of("output", tmp_path)
    forged = changed(document, ("model", "privacy", *way), value)
    assert_refused(rewritten(tmp_path / "forged.json", forged), words)


HUGE = 2**24 + 1
INCONSISTENT: list[tuple[str, dict[tuple[Any, ...], Any], str]] = [
    (
        "output",
        {("privacy", "noise", "shape"): [3, 40], ("privacy", "noise", "n_weights"): 120},
        "another shape of the weights",
    ),
    ("output", {("attributes", "fitted_loss", "n_classes"): 4}, "another number of classes"),
    ("output", {("attributes", "fitted_loss", "name"): "huber"}, "another loss"),
    ("output", {("attributes", "classes_", "values"): [2, 1, 0]}, "expected sorted labels"),
    ("output", {("attributes", "classes_", "values"): [0, 1, 1]}, "without repetitions"),
    ("output", {("attributes", "classes_", "values"): [0, 1, 2.0]}, "labels of one type"),
    (
        "output",
        {("attributes", "classes_"): {"dtype": "uint8", "values": [0, 1, 256]}},
        "outside the range of its type|sorted labels",
    ),
    ("linear", {("attributes", "mechanism_"): "gradient", ("attributes", "n_steps_"): None},
     "another number of steps"),
    ("linear whitened", {("attributes", "whitened_"): False}, "whitened_ does not match"),
    ("linear", {("parameters", "bounds"): [coefficients([0.0] * 3), 1.0]}, "bounds, or a centre"),
    ("linear", {("attributes", "bounds_"): [1.0, 0.0]}, "low < high"),
    ("pca", {("parameters", "centre"): coefficients([0.0] * 3)}, "bounds, or a centre"),
    ("pca", {("attributes", "scales_"): coefficients([1.0, 1.0, 1.0, 0.0])}, "numbers > 0"),
    ("kernel", {("attributes", "gamma_"): 0.123}, "differs from features_"),
    ("kernel", {("attributes", "features_", "n_features"): 5}, "as many features"),
    ("kernel additive", {("attributes", "kernel_"): "linear"}, "differs from features_"),
    ("kernel additive", {("attributes", "splines_"): None}, "coef_"),
    (
        "kernel additive",
        {
            ("attributes", "splines_", "knots"): [[0.0, 1.0]] * 3,
            ("attributes", "splines_", "linear"): [False] * 3,
        },
        "of each column",
    ),
    ("kernel additive", {("attributes", "splines_", "knots"): [[0, 1, 1]] * 4}, "increasing"),
    ("kernel additive", {("attributes", "splines_", "linear"): [True] * 4}, "two knots"),
    ("kernel additive", {("attributes", "splines_", "linear"): [False]}, "for each column"),
    ("kernel", {("attributes", "features_", "structure"): "slow"}, "expected one of"),
    ("features", {("attributes", "features", "kernel"): "laplacian"}, "frequencies of 'rbf'"),
    ("features", {("attributes", "features"): None}, "attributes.features: .*got NoneType"),
    ("federated", {("parameters", "spec", "classes"): [0, 2]}, "of the specification"),
    ("federated", {("parameters", "spec", "n_users"): 5}, "another n_users: 5, the certificate 4"),
    ("federated", {("parameters", "spec", "unit"): "person"}, "another unit: 'person'"),
    ("federated", {("parameters", "spec"): None}, "does not have the form"),
    ("search", {("parameters", "strategy"): "random_stopping"}, "another strategy"),
    ("search", {("parameters", "epsilon"): 9.0}, "another epsilon: 9.0, the certificate 8.0"),
    ("search", {("best_estimator", "parameters", "epsilon"): 9.0}, "larger than that of the"),
    (
        "kernel with norms",
        {
            ("attributes", "n_features_in_"): HUGE,
            ("attributes", "features_", "n_features"): HUGE,
            ("attributes", "bounds_"): [0.0, 1.0],
        },
        "expected an array for that number of features",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    INCONSISTENT,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(INCONSISTENT)],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, kind: str, changes: dict[tuple[Any, ...], Any], words: str
) -> None:
    document = document_of(kind, tmp_path)
    for way, value in changes.items():
        document = changed(document, ("model", *way), value)
    assert_refused(rewritten(tmp_path / "forged.json", document), words, verify=False)


def test_a_pipeline_has_the_certificate_of_its_own_trainer(tmp_path: Path) -> None:
    """Of sparse rows, without a release before the weights, it is that of the trainer alone."""
    path = tmp_path / "sparse.json"
    X = sparse.csr_matrix(np.eye(6, 4))
    model = PrivateLinearSVC(2.0, 1e-6, bounds=(0, 1), classes=[0, 1], mechanism="output")
    save_model(model.fit(X, [0, 1] * 3), path)
    assert load_model(path).privacy_.mechanism == "output_perturbation"
    document = json.loads(path.read_text())
    other = changed(document, ("model", "attributes", "mechanism_"), "objective")
    assert_refused(rewritten(tmp_path / "forged.json", other), "another mechanism")


def test_names_are_as_many_as_features(tmp_path: Path) -> None:
    document = document_of("pipeline of names", tmp_path)
    way = ("model", "steps", 0, 1, "attributes", "feature_names_in_")
    forged = changed(document, way, ["age", "x"])
    assert_refused(rewritten(tmp_path / "forged.json", forged), "got 2 names, expected 4")


def test_a_smaller_epsilon_everywhere_does_not_hold(tmp_path: Path) -> None:
    document = document_of("output", tmp_path)
    for way in (("privacy", "epsilon"), ("parameters", "epsilon")):
        document = changed(document, ("model", *way), 0.1)
    path = rewritten(tmp_path / "forged.json", document)
    assert_refused(path, "the certificate does not hold")
    assert load_model(path, verify=False).epsilon == 0.1


def test_a_seeded_model_whose_numbers_do_not_follow_is_refused(tmp_path: Path) -> None:
    document = document_of("output", tmp_path)
    reasons = {"not_private_reasons": [SEED_REASON], "random_source": "seed", "private": False}
    forged = changed(document, ("model", "privacy"), document["model"]["privacy"] | reasons)
    path = rewritten(tmp_path / "forged.json", forged)
    assert not load_model(path).privacy_.private
    forged = changed(forged, ("model", "privacy", "noise", "sigma"), 1e-3)
    forged["model"]["privacy"] = with_events(forged["model"]["privacy"])
    assert_refused(rewritten(path, forged), "does not hold")


def test_the_certificate_of_another_model_is_refused(tmp_path: Path) -> None:
    document = document_of("output", tmp_path)
    other = document_of("pca", tmp_path)["model"]["privacy"]
    forged = changed(document, ("model", "privacy"), other)
    assert_refused(rewritten(tmp_path / "forged.json", forged), "mechanism|epsilon")


def test_the_best_of_a_search_has_the_certificate_of_the_search(tmp_path: Path) -> None:
    document = document_of("search", tmp_path)
    way = ("model", "best_estimator", "privacy", "epsilon")
    forged = changed(document, way, 8.5)
    assert_refused(rewritten(tmp_path / "forged.json", forged), "certificate of the search")


@pytest.mark.parametrize("name", ["n_features_in_", "classes_"])
def test_a_search_is_about_the_rows_of_its_model(tmp_path: Path, name: str) -> None:
    document = document_of("search", tmp_path)
    other = {"n_features_in_": 9, "classes_": {"dtype": "int64", "values": [0, 1, 5]}}[name]
    forged = changed(document, ("model", "attributes", name), other)
    assert_refused(rewritten(tmp_path / "forged.json", forged), f"another {name}")


def test_steps_have_to_fit_each_other(tmp_path: Path) -> None:
    document = document_of("pipeline", tmp_path)
    steps = document["model"]["steps"]
    without = changed(document, ("model", "steps"), [steps[0], steps[1], steps[3]])
    assert_refused(rewritten(tmp_path / "forged.json", without), "takes 2 features")
    turned = changed(document, ("model", "steps"), steps[::-1])
    assert_refused(rewritten(tmp_path / "forged.json", turned), "expected a transformer")
    many = [[f"nothing {k}", None] for k in range(30_000)]
    idle = changed(document, ("model", "steps"), [*many, *steps])
    assert_refused(rewritten(tmp_path / "forged.json", idle), "expected a list of 1 to 1000 steps")


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
    path, at_least = tmp_path / "output.json", 1 << 20
    with pytest.raises(InvalidParameterError, match="max_memory") as error:
        load_model(path, max_memory=at_least - 1)
    assert error.value.parameter == "max_memory"
    load_model(path, max_memory=at_least)
    # A byte takes five: none of the file has to be text of a model to be counted.
    path.write_bytes(path.read_bytes() + b" " * (at_least // 5))
    words = "larger than 209715 bytes; raise the memory limit"
    for read in (load_model, partial(save_certificate, path=tmp_path / "certificate.json")):
        with pytest.raises(ModelFormatError, match=words):
            read(path, max_memory=at_least)
    load_model(path, max_memory=2 * at_least)
    monkeypatch.setattr("dpsvm_fast.files.LARGEST_FILE", 1000)
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
