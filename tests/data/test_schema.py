"""JSON Schemas of certificates: statements satisfy them, and they say what the readers do."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import dpsvm_fast.certificates as certificates
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    DistanceEvent,
    FederatedStatement,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PipelineStatement,
    PrivacyEvent,
    PrivacyStatement,
    PureEvent,
    RandomStoppingEvent,
    SelectionStatement,
    SubsampledGaussianEvent,
    ZCDPEvent,
    certificate_schema,
)
from dpsvm_fast.certificates.statement import FORMATS
from dpsvm_fast.certificates.words import MECHANISMS
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.verification.releases import PARTS
from oracles.statements import MAKERS, statement_of
from oracles.tampering import at, places, replaced, with_events

# Validators are for many documents, schemas for people.
ANY = Draft202012Validator(certificate_schema())
READERS: dict[str, Any] = {
    "dpsvm_fast.certificate": PrivacyStatement.from_dict,
    "dpsvm_fast.pipeline_certificate": PipelineStatement.from_dict,
    "dpsvm_fast.selection_certificate": SelectionStatement.from_dict,
    "dpsvm_fast.federated_certificate": FederatedStatement.from_dict,
}
OF_FORMAT = {name: Draft202012Validator(certificate_schema(name)) for name in FORMATS}

WHOLE = certificate_schema()["$defs"]
# Every record that the schemas describe.
DESCRIBED: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(*FORMATS.values(), *PrivacyEvent.members().values()),
        *(certificates.Sensitivity, certificates.Noise, certificates.ObjectiveNoise),
        *(certificates.Descent, certificates.LastIterate, certificates.ReleasePart),
        *(certificates.SelectionNoise, certificates.Stopping, certificates.PipelineStep),
        *(certificates.SecureRound, certificates.Occasion),
    )
}
# Of a statement: what is written only where it is there.
OPTIONAL = ("sensitivity", "noise", "objective", "descent", "parts", "reserved")


def test_the_schemas_are_schemas() -> None:
    for name in (None, *FORMATS):
        schema = certificate_schema(name)
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        # A copy each time.
        schema.clear()
        assert certificate_schema(name)
    with pytest.raises(InvalidParameterError, match="format"):
        certificate_schema("other")


@pytest.mark.parametrize("kind", MAKERS, ids=str)
def test_every_statement_satisfies_its_schema(kind: tuple[str, str]) -> None:
    document = json.loads(statement_of(*kind).to_json())
    OF_FORMAT[document["format"]].validate(document)
    ANY.validate(document)
    for name, validator in OF_FORMAT.items():
        assert validator.is_valid(document) == (name == document["format"])


@pytest.mark.parametrize("name", DESCRIBED)
def test_schema_and_class_have_the_same_fields(name: str) -> None:
    schema, kind = WHOLE[name], DESCRIBED[name]
    assert schema["title"] == kind.__name__
    own = {f.name for f in fields(kind)}
    assert set(kind.kinds()) == own
    assert set(schema["properties"]) == own | set(kind.head()) | set(kind.DERIVED)
    assert schema["additionalProperties"] is False
    optional = set(OPTIONAL) if kind is PrivacyStatement else set()
    optional |= {name for name, own in kind.kinds().items() if own.left_out}
    assert set(schema["required"]) == set(schema["properties"]) - optional


def test_the_schemas_describe_these_and_no_others() -> None:
    assert set(WHOLE) == set(DESCRIBED)


def test_the_tables_of_events_and_mechanisms_are_those_of_the_library() -> None:
    tags = {WHOLE[kind.__name__]["properties"]["type"]["const"] for kind in map(type, EVENTS)}
    assert tags == set(PrivacyEvent.members())
    solved = {"output_perturbation", "objective_perturbation"}
    assert set(MECHANISMS) == solved | set(PARTS)


def described_fields(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of every object of a schema."""
    for place in (schema, *schema["$defs"].values()):
        for name, field in place.get("properties", {}).items():
            yield f"{place['title']}.{name}", field


