"""``dpsvm-fast statement`` and ``verify`` about saved models, as a privacy officer meets them."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from dpsvm_fast import OutputPerturbationSVC, PrivateCenter, PrivateLinearSVC, PublicScaler
from dpsvm_fast.persist import load_model, save_model
from oracles.command_line import Cli
from oracles.statements import statement_of

pytest.importorskip("click")

X, Y = np.eye(3, 4), np.arange(3)
KINDS = ("linear", "trainer", "pipeline")


def fitted(kind: str, **settings: Any) -> Any:
    """A small model: by itself, the only private step of a pipeline, or one of two."""
    if kind == "linear":
        return PrivateLinearSVC(2.0, 1e-6, bounds=(0, 1), classes=range(3), **settings).fit(X, Y)
    trainer = OutputPerturbationSVC(1.0, 1e-6, classes=range(3), C=0.1)
    centre = [("center", PrivateCenter(0.5, 1e-6))] if kind == "pipeline" else []
    steps = [("scaler", PublicScaler((0, 1))), ("normalizer", Normalizer())]
    return Pipeline([*steps, *centre, ("svc", trainer)]).fit(X, Y)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of every kind, and one that is not private."""
    folder = tmp_path_factory.mktemp("models")
    made = {kind: fitted(kind) for kind in KINDS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made["seeded"] = fitted("linear", random_state=1)
    for kind, model in made.items():
        save_model(model, folder / f"{kind}.json")
    save_model(made["linear"], folder / "signed.json", key=b"k" * 32)
    return {kind: folder / f"{kind}.json" for kind in (*made, "signed")}


every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_it_prints_the_prose_and_what_remains_to_be_checked(
    models: dict[str, Path], cli: Cli, kind: str
) -> None:
    code, out, err = cli.said("statement", models[kind])
    assert (code, err) == (0, "")
    model = load_model(models[kind])
    if kind == "linear":
        assert str(model.privacy_) in out
    if kind == "trainer":
        assert str(model[-1].privacy_) in out
    assert "PRIVATE" in out.splitlines()[0]
    assert "To be signed" in out
    assert out.count("[ ] ") == 7
    assert "Name ____" in out
    assert "Date ____" in out
    assert hashlib.sha256(models[kind].read_bytes()).hexdigest() in out


@every_kind
def test_json_has_the_same_facts(models: dict[str, Path], cli: Cli, kind: str) -> None:
    code, out, err = cli.said("statement", models[kind], "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["private"] is True
    assert found["epsilon"] == found["certificate"]["epsilon"]
    expected = {"linear": 2.0, "trainer": 1.0}.get(kind)
    assert expected is None or found["epsilon"] == expected
    assert kind != "pipeline" or 1.0 < found["epsilon"] <= 1.5
    assert len(found["to_check"]) == 7
    assert f"epsilon = {found['epsilon']:g} was agreed" in found["to_check"][0]


@every_kind
def test_the_certificate_is_written_and_verified_by_someone_else(
    models: dict[str, Path], tmp_path: Path, cli: Cli, kind: str
) -> None:
    certificate = tmp_path / "certificate.json"
    out = cli("statement", models[kind], "--certificate", certificate)
    assert out.endswith(f"Certificate: {certificate} (dpsvm-fast verify checks it)\n")
    out = cli("verify", certificate)
    assert out.startswith("The certificate holds")
    # A certificate has a statement as the model has, but for what is signed.
    from_model, from_file = (cli.json("statement", path) for path in (models[kind], certificate))
    for name in ("certificate", "text", "to_check", "epsilon", "delta"):
        assert from_model[name] == from_file[name]
    assert from_model["sha256"] != from_file["sha256"]


def test_an_existing_certificate_is_replaced_only_when_asked(
    models: dict[str, Path], tmp_path: Path, cli: Cli
) -> None:
    certificate = tmp_path / "certificate.json"
    certificate.write_text("mine", encoding="utf-8")
    arguments = ("statement", models["linear"], "--certificate", certificate)
    err = cli.refused(*arguments)
    assert "already exists" in err
    assert certificate.read_text(encoding="utf-8") == "mine"
    cli(*arguments, "--force")
    assert json.loads(certificate.read_text(encoding="utf-8"))["certificate"]["private"] is True


def test_a_model_that_is_not_private_is_not_to_be_signed(models: dict[str, Path], cli: Cli) -> None:
    out = cli("statement", models["seeded"])
    assert "NOT PRIVATE" in out.splitlines()[0]
    assert "Nothing to sign" in out
    assert "[ ]" not in out
    found = cli.json("statement", models["seeded"])
    assert found["private"] is False
    assert found["to_check"] == []
    assert "seed" in found["not_private_reasons"][0]
    out = cli("verify", models["seeded"], "--json", code=1)
    assert json.loads(out)["promised"] is None


def test_numbers_that_do_not_follow_are_not_shown_as_a_statement(tmp_path: Path, cli: Cli) -> None:
    record = statement_of("output", "add_remove").to_dict()
    path = tmp_path / "tampered.json"
    path.write_text(json.dumps(record | {"epsilon": record["epsilon"] / 2}), encoding="utf-8")
    err = cli.refused("statement", path, code=1)
    assert "its numbers are inconsistent" in err
    assert err.count("\n") == 1


def test_a_signed_model_is_checked_with_its_key(
    models: dict[str, Path], tmp_path: Path, cli: Cli
) -> None:
    right, wrong = tmp_path / "right.key", tmp_path / "wrong.key"
    right.write_bytes(b"k" * 32)
    wrong.write_bytes(b"x" * 32)
    for command in ("statement", "verify"):
        cli(command, models["signed"], "--key", right)
        err = cli.refused(command, models["signed"], "--key", wrong)
        assert "signed.json" in err
        code, out, err = cli.said(command, models["signed"], "--json")
        assert (code, json.loads(out)["signature"]) == (0, "not checked")
        assert "is signed, but the signature is not checked; give --key FILE" in err
        code, out, err = cli.said(command, models["linear"], "--json")
        assert (code, json.loads(out)["signature"], err) == (0, "none", "")
    rows, labels = tmp_path / "rows.csv", tmp_path / "labels.csv"
    rows.write_text("a,b,c,d\n1,0,0,0\n")
    (tmp_path / "schema.toml").write_text("[all_other_columns]\nbounds = [0, 1]\n")
    asked = ("predict", models["signed"], rows, "-o", labels, "--schema", tmp_path / "schema.toml")
    assert cli.said(*asked, "--key", wrong)[0] == 2
    assert not labels.exists()
    cli(*asked, "--key", right)
    assert len(labels.read_text().split()) == 2
    certificate = tmp_path / "certificate.json"
    certificate.write_text(statement_of("output", "add_remove").to_json(), encoding="utf-8")
    err = cli.stderr("verify", certificate, "--key", right)
    assert "--key" in err


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("helmet", "one row of the training data"),
        ("pipeline pure", "one row of the training data"),
        ("search stopping", "one row of the training data"),
    ],
)
def test_certificates_of_every_kind_have_a_statement(
    tmp_path: Path, cli: Cli, name: str, unit: str
) -> None:
    made = statement_of(name, "replace_one")
    path = tmp_path / "certificate.json"
    path.write_text(made.to_json(), encoding="utf-8")
    out = cli("statement", path)
    assert str(made) in out
    found = cli.json("statement", path)
    assert found["to_check"][2].endswith(f": {unit}.")
    assert ("the guarantee has no exception" in found["to_check"][1]) == (made.delta == 0.0)
    assert (made.delta == 0.0) == (name != "helmet")
