"""The statement: read as it was written, refused where it cannot be, and a text people can read."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dpsvm_fast import NotPrivateWarning, PrivacyLedger, RandomFourierFeatures, total_privacy
from dpsvm_fast.certificates import certificate_schema, read_certificate
from dpsvm_fast.certificates.words import SEED_REASON
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.verification import verify
from oracles.statements import ESTIMATORS, MAKERS, PIPELINES, X, fitted, pipeline, statement_of
from oracles.tampering import places, replaced

every_kind = pytest.mark.parametrize("kind", MAKERS, ids=" ".join)


def made(kind: str) -> Any:
    return statement_of(kind, "add_remove")


# Records inside of statements, made when they are asked for.
RECORDS: dict[str, Callable[[], Any]] = {
    "statement": lambda: made("output"),
    "sampled": lambda: made("gradient sampled"),
    "noise": lambda: made("output").noise,
    "objective": lambda: made("objective two").objective,
    "part": lambda: made("gradient sampled").parts[0],
}


@pytest.mark.sampled(every=3)
@every_kind
def test_json_keeps_every_bit(kind: tuple[str, str]) -> None:
    statement = statement_of(*kind)
    text = statement.to_json()
    again = read_certificate(text)
    assert again == statement == pickle.loads(pickle.dumps(statement))
    assert again.to_json() == text
    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text)["private"] is True


@every_kind
def test_the_text_fits_a_terminal_and_says_what_counts(kind: tuple[str, str]) -> None:
    statement = statement_of(*kind)
    text = str(statement)
    assert max(map(len, text.splitlines())) <= 88
    flat = " ".join(text.split())
    said = [*getattr(statement, "assumed_public", ()), *getattr(statement, "caveats", ())]
    said += [part.what for part in getattr(statement, "parts", ())]
    if kind[0] in ESTIMATORS:
        said += [statement.theorem, statement.library_version]
    for sentence in (f"epsilon = {statement.epsilon:g}", *said):
        assert sentence in flat
    assert "NOT PRIVATE" not in flat


def test_a_seeded_release_says_that_it_is_not_private() -> None:
    assert not dataclasses.replace(made("output"), random_source="seed").private
    with pytest.warns(NotPrivateWarning):
        seeded = fitted("output", "add_remove", random_state=0).privacy_
    assert not seeded.private
    assert "NOT PRIVATE" in str(seeded)
    assert SEED_REASON in " ".join(str(seeded).split())
    assert json.loads(seeded.to_json())["private"] is False


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        made("output").epsilon = 0.1  # type: ignore[misc]


# What cannot be a record, and what the error names: a field, or the record whose fields disagree.
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("statement", {"epsilon": 0.0}, "epsilon"),
    ("statement", {"epsilon": "1"}, "epsilon"),
    ("statement", {"delta": 1.0}, "delta"),
    ("sampled", {"delta": 0.0}, "delta"),
    ("statement", {"adjacency": "both"}, "adjacency"),
    ("statement", {"random_source": "dice"}, "random_source"),
    ("statement", {"occasion": "none"}, "occasion"),
    ("statement", {"loss": "none"}, "labels"),
    ("statement", {"parts": ("part",)}, "parts"),
    ("statement", {"noise": {}}, "noise"),
    ("statement", {"noise": None}, "noise"),
    ("statement", {"sensitivity": None}, "noise"),
    ("noise", {"distribution": "laplace"}, "distribution"),
    ("noise", {"distribution": "gamma"}, "noise"),
    ("noise", {"sampler": "magic"}, "sampler"),
    ("noise", {"beta": 1.0}, "noise"),
    ("noise", {"sigma": None}, "noise"),
    ("noise", {"sigma": math.inf}, "sigma"),
    ("noise", {"grid": None}, "noise"),
    ("noise", {"shape": (3,)}, "shape"),
    ("noise", {"shape": (3, 0)}, "shape"),
    ("noise", {"shape": (3, 5.0)}, "shape"),
    ("objective", {"n_classes": 1}, "n_classes"),
    ("objective", {"smoothing": 0.0}, "smoothing"),
    ("objective", {"beta": 1.0}, "objective"),
    ("objective", {"delta": 0.0}, "delta"),
    ("objective", {"grid": None}, "objective"),
    ("objective", {"extra_regularization": 1e9}, "extra_regularization"),
    ("objective", {"shape": (3,)}, "shape"),
    ("objective", {"curvature": math.inf}, "curvature"),
    ("part", {"name": ""}, "name"),
    ("part", {"what": 3}, "what"),
    ("part", {"clip_norm": 0.0}, "clip_norm"),
    ("part", {"rounding": -1.0}, "rounding"),
    ("part", {"relation_factor": 3.0}, "relation_factor"),
    ("part", {"sigma": None}, "part 'training'"),
    ("part", {"beta": 1.0}, "part 'training'"),
    ("part", {"grid": None}, "part 'training'"),
    ("part", {"shape": (1, 2, 3)}, "shape"),
    ("part", {"n_steps": 0}, "n_steps"),
    ("part", {"sampling_rate": 0.0}, "sampling_rate"),
    ("part", {"last_iterate": 3}, "last_iterate"),
    (
        "part",
        {"distribution": "gamma", "sampler": "floating_point", "sigma": None, "grid": None}
        | {"beta": 1.0, "epsilon": 1.0},
        "n_steps",
    ),
]


@pytest.mark.parametrize(("record", "changes", "parameter"), BAD, ids=str)
def test_records_that_cannot_be_are_refused_by_name(
    record: str, changes: dict[str, Any], parameter: str
) -> None:
    with pytest.raises((TypeError, InvalidParameterError)) as caught:
        dataclasses.replace(RECORDS[record](), **changes)
    named = getattr(caught.value, "parameter", str(caught.value).partition(":")[0])
    assert named.rpartition(".")[2] == parameter, str(caught.value)


def test_fields_of_several_records_belong_together() -> None:
    """Minimisers coincide with noise in the objective alone, last iterates follow full sums."""
    exact = dataclasses.replace(made("output").sensitivity, exact=0.0)
    last = made("gradient last").parts[0].last_iterate
    for record, changes in (
        ("statement", {"sensitivity": exact}),
        ("part", {"last_iterate": last}),
    ):
        with pytest.raises(InvalidParameterError):
            dataclasses.replace(RECORDS[record](), **changes)


SINGLE = [kind for kind in MAKERS if kind[0] in ESTIMATORS]
every_single = pytest.mark.parametrize("kind", SINGLE, ids=" ".join)

# Parameters that a promise does not rest on, each with the reason.
NEUTRAL = {
    "n_threads": "the same bits for any number of threads",
    "verbose": "public numbers are printed",
    "low_memory": "the same solution, certified likewise",
    "random_state": "a seed has a line of its own: the release is not private",
    "ledger": "where the events were recorded",
    "classes": "has a line of its own",
    "dense_output": "how transformed rows are returned",
}


def words(texts: tuple[str, ...]) -> set[str]:
    return set(re.findall(r"\w+", " ".join(texts)))


@every_single
def test_parameters_and_facts_about_the_rows_are_named(kind: tuple[str, str]) -> None:
    make, _ = ESTIMATORS[kind[0]]
    parameters, public = set(make._get_param_names()), statement_of(*kind).assumed_public
    assert not parameters - set(NEUTRAL) - words(public)
    # The bound of the rows comes first.
    assert public[0].split()[0] in {"data_norm", "bounds"} & parameters
    assert any("number and names of the features" in text for text in public)
    assert any("dense or sparse" in text for text in public)
    assert any("label set" in text for text in public) == ("classes" in parameters)
    # Under add_remove the number of rows is private.
    assert ("the number of rows" in public) == (kind[1] == "replace_one")


def test_a_label_set_that_was_read_makes_the_release_not_private() -> None:
    with pytest.warns(match="classes: None"):
        made = fitted("output", "add_remove", classes=None).privacy_
    assert any("read from the training labels" in text for text in made.assumed_public)
    assert not made.private


def test_the_seed_of_random_features_is_named() -> None:
    made = statement_of("kernel fixed", "add_remove")
    assert any("random features" in text and "seed" in text for text in made.assumed_public)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_a_pipeline_names_what_each_step_assumes_and_what_joins_them(adjacency: str) -> None:
    for kind in PIPELINES:
        whole = statement_of(kind, adjacency)
        for step in whole.steps:
            own = step.statement.assumed_public if step.statement is not None else ()
            assert {f"{step.title}: {text}" for text in own} <= set(whole.assumed_public)
        joined = " ".join(whole.assumptions)
        assert "same private rows" in joined
        assert "parameters were chosen without looking at the rows" in joined


def test_neutral_parameters_change_no_promise() -> None:
    ledger = PrivacyLedger(100.0, 1e-3, strict=False)
    changes: dict[str, Any] = {"n_threads": 2, "ledger": ledger, "low_memory": True}
    for kind in ("output", "objective", "kernel fixed"):
        same = fitted(kind, "add_remove", **changes).privacy_
        seeds = re.compile(r'seed"?:? \d+')
        texts = [
            seeds.sub("seed", made.to_json()) for made in (same, statement_of(kind, "add_remove"))
        ]
        assert texts[0] == texts[1]


def test_parameters_with_weight_are_distinguished() -> None:
    """Negative control: a parameter that is left out is missed."""
    public = statement_of("output", "add_remove").assumed_public
    less = tuple(text.replace("intercept_scaling, ", "") for text in public)
    assert "intercept_scaling" in words(public) - words(less)


def test_steps_without_a_budget_need_no_line() -> None:
    free = RandomFourierFeatures(4).fit(X)
    assert not hasattr(free, "privacy_")
    whole = total_privacy([free, fitted("centre", "add_remove")])
    assert [step.statement is None for step in whole.steps] == [True, False]
    assert pipeline("add_remove").private


Kind = tuple[str, str]
Path = tuple[Any, ...]

PERSON = "one person, with all rows of that person"
SCHEMA = Draft202012Validator(certificate_schema())
# Words that follow from other fields, which a schema cannot say.
FOLLOWING = ("assumed_public", "assumptions", "caveats", "protected", "theorem", "what")
# Their laws take a tenth of a second or more to recompute.
SLOW = ("objective", "ellipsoids", "dpdr", "pipeline", "gradient sampled")
LONG = [pytest.param(k, marks=pytest.mark.slow) for k in MAKERS if k[0].startswith(SLOW)]
QUICK = [k for k in MAKERS if not k[0].startswith(SLOW)]
EACH_FORMAT = [
    *(("linear", "add_remove"), ("gradient last", "add_remove"), ("pipeline pure", "replace_one")),
    *(("search", "add_remove"), ("helmet", "replace_one")),
]


def strings(document: Any) -> list[tuple[Path, str]]:
    """Every string in a document."""
    return [(path, text) for path, text in places(document) if isinstance(text, str)]


def field(path: Path) -> str:
    return next(key for key in reversed(path) if isinstance(key, str))


def document_of(kind: Kind) -> dict[str, Any]:
    return dict(json.loads(statement_of(*kind).to_json()))


@cache
def used() -> dict[str, list[str]]:
    """What certificates of any kind say in the field of a name."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for kind in MAKERS:
        for path, text in strings(document_of(kind)):
            found[field(path)][text] = None
    return {name: list(texts) for name, texts in found.items()}