@pytest.mark.parametrize("name", FORMATS)
def test_every_field_has_a_type_a_meaning_a_range_and_a_unit(name: str) -> None:
    found = dict(described_fields(certificate_schema(name)))
    assert len(found) > 30
    for path, field in found.items():
        assert field.keys() & {"type", "const", "anyOf", "$ref"}, path
        assert len(field["description"]) > 8, path
        types = field.get("type", [])
        numeric = {"number", "integer"} & set([types] if isinstance(types, str) else types)
        if numeric and "const" not in field:
            assert field["x-unit"], path
            assert field.keys() & {"minimum", "exclusiveMinimum"}, path
        if field.get("type") == "array" and field["items"].get("type") == "integer":
            assert field["items"]["x-unit"], path


# --- one document, many changes -------------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2, 3, 10**9, 10**9 + 1, 2.5, -0.0, 0.5, 5e-324, 1e4, 10000.5, 1e300, math.inf),
    *(None, True, False, "", " ", "word", [], [1], [1, 1], [1, 1, 1], {}),
    *("gaussian", "gamma", "exact_grid", "floating_point", "add_remove", "replace_one", "seed"),
    *("operating_system", "joint", "last", "softmax", "weston_watkins", "poisson"),
)
# What only readers know: whole numbers have no point, and fields of two places fit each other.
RELATED = {
    *("n_weights", "n_numbers", "shape", "batch_size", "n_samples", "caveats", "sampler", "grid"),
    *("delta", "extra_regularization", "regularization", "private", "not_private_reasons"),
    *("unit", "adjacency", "exact", "sigma", "noise_multiplier", "sensitivity", "random_source"),
    *("steps", "learned", "statement", "parts", "objective", "n_releases", "epsilon", "events"),
    *("assumed_public", "assumptions", "theorem", "protected", "what", "loss", "mechanism"),
    # Of facts about the fit: sentences follow from them.
    *("occasion", "parameter", "parameters", "labels", "assumed", "functions", "feature_seed"),
    *("periods", "learned", "uncovered", "cluster", "reasons", "reserved"),
    # Of a search: as many branches as candidates, and a choice that costs at most 1e4.
    *("branches", "candidates", "rate", "relation_factor"),
    # Of sums over parties: distances that add up to less than 1, matrices with a norm of theirs.
    *("discreteness", "overflow", "computational", "smoothing", "sigma_steps", "total"),
    # Which scale belongs to which law, which numbers a law can have, what is there beside what.
    *("distribution", "beta", "jacobian", "last_iterate", "n_steps", "sampling_rate"),
    *("law", "n_scores", "kappa", "stopping", "mean", "noise", "name", "clip_norm", "rounds"),
    *("trust", "threshold", "local_epsilon", "weighting", "local_events"),
}


def reads(document: Any) -> bool:
    """Whether the library reads a document."""
    try:
        READERS[document["format"]](document)
    except (TypeError, ValueError):
        return False
    return True


def disagreements(kind: tuple[str, str], every: int = 1) -> Iterator[str]:
    """Changes that one of schema and reader lets through, where both should agree.

    Of the values every second one, or third, is put into a field, and the others into the next.
    """
    document = json.loads(statement_of(*kind).to_json())
    validator = OF_FORMAT[document["format"]]
    for i, path in enumerate(path for path, _ in places(document)):
        if path[0] == "format":
            continue
        name = next(key for key in reversed(path) if isinstance(key, str))
        for value in VALUES[i % every :: every]:
            changed = with_events(replaced(document, path, value))
            read, valid = reads(changed), validator.is_valid(changed)
            whole = isinstance(value, float) and value.is_integer()
            if read and not valid:
                yield f"{path} = {value!r} is read and not valid"
            elif valid and not read and name not in RELATED and not whole:
                yield f"{path} = {value!r} is valid and not read"


# Between them these have every object of the schemas.
FEW = [
    ("output psgd", "replace_one"),
    ("objective", "add_remove"),
    ("objective gamma", "replace_one"),
    ("gradient last", "add_remove"),
    ("gradient sampled", "replace_one"),
    ("linear pure", "add_remove"),
    ("pipeline", "add_remove"),
    ("helmet person", "replace_one"),
    ("dpdr objective", "replace_one"),
]
QUICK = [FEW[0], FEW[3], FEW[-2]]


