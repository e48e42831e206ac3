"""Words of certificates: whoever edits one is found out, or the edit is told as unchecked.

Every string of every kind of certificate is walked over, whatever its field is called.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dpsvm_fast.certificates import certificate_schema, read_certificate
from dpsvm_fast.verification import verify
from oracles.statements import MAKERS, statement_of
from oracles.tampering import places, replaced

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