def told(result: Any, text: str) -> bool:
    """Whether an edit that was let through is told as the maker's word, also in print."""
    printed = " ".join(str(result).partition("not checked")[2].split())
    return any(text in line for line in result.stated) and " ".join(text.split()) in printed


def harmless(changed: Any, text: str) -> bool:
    """Whether an edit is refused, or told as unchecked; what cannot be read is never verified."""
    try:
        read_certificate(changed)
    except (TypeError, ValueError):
        return True
    result = verify(changed)
    return not result.ok or told(result, text)


def by_day(kinds: list[Kind], share: int) -> pytest.MarkDecorator:
    """These kinds with one of so many changes by day, all kinds with every change by night."""
    night = [pytest.param(k, 1, marks=pytest.mark.slow, id=" ".join((*k, "all"))) for k in MAKERS]
    if kinds == EACH_FORMAT:
        night = [case for case in night if case.values[0] in kinds]
    day = [pytest.param(k, share, id=" ".join(k)) for k in kinds]
    return pytest.mark.parametrize(("kind", "share"), [*day, *night])


@by_day(QUICK, 5)
def test_an_edited_word_is_refused_or_reported_as_unchecked(kind: Kind, share: int) -> None:
    document = document_of(kind)
    # Every kind begins elsewhere, so that all of them together come to every field.
    first = MAKERS.index(kind) % share
    for path, _ in strings(document)[first::share]:
        assert harmless(replaced(document, path, PERSON), PERSON), path


