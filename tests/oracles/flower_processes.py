"""Real Flower processes on the loopback interface: started, watched, and ended whatever happens.

Every process is started with a mark in its environment, which its children inherit. The mark finds
the processes that Flower detaches from its own (executors, applications), so that none outlives the
test, and none of anybody else is touched. Needs ``/proc``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

LOOPBACK = "127.0.0.1"
MARK = "DPSVM_TEST_DEPLOYMENT"
PARTY = "DPSVM_TEST_PARTY"
POLL_SECONDS = 0.25
LISTENING = "0A"
# What a SuperNode writes once the SuperLink knows it.
TAKEN_IN = "SuperNode ID:"


class DeadlineError(AssertionError):
    """Something did not happen in the time that the test allows."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What the operator sees of a finished run."""

    run_id: str
    status: str
    details: str
    log: str
    bundle_digest: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Security:
    """Files of a deployment with encryption: an authority, and the SuperLink's certificate."""

    authority: Path
    certificate: Path
    key: Path
    node_authentication: bool = False


def scripts() -> Path:
    """Folder of the Flower commands that belong to this interpreter."""
    return Path(sys.executable).parent


def supported() -> bool:
    """Whether this machine can run a deployment: Linux, with Flower's commands installed."""
    return Path("/proc/self/environ").exists() and (scripts() / "flower-superlink").exists()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment, all different."""
    with contextlib.ExitStack() as open_sockets:
        found = []
        for _ in range(count):
            one = open_sockets.enter_context(socket.socket())
            one.bind((LOOPBACK, 0))
            found.append(int(one.getsockname()[1]))
        return found


class Deployment:
    """A SuperLink and its SuperNodes; ``with`` ends them all, the detached ones too.

    Parameters
    ----------
    folder : Path
        Empty; takes the logs and each party's private Flower home.
    security : Security, optional
        Encryption, and node authentication; without it nothing is encrypted.
    limit_seconds : float
        After so long everything is killed, whatever the test is doing.
    """

    def __init__(
        self, folder: Path, *, security: Security | None = None, limit_seconds: float = 420.0
    ) -> None:
        self.folder = folder
        self.security = security
        self.port = free_ports(1)[0]
        self.peak_bytes = 0
        self._mark = uuid.uuid4().hex
        self._deadline = time.monotonic() + limit_seconds
        self._run_started = 0.0
        self._closed = threading.Event()
        self._started: list[subprocess.Popen[bytes]] = []
        self._watch = threading.Thread(target=self._watch_over, daemon=True)

    def __enter__(self) -> Deployment:
        (self.folder / "logs").mkdir(parents=True)
        self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._watch.join()
        self._end_all()

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"{LOOPBACK}:{self.port}"

    # Parties -------------------------------------------------------------------------------------

    def superlink(self, extra: Sequence[str] = ()) -> None:
        """Start the SuperLink and wait until it accepts connections."""
        command = ["flower-superlink", "--host", LOOPBACK, "--port", str(self.port)]
        command += ["--disable-runtime-dependency-installation", *extra]
        if (files := self.security) is None:
            command += ["--insecure"]
        else:
            command += ["--ssl-certfile", str(files.certificate), "--ssl-keyfile", str(files.key)]
            command += ["--ssl-ca-certfile", str(files.authority)]
            command += ["--enable-supernode-auth"] * files.node_authentication
        self._start("superlink", command)
        while not _answers(self.port):
            self._wait("the SuperLink to answer")

    def supernode(
        self,
        name: str,
        config: str,
        *,
        key: Path | None = None,
        wait: bool = True,
        encrypted: bool = True,
        trust: Security | None = None,
        through: int | None = None,
        command: Sequence[str] = ("flower-supernode",),
    ) -> None:
        """Start a SuperNode and, if asked, wait until the SuperLink has taken it in.

        It trusts the authority of `trust`, by default the deployment's, and calls the port
        `through`, by default the SuperLink's.
        """
        line = [*command, "--superlink", f"{LOOPBACK}:{through or self.port}"]
        line += ["--host", LOOPBACK, "--port", str(free_ports(1)[0]), "--node-config", config]
        trust = trust or self.security
        if encrypted and trust is not None:
            line += ["--root-certificates", str(trust.authority)]
        else:
            line += ["--insecure"]
        if key is not None:
            line += ["--auth-supernode-private-key", str(key)]
        before = self.log(name).count(TAKEN_IN)
        self._start(name, line)
        if wait:
            self.wait_for(name, TAKEN_IN, count=before + 1)

    def gate(self, port: int) -> None:
        """Start the proxy that lets only SuperNodes through, and wait until it answers."""
        files = self.security
        assert files is not None
        line = [sys.executable, str(Path(__file__).with_name("fleet_gate.py")), str(port)]
        line += [str(files.certificate), str(files.key), self.address, str(files.authority)]
        self._start("gate", line)
        while not _answers(port):
            self._wait("the gate to answer")

    def kill(self, name: str) -> None:
        """SIGKILL for a party and all its children, at once."""
        for process in self._processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def stop(self, name: str) -> None:
        """SIGTERM for a party: it says goodbye, so that its key may come back at once."""
        for process in self._processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        self.wait_for_exit(name)

    # The operator --------------------------------------------------------------------------------

    def flwr(self, *arguments: str, check: bool = True, port: int | None = None) -> str:
        """Output of one ``flwr`` command against this SuperLink; the connection comes last."""
        self._write_connection(port or self.port)
        done = subprocess.run(
            [str(scripts() / "flwr"), *arguments, "loopback"],
            env=self.environment("operator"),
            capture_output=True,
            text=True,
            timeout=max(1.0, self._deadline - time.monotonic()),
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout + done.stderr

    def command(self, name: str, *arguments: str, cwd: Path | None = None) -> str:
        """Output of a command that the operator runs, of this interpreter's where it has it."""
        own = scripts() / name
        done = subprocess.run(
            [str(own) if own.exists() else name, *arguments],
            env=self.environment("operator"),
            cwd=cwd or self._home("operator"),
            capture_output=True,
            text=True,
            timeout=max(1.0, self._deadline - time.monotonic()),
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_run(self, app: Path, settings: str = "") -> str:
        """Start a run; its number."""
        arguments = ["run", str(app), *(["--run-config", settings] if settings else [])]
        self._run_started = time.monotonic()
        shown = self.flwr(*arguments)
        found = re.search(r"Successfully started run (\d+)", shown)
        assert found is not None, shown
        return found[1]

    def finish(self, run_id: str) -> Run:
        """Wait for the end of the run that was started last."""
        # Asking costs a second of computing; the SuperLink's log is read for nothing.
        while re.search(rf"Finished task \d+ of run {run_id}", self.log("superlink")) is None:
            self._wait(f"run {run_id} to finish")
        while True:
            shown = self.flwr("list", "--run-id", run_id, "--format", "json")
            row = json.loads(shown[shown.index("{") :])["runs"][0]
            if row["status"].startswith("finished"):
                break
            self._wait(f"run {run_id} to be marked as finished", 1.0)
        seconds = time.monotonic() - self._run_started
        log = self.flwr("log", run_id, "--show", check=False)
        return Run(
            run_id, row["status"], row["status-details"], log, row["fab-hash"], round(seconds, 1)
        )

    def run(self, app: Path, settings: str = "") -> Run:
        """A whole run."""
        return self.finish(self.start_run(app, settings))

    # What can be seen ----------------------------------------------------------------------------

    def log(self, name: str) -> str:
        """Everything that a party has written so far."""
        file = self.folder / "logs" / f"{name}.log"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def logs(self) -> str:
        """Everything that anybody has written so far."""
        files = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join(f"--- {file.stem}\n{self.log(file.stem)}" for file in files)

    def wait_for(self, name: str, text: str, *, count: int = 1) -> None:
        """Wait until a party has written ``text`` so many times."""
        while self.log(name).count(text) < count:
            self._wait(f"{name} to write {text!r} {count} times")

    def wait_for_exit(self, name: str) -> None:
        """Wait until no process of a party is left."""
        while self._processes(name):
            self._wait(f"{name} to exit")

    def listening(self) -> set[str]:
        """Hexadecimal local addresses on which any process of the deployment listens."""
        sockets = set()
        for process in self._processes():
            with contextlib.suppress(OSError):
                for entry in Path(f"/proc/{process}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        sockets.add(os.readlink(entry))
        found = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and f"socket:[{fields[9]}]" in sockets:
                    found.add(fields[1].split(":")[0])
        return found

    # Processes -----------------------------------------------------------------------------------

    def _start(self, name: str, command: list[str]) -> None:
        resolved = [str(scripts() / command[0]) if "/" not in command[0] else command[0]]
        with (self.folder / "logs" / f"{name}.log").open("ab") as out:
            self._started.append(
                subprocess.Popen(
                    [*resolved, *command[1:]],
                    env=self.environment(name),
                    cwd=self._home(name),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _home(self, name: str) -> Path:
        home = self.folder / name
        home.mkdir(mode=0o700, exist_ok=True)
        return home

    def environment(self, name: str) -> dict[str, str]:
        """Variables of a party's processes: private home, nothing reported to anybody."""
        home = self._home(name)
        return {
            "PATH": f"{scripts()}{os.pathsep}{os.environ.get('PATH', '')}",
            "HOME": str(home),
            "FLWR_HOME": str(home / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "400",
            # Another copy of the package, if the tests run on one.
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            MARK: self._mark,
            PARTY: name,
        }

    def _write_connection(self, port: int) -> None:
        lines = ["[superlink]", 'default = "loopback"', "[superlink.loopback]"]
        lines.append(f'address = "{LOOPBACK}:{port}"')
        if self.security is None:
            lines.append("insecure = true")
        else:
            lines.append(f'root-certificates = "{self.security.authority}"')
        home = self._home("operator") / "flwr"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _processes(self, party: str | None = None) -> list[int]:
        wanted = {f"{MARK}={self._mark}".encode()}
        if party is not None:
            wanted.add(f"{PARTY}={party}".encode())
        return [process for process, marks in _environments() if wanted <= marks]

    def _wait(self, what: str, seconds: float = POLL_SECONDS) -> None:
        if time.monotonic() > self._deadline:
            raise DeadlineError(f"waited in vain for {what}\n{self.logs()}")
        for started in self._started:
            started.poll()  # The children of one that has ended stay while nobody has asked for it.
        time.sleep(seconds)

    def _watch_over(self) -> None:
        """Keep the largest memory, and end everything at the deadline."""
        while not self._closed.wait(1.0):
            self.peak_bytes = max(self.peak_bytes, sum(map(_own_bytes, self._processes())))
            if time.monotonic() > self._deadline + 5.0:
                self._end_all()

    def _end_all(self) -> None:
        # A dying process may have started another meanwhile: until none is left.
        for _ in range(100):
            if not (left := self._processes()):
                break
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.05)
        for started in self._started:
            started.wait(timeout=10.0)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1.0):
        return True
    return False


def _environments() -> Iterator[tuple[int, set[bytes]]]:
    """Every readable living process with the variables that it was started with."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), set((entry / "environ").read_bytes().split(b"\0"))


def _own_bytes(process: int) -> int:
    """Memory of a process, what it shares counted by its share (zero if it has just ended)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def copy_app(source: Path, target: Path) -> Path:
    """A copy of an application's folder, so that a run leaves nothing in the sources."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.fab"))
    return target
