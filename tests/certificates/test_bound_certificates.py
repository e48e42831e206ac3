"""Certificates held against the model that they are about."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsvm_fast.certificates import read_certificate
from dpsvm_fast.certificates.statement import bound_certificate
from dpsvm_fast.cli import main
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.persist import load_model, save_certificate, save_model
from dpsvm_fast.verification import verify
from oracles.forging import ODD, at, changed, coefficients, places
from oracles.saved import sealed

MODELS = Path(__file__).resolve().parents[1] / "stored" / "models" / "v5"
KEY, OTHER_KEY = b"k" * 32, b"o" * 32
Document = dict[str, Any]


def document_of(kind: str) -> Document:
    return dict(json.loads((MODELS / f"{kind}.json").read_text()))


WITH_ONE = sorted(
    path.stem
    for path in MODELS.glob("*.json")
    if "privacy" in json.loads(path.read_text()).get("model", {})
)


@pytest.mark.parametrize("kind", WITH_ONE)
def test_the_model_of_a_certificate(kind: str) -> None:
    document = document_of(kind)
    certificate = document["model"]["privacy"]
    result = verify(certificate, model=MODELS / f"{kind}.json")
    assert result.ok, result
    assert "the certificate that the model itself holds" in result.matches
    assert any("no digest" in line for line in result.stated)
    bound = bound_certificate(certificate, document, KEY)
    result = verify(json.dumps(bound), model=document, key=KEY)
    assert result.ok
    assert "signature" in result.matches[0]
    assert "SHA-256" in result.matches[1]
    assert not any("no digest" in line for line in result.stated)
    assert read_certificate(bound) == read_certificate(certificate)


@pytest.mark.parametrize("kind", WITH_ONE)
def test_the_certificate_of_another_class(kind: str) -> None:
    own = document_of(kind)
    others = [document_of(other)["model"] for other in WITH_ONE]
    for other in others:
        if other["class"] != own["model"]["class"]:
            model = own["model"] | {"privacy": other["privacy"]}
            forged = sealed(own | {"model": model})
            assert not verify(other["privacy"], model=forged).ok, other["class"]


def test_the_certificate_of_a_pipeline_is_about_its_steps(tmp_path: Path) -> None:
    save_certificate(MODELS / "pipeline.json", tmp_path / "certificate.json", key=KEY)
    bound = json.loads((tmp_path / "certificate.json").read_text())
    document = document_of("pipeline")
    result = verify(bound, model=document, key=KEY)
    assert result.ok, result
    assert "steps, classes and certificate of every step" in result.matches
    # A step said to be another, one that is left out, and one that is there besides.
    for edit in (
        lambda steps: steps[0].update(estimator="Normalizer"),
        lambda steps: steps[0].update(name="nothing"),
        lambda steps: steps.pop(0),
        lambda steps: steps.pop(2),
        lambda steps: steps.append(dict(steps[0])),
    ):
        certificate = copy.deepcopy(bound["certificate"])
        edit(certificate["steps"])
        assert not verify(certificate, model=document).ok


def without_whitening(privacy: Document) -> None:
    """The second moments of the rows were released and are in no event."""
    at_part = [part["name"] for part in privacy["parts"]].index("whitening")
    del privacy["parts"][at_part], privacy["events"][at_part]


def without_a_release(privacy: Document) -> None:
    """Weights were released once more than is said."""
    privacy["noise"]["n_releases"] -= 1
    privacy["events"].pop()
    privacy["theorem"] = privacy["theorem"].replace("4 releases", "3 releases")


def fewer_steps(privacy: Document) -> None:
    """The noise of all steps is said to be that of fewer."""
    part = privacy["parts"][-1]
    part["n_steps"] //= 4
    privacy["events"][-1]["sensitivity"] /= 2.0


def of_fewer_features(privacy: Document) -> None:
    privacy["noise"] |= {"shape": [3, 4], "n_weights": 12}
    privacy["sensitivity"]["rounding"] = privacy["noise"]["grid"] * 12**0.5
    s = privacy["sensitivity"]
    s["total"] = s["exact"] + 2.0 * s["solver_radius"] + s["rounding"]
    privacy["events"][0]["sensitivity"] = s["total"]


LEFT_OUT: list[tuple[str, Callable[[Document], None]]] = [
    ("linear", without_whitening),
    ("kernel", without_whitening),
    ("linear_output", without_whitening),
    ("linear_output", without_a_release),
    ("kernel_output", without_a_release),
    ("linear", fewer_steps),
    ("output", of_fewer_features),
]


@pytest.mark.parametrize(
    ("kind", "forge"), LEFT_OUT, ids=[f"{kind} {forge.__name__}" for kind, forge in LEFT_OUT]
)
def test_a_release_that_is_left_out(kind: str, forge: Callable[[Document], None]) -> None:
    """The forged certificate is consistent, also with the one in the model's file."""
    document = document_of(kind)
    forge(document["model"]["privacy"])
    forged = sealed(document)
    certificate = forged["model"]["privacy"]
    assert verify(certificate).ok
    result = verify(bound_certificate(certificate, forged, KEY), model=forged, key=KEY)
    assert not result.ok
    assert all("the model has another" in problem for problem in result.problems)


