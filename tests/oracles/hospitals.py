"""The example's three hospitals as processes: files, certificates, keys, what each has contributed.

The application is the example's own, with one addition: each hospital also keeps its noised vector
in its own home, where the test, and nobody else, can read it.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oracles.flower_processes import Deployment, Security, copy_app

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/federated"
HOSPITALS = ("hospital_a", "hospital_b", "hospital_c")

KEEPS_ITS_VECTOR = '''

import dpsvm_fast.federated.party as party

checked_vector = party.checked_vector


def keep(vector, terms):
    """Also write the vector into the hospital's home."""
    vector = checked_vector(vector, terms)
    np.save(Path.home() / f"{terms.name}.npy", vector)
    return vector


party.checked_vector = keep
'''

SECRET = "patient 4711 has syphilis"
RAISES = f'''

def raising(context):
    """Fail with something in the text that nobody may see."""
    if "raises" in context.node_config:
        raise RuntimeError("{SECRET}")
    return records(context)


app = make_client_app(specification, raising, journal=journal)
'''


@dataclasses.dataclass(frozen=True)
class Study:
    """Files of a study in one folder."""

    folder: Path
    app: Path

    @property
    def spec(self) -> Path:
        """The agreed specification."""
        return self.folder / "spec.json"

    @property
    def results(self) -> Path:
        """Where the server writes."""
        return self.folder / "results"

    def settings(self, stage_seconds: float = 60.0, wait_seconds: float = 60.0) -> str:
        """The run's configuration."""
        times = f"stage-seconds={stage_seconds} wait-seconds={wait_seconds}"
        return f'spec="{self.spec}" results="{self.results}" {times}'

    def node_config(self, hospital: str, spec: Path | None = None, extra: str = "") -> str:
        """A hospital's configuration."""
        files = {
            "data": self.folder / f"data/{hospital}.csv",
            "spec": spec or self.spec,
            "journal": self.folder / f"{hospital}.journal",
        }
        return " ".join([*(f'{name}="{file}"' for name, file in files.items()), extra]).strip()

    def start_hospitals(
        self, deployment: Deployment, names: Sequence[str] = HOSPITALS, extra: str = ""
    ) -> None:
        """Start a SuperNode each, without encryption."""
        for name in names:
            deployment.supernode(name, self.node_config(name, extra=extra))

    def start_registered(
        self,
        deployment: Deployment,
        *,
        bundle: str | None = None,
        specs: Mapping[str, Path] | None = None,
    ) -> None:
        """Make keys, register them, start a SuperNode each, which runs one bundle if told so."""
        for name in HOSPITALS:
            key = node_key(self.folder / "keys", name)
            deployment.flwr("supernode", "register", f"{key}.pub")
            self.start_again(deployment, name, bundle=bundle, spec=(specs or {}).get(name))

    def start_again(
        self,
        deployment: Deployment,
        name: str,
        *,
        bundle: str | None = None,
        spec: Path | None = None,
    ) -> None:
        """Start a SuperNode with a key that is registered already."""
        script = (sys.executable, str(EXAMPLE / "supernode.py"), "--bundle", str(bundle))
        command = ("flower-supernode",) if bundle is None else script
        key = self.folder / "keys" / name
        deployment.supernode(name, self.node_config(name, spec), key=key, command=command)

    def contributed(self, deployment: Deployment, hospital: str) -> NDArray[np.int64]:
        """What a hospital has put into the sum, before it was masked."""
        return np.asarray(np.load(deployment.folder / hospital / "model.npy"), dtype=np.int64)


def example_script(name: str, *arguments: str | Path) -> str:
    """Output of one of the example's scripts."""
    return subprocess.run(
        [sys.executable, EXAMPLE / name, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    ).stdout


def prepare(folder: Path, *, additions: str = "") -> Study:
    """All files of a study: the example's data, its specification and application."""
    app = copy_app(EXAMPLE, folder / "app")
    client = app / "hospitals/client_app.py"
    text = client.read_text(encoding="utf-8") + KEEPS_ITS_VECTOR + additions
    client.write_text(text, encoding="utf-8")
    study = Study(folder, app)
    example_script("prepare_data.py", folder / "data")
    example_script("make_spec.py", study.spec)
    return study


def documented(text: str) -> str:
    """A text that the README's table quotes."""
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert text in readme
    return text


def authority(folder: Path) -> Security:
    """What the example's script makes."""
    subprocess.run(
        [EXAMPLE / "certificates.sh", folder, "superlink.example"],
        check=True,
        capture_output=True,
        timeout=600,
    )
    return Security(folder / "ca.crt", folder / "server.crt", folder / "server.key", True)


def node_key(folder: Path, name: str) -> Path:
    """A hospital's key pair, made as its engineer is told to."""
    folder.mkdir(exist_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(folder / name)]
    subprocess.run(command, check=True, timeout=600)
    return folder / name
