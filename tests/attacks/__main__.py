"""The command: ``python tests/attacks [--minutes 60 | --claims N] [--seed N] [--only WORD]``.

Every target has the same time, or looks at so many claims. Printed are the closest calls, each with
the point that reproduces it (``--replay TARGET POINT``). Exit code 1: something is below the truth,
or a function failed in an unexpected way.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from attacks.climb import PATIENCE, Climb  # noqa: E402
from attacks.targets import TARGETS  # noqa: E402

# Kinds with a smaller share of the points are not printed one by one.
MANY_KINDS = 200
# Targets take turns, so that an interrupted search has looked at all of them.
TURNS = 5


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def searched(minutes: float, claims: int | None, seed: int, only: str) -> list[Climb]:
    """A search on the target of that name, or on all whose names contain ``only``."""
    named = [target for target in TARGETS if target.name == only]
    targets = named or [target for target in TARGETS if only in target.name]
    climbs = [
        Climb(target, np.random.default_rng([seed, number]))
        for number, target in enumerate(targets)
    ]
    if claims is not None:
        for climb in climbs:
            climb.run_claims(claims)
        return climbs
    for _ in range(TURNS):
        for climb in climbs:
            climb.run(60.0 * minutes / TURNS / len(climbs))
    return climbs


def told(climb: Climb) -> bool:
    """Print what a search found; whether it found a violation or a failure."""
    say(
        f"\n{climb.target.name}: {climb.looks} points, {climb.refused} of them refused or out of "
        f"range, {len(climb.found)} violations, {len(climb.crashes)} unexpected errors, "
        f"{len(climb.slow)} given up after {PATIENCE:g} s"
    )
    shown = sorted(climb.found, key=lambda found: -found[1].ratio)[:3]
    shown += [call for call in climb.closest(3) if call not in shown]
    for point, look in shown:
        mark = "VIOLATION" if look.ratio > climb.target.allowed else "closest"
        say(f"  {mark} ratio {look.ratio:.9g}: true {look.true:.6g}, claimed {look.claimed:.6g}")
        say(f"    {json.dumps(point)}")
    for kind, tries in sorted(climb.tries.items()):
        if tries > climb.looks // MANY_KINDS:
            say(f"  {kind}: {tries} claims, closest {climb.best[kind][1].ratio:.9g}")
    for point, text in climb.crashes[:3]:
        say(f"  UNEXPECTED ERROR\n    {json.dumps(point)}\n{text}")
    for point in climb.slow[:2]:
        say(f"  SLOW\n    {json.dumps(point)}")
    return bool(climb.found or climb.crashes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, print, and say by the exit code whether anything was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--claims", type=int, help="in place of minutes, for each target")
    parser.add_argument("--seed", type=int, help="left out: entropy of the operating system")
    parser.add_argument("--only", default="", help="a target, or a part of the names of some")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "POINT"))
    options = parser.parse_args(arguments)
    if options.replay:
        (target,) = (one for one in TARGETS if one.name == options.replay[0])
        look = target.look(json.loads(options.replay[1]))
        say(str(look))
        return int(look.ratio > target.allowed)
    seed = secrets.randbits(64) if options.seed is None else options.seed
    say(f"seed {seed}")
    climbs = searched(options.minutes, options.claims, seed, options.only)
    found = [told(climb) for climb in climbs]
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
