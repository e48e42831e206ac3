"""Environments of other libraries, which need other versions than we do.

    python -m benches.papers.environments diffprivlib|opacus

makes one in the folder ``.venv-peers``, which is under no version control, from the exact versions
in ``benches/papers/environments/NAME.txt``. Nothing else installs anything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-peers"
PINS = Path(__file__).resolve().parent / "environments"
CHILD = Path(__file__).resolve().parent / "peer_child.py"
NAMES = ("diffprivlib", "opacus")
# A copy of the versions, written when all of them are installed.
MARK = "installed.txt"


def python_of(name: str) -> Path:
    """The interpreter of an environment, whether it exists or not."""
    folder = FOLDER / name
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pins_of(name: str) -> str:
    """The versions of an environment."""
    return (PINS / f"{name}.txt").read_text(encoding="utf-8")


def ready(name: str) -> bool:
    """Whether the environment has the versions that are asked for now."""
    mark = FOLDER / name / MARK
    return mark.is_file() and mark.read_text(encoding="utf-8") == pins_of(name)


def missing(name: str) -> str:
    """What to say about an environment that is not ready."""
    return (
        f"SKIPPED {name}: it has no environment of its own; "
        f"python -m benches.papers.environments {name} makes it"
    )


def make(name: str) -> None:
    """Make an environment, or make it anew."""
    venv.create(FOLDER / name, with_pip=True, clear=True)
    command = [str(python_of(name)), "-m", "pip", "install", "--no-deps", "--requirement"]
    subprocess.run([*command, str(PINS / f"{name}.txt")], check=True)
    (FOLDER / name / MARK).write_text(pins_of(name), encoding="utf-8")


class Peer:
    """A library in a process of its own, with one thread.

    Parameters
    ----------
    name : str
        Of the library, as ``peer_child.py`` knows it.
    python : Path
        The interpreter of its environment.
    child : Path
        The program that it runs.

    Attributes
    ----------
    versions : str
        What is installed there, in words.
    """

    def __init__(self, name: str, python: Path, child: Path = CHILD) -> None:
        pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        # Our own packages are out of its sight.
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self.name = name
        self.process = subprocess.Popen(
            [str(python), str(child), name],
            env=inherited | dict.fromkeys(pools, "1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            self.versions = str(self._answer()["versions"])
        except RuntimeError:
            self.end()
            raise

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request, wait for its answer."""
        assert self.process.stdin is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        """One line of the process."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: its process ended, see above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30.0)
        except subprocess.TimeoutExpired:
            # A busy machine; whatever it had to say has been read.
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@contextmanager
def peers(names: Sequence[str] = NAMES) -> Iterator[list[Peer]]:
    """Running processes of the libraries whose environments are ready; says which are not."""
    running: list[Peer] = []
    try:
        for name in names:
            if ready(name):
                running.append(Peer(name, python_of(name)))
            else:
                print(missing(name))
        yield running
    finally:
        for peer in running:
            peer.end()


def main(given: Sequence[str]) -> int:
    """Make the environments that are named."""
    if not given or not set(given) <= set(NAMES):
        print(f"which environment: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in given:
        make(name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