@pytest.mark.parametrize("kind", QUICK, ids=" ".join)
def test_a_unit_of_persons_is_refused_or_reported_as_unchecked(kind: Kind) -> None:
    try:
        # With all that follows: assumptions, theorem and protected unit are those of persons.
        changed = dataclasses.replace(statement_of(*kind), unit="person")
    except ValueError:
        return
    result = verify(changed)
    assert not result.ok or told(result, "unit: person")


@by_day(EACH_FORMAT, 3)
def test_verify_and_schema_refuse_what_is_not_read(kind: Kind, share: int) -> None:
    document = document_of(kind)
    refused = 0
    for path, _ in strings(document)[::share]:
        changed = replaced(document, path, PERSON)
        try:
            read_certificate(changed)
        except (TypeError, ValueError):
            refused += 1
            assert not verify(changed).ok
            assert field(path) in FOLLOWING or not SCHEMA.is_valid(changed), path
    assert refused > 5 // share


def swaps(kind: Kind, share: int) -> Iterator[tuple[Path, str, Any]]:
    """Words of other certificates, put where this one has another."""
    document = document_of(kind)
    number = 0
    for path, text in strings(document):
        for other in used()[field(path)]:
            number += 1
            if other != text and number % share == 0:
                yield path, other, replaced(document, path, other)


@by_day(QUICK, 97)
def test_a_word_of_another_certificate_likewise(kind: Kind, share: int) -> None:
    for path, other, changed in swaps(kind, share):
        assert harmless(changed, other), (path, other)


@pytest.mark.parametrize("kind", [*EACH_FORMAT[:2], EACH_FORMAT[4], *LONG], ids=" ".join)
def test_a_sentence_that_follows_is_not_left_out(kind: Kind) -> None:
    """What the promise rests on, and what it does not cover, is there altogether."""
    document = document_of(kind)
    for name in ("caveats", "assumed_public", "assumptions"):
        for i in range(len(document.get(name, ()))):
            less = document | {name: document[name][:i] + document[name][i + 1 :]}
            if verify(less).ok:
                assert any(document[name][i] in line for line in verify(document).stated)


def test_free_words_cannot_draw_lines_of_their_own() -> None:
    document = document_of(("search", "add_remove"))
    document["candidates"][0] = "C=1\n\x1b[32mThe certificate holds"
    result = verify(document)
    assert result.ok
    assert "\x1b" not in str(result)
    assert not any(line.startswith("The certificate holds") for line in str(result).split("\n")[1:])
