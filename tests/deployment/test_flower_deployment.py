"""The example as it is deployed: a SuperLink, three hospitals, and what may go wrong.

Each outcome and each text here is a line of the table in ``examples/federated/README.md``.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dpsvm_fast.federated import FederatedLinearSVC, FederatedSpec, SumResult, finalize
from oracles.flower_processes import Deployment, Run, free_ports, supported
from oracles.hospitals import (
    EXAMPLE,
    HOSPITALS,
    RAISES,
    SECRET,
    Study,
    authority,
    documented,
    example_script,
    prepare,
)

pytestmark = [
    pytest.mark.deployment,
    pytest.mark.skipif(not supported(), reason="needs Flower and /proc"),
]

SENT = "Sent successfully"
LOOPBACK_IN_HEXADECIMAL = "0100007F"
LOG = logging.getLogger(__name__)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """The example's study."""
    return prepare(tmp_path)


def expected_model(
    study: Study, deployment: Deployment, hospitals: Sequence[str]
) -> FederatedLinearSVC:
    """The model of exactly what these hospitals have contributed."""
    spec = FederatedSpec.from_json(study.spec.read_text(encoding="utf-8"))
    vectors = [study.contributed(deployment, hospital) for hospital in hospitals]
    total = np.sum(vectors, axis=0)
    # The check element: every hospital adds 1.
    assert total[-1] == len(hospitals)
    return finalize({"model": SumResult(total, len(hospitals))}, spec)


def assert_released(study: Study, deployment: Deployment, hospitals: Sequence[str]) -> None:
    """The server has written the model of these hospitals, to the last bit, and a certificate."""
    expected = expected_model(study, deployment, hospitals)
    with np.load(study.results / "model.npz") as model:
        assert np.array_equal(model["coef"], expected.coef_)
        assert np.array_equal(model["intercept"], expected.intercept_)
        assert model["classes"].tolist() == list(expected.classes_)
    certificate = study.results / "certificate.json"
    shown = deployment.command("dpsvm-fast", "verify", str(certificate))
    assert "holds" in shown
    read = json.loads(certificate.read_text(encoding="utf-8"))
    assert read["private"] is True
    assert read["n_users"] == len(HOSPITALS)


def assert_nothing_released(study: Study, run: Run) -> None:
    """The operator sees a failed run, and there is no result."""
    assert run.status == "finished:failed"
    assert not study.results.exists()


def note(run: Run, deployment: Deployment) -> None:
    """What the README's table says; ``pytest --log-cli-level=INFO`` shows it."""
    megabytes = round(deployment.peak_bytes / 1e6)
    LOG.info("%s after %s s, %d MB: %s", run.status, run.seconds, megabytes, run.details)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_as_the_readme_says(study: Study, tmp_path: Path) -> None:
    security = authority(tmp_path / "secrets")
    with Deployment(tmp_path / "run", security=security) as deployment:
        deployment.command("flwr", "build", cwd=study.app)
        (bundle,) = study.app.glob("*.fab")
        digest = deployment.command("sha256sum", str(bundle)).split()[0]
        bundle.unlink()
        deployment.superlink(["--database", str(tmp_path / "superlink.db")])
        study.start_registered(deployment, bundle=digest)
        run = deployment.run(study.app, study.settings())
        note(run, deployment)
        assert run.status == "finished:completed", run.log
        assert run.bundle_digest == digest
        assert_released(study, deployment, HOSPITALS)
        assert deployment.listening() == {LOOPBACK_IN_HEXADECIMAL}

        # The same study once more: no hospital answers it twice.
        shutil.rmtree(study.results)
        again = deployment.run(study.app, study.settings())
        note(again, deployment)
        assert_nothing_released(study, again)
        assert documented("3 of the parties: this round was already answered") in again.log
        assert (
            documented("aborted at stage 'advertise_keys': 0 of 2 required parties left")
            in again.details
        )