@pytest.mark.parametrize("kind", QUICK, ids=str)
def test_schema_and_reader_let_the_same_values_through(kind: tuple[str, str]) -> None:
    assert not list(disagreements(kind, every=3))


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS, ids=str)
def test_schema_and_reader_let_the_same_values_through_for_all(kind: tuple[str, str]) -> None:
    assert not list(disagreements(kind))


@pytest.mark.parametrize("kind", FEW, ids=str)
def test_unknown_and_missing_fields_and_other_versions_are_refused_by_both(
    kind: tuple[str, str],
) -> None:
    document = json.loads(statement_of(*kind).to_json())
    validator = OF_FORMAT[document["format"]]

    def refused(changed: Any) -> bool:
        return not reads(changed) and not validator.is_valid(changed)

    objects = [(), *(p for p, value in places(document) if isinstance(value, dict))]
    assert len(objects) >= 3
    for path in objects:
        whole = copy.deepcopy(document)
        at(whole, path)["surplus"] = 1
        assert refused(whole), path
        for name in at(document, path):
            less = copy.deepcopy(document)
            del at(less, path)[name]
            if name in OPTIONAL or name == "format":
                continue
            assert refused(less), (path, name)
    for version in (0, 1, 2, 3, 4, 6, "5", None, True):
        assert refused(document | {"version": version}), version


@pytest.mark.slow
def test_the_comparison_finds_a_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a schema that is wider, and one that is narrower."""
    for change, word in (
        ({"exclusiveMinimum": -9.0}, "not read"),
        ({"maximum": 1e-9}, "not valid"),
    ):
        schema = certificate_schema("dpsvm_fast.certificate")
        schema["$defs"]["Sensitivity"]["properties"]["C"] |= change
        monkeypatch.setitem(
            OF_FORMAT, schema["properties"]["format"]["const"], Draft202012Validator(schema)
        )
        assert any(word in line for line in disagreements(("output", "add_remove")))


# --- events ---------------------------------------------------------------------------------------

PURE = PureEvent(0.5, "add_remove")
EVENTS: list[PrivacyEvent] = [
    GaussianEvent(2.0, 1.0, "add_remove"),
    SubsampledGaussianEvent(1.1, 0.01, 100, "replace_one"),
    PURE,
    ApproximateEvent(0.5, 1e-6, "replace_one"),
    ZCDPEvent(0.1, "add_remove"),
    ObjectiveEvent("softmax", 3, 2.0, 0.5, None, "add_remove"),
    ObjectiveEvent("huber", 1, 2.0, None, 0.5, "replace_one"),
    DistanceEvent(1e-9, "replace_one"),
    ParallelEvent(((PURE, PURE), (GaussianEvent(2.0, 1.0, "add_remove"),)), "add_remove"),
    RandomStoppingEvent(
        (PURE, ParallelEvent(((PURE,),), "add_remove")), "geometric", 5.0, "add_remove"
    ),
    AlternativesEvent(((PURE,), (GaussianEvent(2.0, 1.0, "add_remove"),)), "add_remove"),
    RandomStoppingEvent((PURE,), "poisson", 0.5, "add_remove"),
]


def test_every_kind_of_event_is_among_them() -> None:
    assert {event.tag for event in EVENTS} == set(PrivacyEvent.members())


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_schema_and_reader_of_events_let_the_same_through(event: PrivacyEvent) -> None:
    validator = Draft202012Validator(PrivacyEvent.json_schema())
    document = json.loads(json.dumps(event.to_dict()))
    validator.validate(document)
    assert PrivacyEvent.from_dict(document) == event
    for path, _ in places(document):
        changes = [replaced(document, path, value) for value in (*VALUES, document)]
        for changed in changes:
            value = at(changed, path)
            whole = isinstance(value, float) and value.is_integer()
            if not (whole or path[-1] in RELATED):
                assert validator.is_valid(changed) == is_event(changed), (path, value)
    for changed in (document | {"surplus": 1}, *(without(document, name) for name in document)):
        assert not validator.is_valid(changed)
        assert not is_event(changed)


def is_event(document: Any) -> bool:
    """Whether the library reads an event."""
    try:
        PrivacyEvent.from_dict(document)
    except (TypeError, ValueError):
        return False
    return True


def without(document: dict[str, Any], name: str) -> dict[str, Any]:
    """All fields but one."""
    return {key: value for key, value in document.items() if key != name}
