"""Time and traffic of one secure sum, all parties and the server in one process, on one core.

python benches/secure_sum.py [--rounds 3] [--out FOLDER]

Writes ``secure_sum.csv``: the least wall time and the median processor time over the rounds, for
each number of parties and of numbers in a vector. Other programs of the machine add to wall times.
All parties' work is added up; in a deployment they work side by side. The exit status is 1 when a
sum is not exact.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches" / "results"
sys.path.insert(0, str(ROOT))

sys.path.insert(0, str(ROOT / "tests"))

from benches.machine import description, require_release  # noqa: E402
from dpsvm_fast import _core  # noqa: E402
from dpsvm_fast.federated.protocol import RoundTerms  # noqa: E402
from dpsvm_fast.federated.server import sum_of_parties  # noqa: E402
from oracles.secure_sums import Room, room_of  # noqa: E402

PARTIES = (3, 10, 50, 100)
LENGTHS = (1000, 7850)
FIELDS = ("parties", "length", "seconds", "cpu_seconds", "mb_up", "mb_down", "exact", "rounds")


def terms_for(parties: int, length: int) -> RoundTerms:
    """All parties share with all, and more than half open a mask."""
    return RoundTerms(
        digest="benchmark",
        name="sum",
        length=length,
        n_users=parties,
        min_survivors=parties,
        threshold=parties // 2 + 1,
    )


def vectors_for(parties: int, length: int) -> Any:
    """Numbers over the whole range."""
    limit = 2**29
    vectors = np.random.default_rng(0).integers(-limit + 1, limit, (parties, length))
    vectors[:, -1] = 1
    return vectors


def one_sum(parties: int, length: int) -> tuple[float, float, bool, Room]:
    """Wall time, processor time, whether the sum is exact, who has talked."""
    terms, vectors = terms_for(parties, length), vectors_for(parties, length)
    room = room_of(vectors, terms)
    wall, processor = time.perf_counter(), time.process_time()
    result = sum_of_parties(room, terms, room.numbers)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return wall, processor, np.array_equal(result.total, vectors.sum(axis=0)), room


def traffic(room: Room) -> tuple[float, float]:
    """Megabytes of all messages to the server, and from it."""
    sizes = [0, 0]
    for sent in room.traffic:
        sizes[not sent.upwards] += len(sent.data)
    return sizes[0] / 1e6, sizes[1] / 1e6


def measured(parties: int, length: int, rounds: int) -> dict[str, Any]:
    """One line of the table."""
    runs = [one_sum(parties, length) for _ in range(rounds)]
    up, down = traffic(one_sum(parties, length)[3])
    return {
        "parties": parties,
        "length": length,
        "seconds": f"{min(run[0] for run in runs):.3f}",
        "cpu_seconds": f"{statistics.median(run[1] for run in runs):.3f}",
        "mb_up": f"{up:.3f}",
        "mb_down": f"{down:.3f}",
        "exact": all(run[2] for run in runs),
        "rounds": rounds,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    build = _core.build_info()
    require_release(build)
    one_sum(3, 10)
    lines = []
    for parties in PARTIES:
        for length in LENGTHS:
            lines.append(measured(parties, length, options.rounds))
            print(lines[-1], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "secure_sum.csv").open("w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {name}: {fact}\n" for name, fact in description(build, 1).items())
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(lines)
    return 0 if all(line["exact"] for line in lines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