@pytest.mark.parametrize(("stages", "left"), [(2, HOSPITALS[:2]), (3, HOSPITALS)])
def test_one_hospital_killed(
    study: Study, tmp_path: Path, stages: int, left: Sequence[str]
) -> None:
    """Before its masked vector left: a sum of two. After: its vector is in the sum."""
    with Deployment(tmp_path / "run") as deployment:
        deployment.superlink()
        study.start_hospitals(deployment)
        run_id = deployment.start_run(study.app, study.settings())
        deployment.wait_for(HOSPITALS[2], SENT, count=stages)
        deployment.kill(HOSPITALS[2])
        run = deployment.finish(run_id)
        note(run, deployment)
        assert run.status == "finished:completed", run.log
        assert documented("1 of the parties: no reply") in run.log
        assert documented(f"round 'model': {len(left)} of 3 parties in the sum") in run.log
        assert_released(study, deployment, left)


def test_too_few_hospitals_left(study: Study, tmp_path: Path) -> None:
    with Deployment(tmp_path / "run") as deployment:
        deployment.superlink()
        study.start_hospitals(deployment)
        run_id = deployment.start_run(study.app, study.settings())
        for name in HOSPITALS[1:]:
            deployment.wait_for(name, SENT, count=2)
            deployment.kill(name)
        run = deployment.finish(run_id)
        note(run, deployment)
        assert_nothing_released(study, run)
        assert "SecureSumAborted" in run.log
        expected = "aborted at stage 'masked_input': 1 of 2 required parties left"
        assert documented(expected) in run.details
        assert documented("2 of the parties: no reply") in run.log


def test_one_hospital_raises(tmp_path: Path) -> None:
    study = prepare(tmp_path, additions=RAISES)
    with Deployment(tmp_path / "run") as deployment:
        deployment.superlink()
        study.start_hospitals(deployment, HOSPITALS[:2])
        study.start_hospitals(deployment, HOSPITALS[2:], extra="raises=1")
        run = deployment.run(study.app, study.settings())
        note(run, deployment)
        assert run.status == "finished:completed", run.log
        assert documented("round 'model': 2 of 3 parties in the sum") in run.log
        assert_released(study, deployment, HOSPITALS[:2])
        everything = deployment.logs() + run.log + run.details
    assert documented("1 of the parties: this party could not contribute") in run.log
    assert SECRET not in everything
    # The hospital itself is told where to look.
    assert re.search(r"RuntimeError at \S+/hospitals/client_app\.py:\d+", everything)


def test_another_specification_is_refused(study: Study, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    example_script("make_spec.py", other, "study 1", "40")
    security = authority(tmp_path / "secrets")
    with Deployment(tmp_path / "run", security=security) as deployment:
        deployment.superlink()
        study.start_registered(deployment, specs=dict.fromkeys(HOSPITALS[1:], other))
        run = deployment.run(study.app, study.settings())
        note(run, deployment)
        assert_nothing_released(study, run)
        assert documented("2 of the parties: another specification") in run.log
        assert (
            documented("aborted at stage 'advertise_keys': 1 of 2 required parties left")
            in run.details
        )

        # No vector has left: with the right file the same study can be run.
        for name in HOSPITALS[1:]:
            deployment.stop(name)
            study.start_again(deployment, name)
        again = deployment.run(study.app, study.settings())
        assert again.status == "finished:completed", again.log
        assert_released(study, deployment, HOSPITALS)


def test_a_hospital_that_never_connects(study: Study, tmp_path: Path) -> None:
    with Deployment(tmp_path / "run") as deployment:
        deployment.superlink()
        study.start_hospitals(deployment, HOSPITALS[:1])
        run = deployment.run(study.app, study.settings(wait_seconds=5.0))
        note(run, deployment)
        assert_nothing_released(study, run)
        assert documented("aborted at stage 'waiting': 1 of 2 required parties left") in run.details


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_the_script_for_one_machine(tmp_path: Path) -> None:
    ports = str(free_ports(1)[0])
    with Deployment(tmp_path / "run") as deployment:
        target = tmp_path / "whole"
        shown = deployment.command("bash", str(EXAMPLE / "loopback.sh"), str(target), ports)
    assert "finished:completed" in shown
    assert "The certificate holds" in shown
    found = re.search(r"right about (\S+) of 119 records", shown)
    # 0.87 with a standard deviation of 0.02 over the noise; 0.65 is the larger class's share.
    assert float(found[1]) > 0.75
    assert (target / "results/model.npz").exists()
