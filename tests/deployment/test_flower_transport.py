"""Flower's own doors, on the loopback interface: who gets in, who does not, and what it is told.

What the README of ``examples/federated`` says of certificates, keys, bundles and the firewall is
what is seen here. The application is a trivial one: each party answers with its number.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

import pytest

from oracles.flower_processes import LOOPBACK, Deployment, free_ports, supported
from oracles.hospitals import EXAMPLE, authority, documented, node_key

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(not supported(), reason="needs Flower and /proc"),
]

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK_IN_HEXADECIMAL = "0100007F"

PROJECT = """\
[project]
name = "numbers"
version = "1.0.0"
description = "adds numbers"
license = { file = "LICENSE" }
dependencies = ["flwr>=1.40"]
[tool.flwr.app]
publisher = "tests"
fab-format-version = 1
flwr-version-target = "1.40.0"
[tool.flwr.app.components]
serverapp = "numbers_app.server:app"
clientapp = "numbers_app.client:app"
[tool.flwr.app.config]
parties = 3
"""
CLIENT = """\
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def answer(message: Message, context: Context) -> Message:
    number = ConfigRecord({"number": int(context.node_config["number"])})
    return Message(RecordDict({"answer": number}), reply_to=message)
"""
SERVER = """\
import time
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()

@app.main()
def add(grid: Grid, context: Context) -> None:
    while len(parties := list(grid.get_node_ids())) < context.run_config["parties"]:
        time.sleep(0.5)
    asked = [Message(RecordDict(), party, "train") for party in parties]
    answers = list(grid.send_and_receive(asked, timeout=60))
    good = [one.content["answer"]["number"] for one in answers if not one.has_error()]
    bad = [one.error.reason for one in answers if one.has_error()]
    print(f"sum {sum(good)} of {len(good)}; refused: {bad}")
"""


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """Folder of the trivial application."""
    app = tmp_path / "app"
    (app / "numbers_app").mkdir(parents=True)
    (app / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", app / "LICENSE")
    (app / "numbers_app/__init__.py").touch()
    (app / "numbers_app/client.py").write_text(CLIENT, encoding="utf-8")
    (app / "numbers_app/server.py").write_text(SERVER, encoding="utf-8")
    return app


def bundle_digest(deployment: Deployment, app: Path) -> str:
    """SHA-256 digest of what ``flwr build`` writes."""
    deployment.command("flwr", "build", cwd=app)
    (bundle,) = app.glob("*.fab")
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    bundle.unlink()
    return digest


def pinned(digest: str) -> tuple[str, ...]:
    """Command of the example's SuperNode that takes one bundle only."""
    return (sys.executable, str(EXAMPLE / "supernode.py"), "--bundle", digest)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_registered_hospitals_get_in_and_nobody_else(tmp_path: Path, application: Path) -> None:
    security = authority(tmp_path / "secrets")
    assert (tmp_path / "secrets/ca.key").stat().st_mode & 0o777 == 0o600
    strange = authority(tmp_path / "strange")
    with Deployment(tmp_path / "run", security=security) as deployment:
        digest = bundle_digest(deployment, application)
        deployment.superlink()
        for number, name in enumerate(("a", "b", "c")):
            key = node_key(tmp_path / "keys", name)
            shown = deployment.flwr("supernode", "register", f"{key}.pub")
            assert "registered successfully" in shown
            deployment.supernode(name, f"number={10**number}", key=key, command=pinned(digest))

        # A key that nobody registered; no key; no encryption; a SuperLink of another authority.
        foreign = node_key(tmp_path / "keys", "foreign")
        deployment.supernode("foreign", "number=1000", key=foreign, wait=False)
        deployment.supernode("keyless", "number=1000", wait=False)
        deployment.supernode("open", "number=1000", wait=False, encrypted=False)
        deployment.supernode("misled", "number=1000", key=foreign, wait=False, trust=strange)
        deployment.wait_for_exit("foreign")
        deployment.wait_for_exit("keyless")
        unknown = documented("[code: 2004] Failed to activate SuperNode.")
        assert unknown in deployment.log("foreign")
        missing = documented("[code: 2001] SuperNode authentication is enabled.")
        assert missing in deployment.log("keyless")
        for name in ("open", "misled"):
            deployment.wait_for(name, documented("Connection attempt failed, retrying"))
            deployment.kill(name)

        run = deployment.run(application)
        assert run.status == "finished:completed"
        assert "sum 111 of 3; refused: []" in run.log
        assert run.bundle_digest == digest
        assert deployment.listening() == {LOOPBACK_IN_HEXADECIMAL}
    for name in ("foreign", "keyless", "open", "misled"):
        assert "SuperNode ID:" not in deployment.log(name)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_another_program_is_refused(tmp_path: Path, application: Path) -> None:
    security = authority(tmp_path / "secrets")
    with Deployment(tmp_path / "run", security=security) as deployment:
        digest = bundle_digest(deployment, application)
        deployment.superlink(["--database", str(tmp_path / "superlink.db")])
        for number, name in enumerate(("a", "b")):
            key = node_key(tmp_path / "keys", name)
            deployment.flwr("supernode", "register", f"{key}.pub")
            accepted = digest if name == "a" else "0" * 64
            deployment.supernode(name, f"number={10**number}", key=key, command=pinned(accepted))
        run = deployment.run(application, "parties=2")
        refusal = documented("The FAB could not be verified.")
        assert f"sum 1 of 1; refused: ['{refusal}']" in run.log
        assert documented("FAB verification failed") in deployment.log("b")
        # It was not even unpacked.
        assert (deployment.folder / "a/flwr/apps").exists()
        assert not (deployment.folder / "b/flwr/apps").exists()


def test_a_supernode_without_a_digest_does_not_start(tmp_path: Path) -> None:
    with Deployment(tmp_path / "run") as deployment:
        deployment.supernode("a", "number=1", command=pinned("latest"), wait=False)
        deployment.wait_for_exit("a")
    assert "64 hexadecimal digits" in deployment.log("a")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_hospitals_need_one_prefix_only(tmp_path: Path, application: Path) -> None:
    security = authority(tmp_path / "secrets")
    with Deployment(tmp_path / "run", security=security) as deployment:
        deployment.superlink()
        gate = free_ports(1)[0]
        deployment.gate(gate)
        for number, name in enumerate(("a", "b")):
            key = node_key(tmp_path / "keys", name)
            # No password: whoever reaches the whole port is the operator.
            deployment.flwr("supernode", "register", f"{key}.pub")
            deployment.supernode(name, f"number={10**number}", key=key, through=gate)
        run = deployment.run(application, "parties=2")
        assert "sum 11 of 2; refused: []" in run.log
        # The same commands through the gate.
        shown = deployment.flwr("supernode", "list", check=False, port=gate)
        assert "Node ID" not in shown
        assert '"POST /v1/control/list-nodes HTTP/1.1" 403' in deployment.log("gate")
        assert deployment.listening() == {LOOPBACK_IN_HEXADECIMAL}
    assert f"{LOOPBACK}:{gate}" not in deployment.log("superlink")