def test_numbers_that_were_changed() -> None:
    """Found by the digest, and where there is none said not to be compared."""
    document = document_of("output")
    certificate = document["model"]["privacy"]
    other = changed(document, ("model", "attributes", "coef_"), coefficients([[7.0] * 4] * 3))
    other = sealed(other)
    assert verify(certificate, model=other).ok
    assert any("no digest" in line for line in verify(certificate, model=other).stated)
    for key in (None, KEY):
        bound = bound_certificate(certificate, document, key)
        assert verify(bound, model=document, key=key).ok
        result = verify(bound, model=other, key=key)
        assert not result.ok
        assert "SHA-256" in result.problems[0]
        # Whoever writes the digest anew needs the key.
        rewritten = bound | {"model_sha256": bound_certificate(certificate, other)["model_sha256"]}
        assert verify(rewritten, model=other, key=key).ok == (key is None)
    unsigned = verify(bound_certificate(certificate, document), model=document)
    assert any("unsigned" in line for line in unsigned.stated)


def test_the_certificate_of_another_fit() -> None:
    """Same class, shapes and budget: another certificate, or at least another digest."""
    assert not verify(document_of("psgd")["model"]["privacy"], model=document_of("output")).ok
    one, two = document_of("linear"), document_of("linear_whitened")
    bound = bound_certificate(one["model"]["privacy"], one, KEY)
    assert not verify(bound, model=two, key=KEY).ok


def test_keys() -> None:
    document = document_of("output")
    certificate = document["model"]["privacy"]
    bound = bound_certificate(certificate, document, KEY)
    assert not verify(bound, key=OTHER_KEY).ok
    assert not verify(bound | {"hmac_sha256": "0" * 64}, key=KEY).ok
    assert not verify(bound | {"hmac_sha256": None}, key=KEY).ok
    assert not verify(certificate, key=KEY).ok
    assert any("no key" in line for line in verify(bound).stated)
    for name in bound:
        less = {field: value for field, value in bound.items() if field != name}
        assert not verify(less).ok
    inside = changed(bound, ("certificate", "library_version"), "9")
    assert verify(inside).ok
    assert not verify(inside, key=KEY).ok


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    document = document_of("output")
    certificate = document["model"]["privacy"]
    bad = tmp_path / "bad.json"
    for text in ("", "{}", "[]", "\0", json.dumps(certificate), json.dumps(document)[:-9]):
        bad.write_text(text)
        with pytest.raises(InvalidParameterError):
            verify(certificate, model=bad)
    # Not sealed again.
    with pytest.raises(InvalidParameterError):
        verify(certificate, model=changed(document, ("library_version",), "9"))
    with pytest.raises(FileNotFoundError):
        verify(certificate, model=tmp_path / "none.json")


@pytest.mark.parametrize("kind", ["linear", "kernel_output", "pipeline", "search", "federated"])
def test_odd_models_end_in_an_answer(kind: str) -> None:
    document = document_of(kind)
    found = [step["privacy"] for _, step in document["model"].get("steps", ()) if "privacy" in step]
    certificate = document["model"].get("privacy", *found[:1])
    rng = random.Random(7)
    ways = [way for way in places(document) if way[0] == "model" and "privacy" not in way]
    for _ in range(60):
        way = rng.choice(ways)
        if way == ("model",) or not isinstance(at(document, way[:-1]), (dict, list)):
            continue
        value = rng.choice([odd for odd in ODD if odd != "\ud800"])
        odd = sealed(changed(document, way, value))
        assert verify(certificate, model=odd).ok in (True, False)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, other = tmp_path / "model.json", MODELS / "linear.json"
    save_model(load_model(MODELS / "output.json"), model)
    key = tmp_path / "key"
    key.write_bytes(KEY)
    certificate = tmp_path / "certificate.json"
    signed = ["--key", str(key)]
    save_model(load_model(MODELS / "output.json"), model, key=key)
    assert main(["statement", str(model), "--certificate", str(certificate), *signed]) == 0
    capsys.readouterr()

    def asked(*arguments: object) -> tuple[int, dict[str, Any]]:
        code = main(["verify", *map(str, arguments), "--json"])
        return code, json.loads(capsys.readouterr().out)

    code, found = asked(certificate, "--model", model, *signed)
    assert (code, found["holds"], found["signature"]) == (0, True, "checked")
    assert len(found["matches"]) > 5
    code, found = asked(certificate, "--model", other, *signed)
    assert (code, found["holds"]) == (1, False)
    code, found = asked(certificate)
    assert (code, found["signature"], found["model"]) == (0, "not checked", None)
    assert any("no key" in line for line in found["stated_not_checked"])
    # A model alone is held against the certificate in it.
    code, found = asked(model, *signed)
    assert (code, found["model"]) == (0, str(model))
    assert "shape of the weights" in found["matches"]
    assert main(["verify", str(certificate), "--model", str(model), *signed]) == 0
    out = capsys.readouterr().out
    assert "Compared with the model and equal:" in out
