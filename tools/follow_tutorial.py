"""Follow the tutorial as a new user would: an empty directory, an environment with the wheel.

python tools/follow_tutorial.py FOLDER

FOLDER has the programs of that environment (``env/bin``). Python's blocks are pasted at a prompt,
the others at a shell; every output is compared with the page, and so is what each of the common
mistakes says. The exit status is 1 when anything differs. Needs bash.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from oracles import tutorial

END = "that was the block"


def program(name: str, environment: dict[str, str]) -> str:
    """The file of a program; Popen itself would search the path of this process first."""
    found = shutil.which(name, path=environment["PATH"])
    if found is None:
        raise SystemExit(f"follow_tutorial: {name} was not found on {environment['PATH']}")
    return found


class Prompt:
    """Python's prompt, in a process of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [program("python", environment), "-i", "-q"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The prompts, and what Python says about errors.
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def __call__(self, text: str) -> str:
        """What the lines print."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{text}\nprint({END!r})\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.strip() == END:
                break
            lines.append(line)
        return "".join(lines)

    def close(self) -> None:
        """End it."""
        self.process.communicate()


def typed(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Type lines at a shell."""
    return subprocess.run(
        [program("bash", environment), "-e", "-c", line],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def parts(environment: dict[str, str]) -> Iterator[str]:
    """What is not as documented in the two parts."""

    def shell(text: str) -> str:
        done = typed(text, environment)
        return done.stdout + done.stderr

    for name, kind in (("Part A", "python"), ("Part B", "sh")):
        blocks = tutorial.part(name)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            prompt = Prompt(environment)
            programs: dict[str, Callable[[str], str]] = {"python": prompt, "sh": shell}
            wrong = list(tutorial.follow(blocks, {kind: programs[kind]}))
            prompt.close()
            os.chdir("/")
        print(f"{name}: {len(blocks)} blocks, {len(wrong)} not as documented")
        yield from wrong


def mistakes(environment: dict[str, str]) -> Iterator[str]:
    """Messages that are not as documented."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        yield from _messages(environment)
        os.chdir("/")


def _messages(environment: dict[str, str]) -> Iterator[str]:
    """The same, where files may be written."""
    tutorial.write_files()
    first = f"dpsvm-fast {tutorial.FIT}; mv other.json model.json; dpsvm-fast {tutorial.BUDGET}"
    assert typed(first, environment).returncode == 0
    wrong = made = 0
    for (prepare, code), said in zip(tutorial.MISTAKES, tutorial.messages(), strict=True):
        if not tutorial.can_be_made(prepare):
            print(f"mistakes: not made, since no folder is closed to this user: {said}")
            continue
        made += 1
        done = typed(f"dpsvm-fast {prepare()}", environment)
        if done.returncode != code or tutorial.as_documented(done.stderr) != said:
            wrong += 1
            yield f"documented, with exit code {code}: {said}\nprinted: {done.stderr}"
    print(f"mistakes: {made} messages, {wrong} not as documented")


def main() -> int:
    """Follow everything; 1 when anything differs."""
    if len(sys.argv) != 2:
        sys.stderr.write((__doc__ or "").strip() + "\n")
        return 2
    path = f"{Path(sys.argv[1]).resolve()}{os.pathsep}{os.environ['PATH']}"
    # What is printed is read as UTF-8, whatever the system's own encoding of pipes.
    environment = os.environ | {"PATH": path, "MPLBACKEND": "Agg", "PYTHONIOENCODING": "utf-8"}
    environment.pop("PYTHONPATH", None)
    wrong = [*parts(environment), *mistakes(environment)]
    sys.stderr.write("\n\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
