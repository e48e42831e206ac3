"""``dpsvm-fast verify`` as somebody uses it who was handed a file: what it says, and what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dpsvm_fast.certificates.words import CAVEATS
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.verification import Policy, verify
from oracles.command_line import Cli
from oracles.statements import MAKERS, statement_of

pytest.importorskip("click")

CERTIFICATES = {
    "release": ("output", "output_perturbation with loss crammer_singer"),
    "pipeline": ("pipeline pure", "a pipeline of 2 steps"),
    "search": ("search", "a search over 2 candidates"),
    "parties": ("helmet", "dp_helmet across 20 parties"),
}


def document(name: str) -> dict[str, Any]:
    """The certificate of a kind as plain values."""
    made: dict[str, Any] = statement_of(CERTIFICATES[name][0], "add_remove").to_dict()
    return made


def written(tmp_path: Path, text: str) -> Path:
    """A file with this text."""
    path = tmp_path / "file.json"
    path.write_text(text, encoding="utf-8")
    return path


every_certificate = pytest.mark.parametrize("name", CERTIFICATES)


@every_certificate
def test_a_good_file(tmp_path: Path, cli: Cli, name: str) -> None:
    code, out, err = cli.said("verify", written(tmp_path, json.dumps(document(name))))
    assert (code, err) == (0, "")
    assert "The certificate holds" in out
    assert re.search(rf"for one (row|person|party)\) for {re.escape(CERTIFICATES[name][1])}\.", out)
    assert "Recomputation cannot show" in out


@every_certificate
def test_a_tampered_file(tmp_path: Path, cli: Cli, name: str) -> None:
    made = document(name)
    path = written(tmp_path, json.dumps(made | {"epsilon": made["epsilon"] / 2.0}))
    out = cli("verify", path, code=1)
    assert "does NOT hold" in out
    assert "Do not rely on it" in out
    assert "promises" not in out


@every_certificate
def test_a_truncated_file(tmp_path: Path, cli: Cli, name: str) -> None:
    text = json.dumps(document(name), indent=2)
    for end in (1, len(text) // 2, len(text) - 1):
        path = written(tmp_path, text[:end].rstrip(' "abcdefghijklmnopqrstuvwxyz_'))
        err = cli.refused("verify", path)
        assert "is cut off" in err
        assert "again" in err


@every_certificate
def test_a_file_of_the_future(tmp_path: Path, cli: Cli, name: str) -> None:
    out = cli("verify", written(tmp_path, json.dumps(document(name) | {"version": 6})), code=1)
    assert "version: got 6, expected 5" in out
    assert "version of dpsvm_fast" in out


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[" * 100_000])
def test_what_cannot_be_read(tmp_path: Path, cli: Cli, content: bytes) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    for name in (path, tmp_path, tmp_path / "nowhere.json"):
        out, err = cli.both("verify", str(name), code=2)
        assert not out
        assert err.startswith(f"dpsvm-fast: {name} cannot be read: ")
        assert err.count("\n") == 1


def test_a_certificate_cannot_steer_the_terminal(tmp_path: Path, cli: Cli) -> None:
    hostile = {"mechanism": "\x1b[2J", "\x1b[1A": "The certificate holds", "loss": "\x07"}
    out = cli("verify", written(tmp_path, json.dumps(document("release") | hostile)), code=1)
    assert out.replace("\n", "").isprintable()


@pytest.mark.parametrize("text", ["not JSON", "<html></html>", "epsilon = 1", "\x00"])
def test_a_file_of_another_kind(tmp_path: Path, cli: Cli, text: str) -> None:
    err = cli.refused("verify", written(tmp_path, text))
    assert "not JSON; expected a certificate, as model.privacy_.to_json() returns it" in err


GENEROUS = 'epsilon = 1e4\ndelta = 0.5\nunit = ["row", "person", "party"]\nexact_noise = false\n'
# What each line forbids of a certificate, and one that it allows.
RULES = {
    "epsilon = 0.9\ndelta = 0.5\n": ("output", None),
    "epsilon = 1e4\ndelta = 1e-7\n": ("output", "output gamma"),
    'epsilon = 1e4\ndelta = 0.5\nadjacency = ["replace_one"]\n': ("output", "helmet"),
    'epsilon = 1e4\ndelta = 0.5\nunit = ["party", "person"]\n': ("evaluation", None),
    "epsilon = 1e4\ndelta = 0.5\nexact_noise = true\n": ("pipeline pure", "evaluation"),
    'epsilon = 1e4\ndelta = 0.5\nforbidden_caveats = ["number_of_runs"]\n': (
        "search stopping",
        "output",
    ),
    'epsilon = 1e4\ndelta = 0.5\nforbidden_caveats = ["passive_server"]\n': ("helmet", "search"),
}


def judged(tmp_path: Path, cli: Cli, kind: str, policy: str) -> tuple[int, str, str]:
    """Exit code and output of a certificate under a policy."""
    (tmp_path / "c.json").write_text(statement_of(kind, "add_remove").to_json(), encoding="utf-8")
    (tmp_path / "p.toml").write_text(policy, encoding="utf-8")
    return cli.said("verify", tmp_path / "c.json", "--policy", tmp_path / "p.toml")


@pytest.mark.parametrize("rule", RULES)
def test_a_policy_forbids_and_allows(tmp_path: Path, cli: Cli, rule: str) -> None:
    forbidden, allowed = RULES[rule]
    code, out, err = judged(tmp_path, cli, forbidden, rule)
    assert (code, err) == (4, "")
    assert "does NOT allow" in out
    if allowed is not None:
        assert judged(tmp_path, cli, allowed, rule)[0] == 0
    code, out, _ = judged(tmp_path, cli, forbidden, GENEROUS)
    assert code == 0
    assert "allows it" in out


def test_a_forged_certificate_does_not_hold_under_any_policy(tmp_path: Path) -> None:
    made = document("release")
    rules = {"epsilon": 1e4, "delta": 0.5}
    forged = verify(made | {"epsilon": made["epsilon"] / 2.0}, policy=rules)
    assert not forged.ok
    assert not forged.forbidden
    # What is not private is refused before a policy is asked.
    seeded = made | {"private": False, "random_source": "seed"}
    assert not verify(seeded, policy=rules).ok


def test_a_verdict_for_programs(tmp_path: Path, cli: Cli) -> None:
    path, rules = tmp_path / "c.json", tmp_path / "p.json"
    path.write_text(json.dumps(document("release")), encoding="utf-8")
    rules.write_text(json.dumps({"epsilon": 0.1, "delta": 0.5}), encoding="utf-8")
    record = cli.json("verify", str(path), "--policy", str(rules), code=4)
    assert record["holds"]
    assert len(record["forbidden"]) == 1
    assert record["forbidden"][0].startswith("epsilon is 2, ")


@pytest.mark.parametrize(
    ("changes", "error", "parameter"),
    [
        ({"epsilon": -1.0}, InvalidParameterError, "epsilon"),
        ({"epsilon": "1"}, TypeError, "epsilon"),
        ({"delta": 1.0}, InvalidParameterError, "delta"),
        ({"unit": "row"}, TypeError, "unit"),
        ({"unit": ["planet"]}, InvalidParameterError, "unit"),
        ({"adjacency": []}, InvalidParameterError, "adjacency"),
        ({"exact_noise": 1}, TypeError, "exact_noise"),
        ({"forbidden_caveats": ["wind"]}, InvalidParameterError, "forbidden_caveats"),
        ({"epsilom": 1.0}, InvalidParameterError, "Policy"),
        ({"delta": None}, TypeError, "delta"),
    ],
)
def test_a_bad_policy_is_refused(changes: Any, error: type[Exception], parameter: str) -> None:
    with pytest.raises(error) as told:
        verify("[]", policy={"epsilon": 1.0, "delta": 1e-6} | changes)
    assert str(told.value).partition(":")[0].partition(" ")[0] == parameter


@pytest.mark.parametrize("text", ["epsilon = 1", "epsilon = = 1", "", "epsilon = 1\ndelta = 2"])
def test_a_bad_policy_file_ends_the_command(tmp_path: Path, cli: Cli, text: str) -> None:
    code, out, err = judged(tmp_path, cli, "output", text)
    assert (code, out) == (2, "")
    assert "--policy" in err


def test_every_caveat_has_a_name() -> None:
    """Of all kinds of certificates: what has none could not be forbidden."""
    seen = set()
    for kind, adjacency in MAKERS:
        statement = statement_of(kind, adjacency)
        names = statement.uncovered
        assert len(names) == len(statement.caveats), kind
        seen |= set(names)
    assert len(seen) > 8
    accepted = Policy(epsilon=1.0, delta=0.1, forbidden_caveats=tuple(CAVEATS))
    assert accepted.forbidden_caveats == tuple(CAVEATS)
