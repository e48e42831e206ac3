"""Applies the catalogue of mutants, all of it or those named, and prints what became of each.

python tools/mutants.py [--list] [--quick] [NAME ...]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "mutation"))

from catalogue import CATALOGUE, Mutant
from mutant_runner import baseline, compiled, judge


def main() -> int:
    """Exit status 0 if every chosen mutant is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the mutants; default: all")
    parser.add_argument("--list", action="store_true", help="names and what they model")
    parser.add_argument("--quick", action="store_true", help="without the compiled and slow ones")
    arguments = parser.parse_args()
    chosen = [m for m in CATALOGUE if not arguments.names or m.name in arguments.names]
    if unknown := set(arguments.names) - {mutant.name for mutant in CATALOGUE}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    if arguments.quick:
        chosen = [m for m in chosen if not (m.slow or compiled(m))]
    if arguments.list:
        for mutant in chosen:
            print(f"{mutant.name}: {mutant.models}")
        return 0
    return report(chosen)


def report(chosen: list[Mutant]) -> int:
    """Runs the mutants one after the other."""
    if problem := baseline(chosen):
        print(problem)
        return 1
    alive = 0
    for mutant in chosen:
        verdict = judge(mutant)
        alive += not verdict.killed
        word = "killed" if verdict.killed else "ALIVE"
        print(f"{word} {verdict.seconds:6.1f} s  {mutant.name}", flush=True)
        for test in verdict.failed:
            print(f"    {test}")
        if verdict.problem:
            print(f"    {verdict.problem}")
    print(f"{len(chosen) - alive} of {len(chosen)} killed")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
