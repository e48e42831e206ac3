"""Print how often each attack of docs/proofs/persons.md is tried.

``python tests/architecture/attack_tries.py`` collects the tests that the page names, runs none of
them and prints a table. Cases are the parameters of a test, by day and by night; tries are the
data sets that Hypothesis draws for each case, or one where the test makes its data sets itself.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ATTACKS = re.compile(r"^\| (?!Attack|---)(.+?) \| (`test_.+?`) \| (.+?) \|$", re.M)


class Collected:
    """Cases of each test, and how often Hypothesis tries one."""

    def __init__(self) -> None:
        self.by_night: Counter[str] = Counter()
        self.by_day: Counter[str] = Counter()
        self.tries: dict[str, int] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        """Count before any case is left out; of each, whether it is run by day."""
        for item in items:
            name, seldom = item.originalname, ("slow", "nightly")
            self.by_night[name] += 1
            self.by_day[name] += not any(map(item.get_closest_marker, seldom))
            settings = getattr(item.function, "_hypothesis_internal_use_settings", None)
            self.tries[name] = 1 if settings is None else settings.max_examples


def main() -> int:
    """Print the attacks, and fail where one of their tests is missing."""
    text = (ROOT / "docs" / "proofs" / "persons.md").read_text(encoding="utf-8")
    attacks = ATTACKS.findall(text)
    named = {test for _, tests, _ in attacks for test in re.findall(r"`(\w+)`", tests)}
    files = [
        str(file)
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        if any(f"def {test}(" in file.read_text(encoding="utf-8") for test in named)
    ]
    found = Collected()
    with open(os.devnull, "w") as nowhere, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", nowhere)
        pytest.main(["--collect-only", "-qq", "-m", "", "-p", "no:cacheprovider", *files], [found])
    lines = [
        "| Test | Cases by day, by night | Tries of a case | The page says |",
        "|---|---|---|---|",
    ]
    for _, tests, said in attacks:
        for test in re.findall(r"`(\w+)`", tests):
            cases = f"{found.by_day[test]}, {found.by_night[test]}"
            lines.append(f"| `{test}` | {cases} | {found.tries.get(test)} | {said} |")
    sys.stdout.write("\n".join([*lines, ""]))
    return int(not named <= set(found.tries))


if __name__ == "__main__":
    raise SystemExit(main())
