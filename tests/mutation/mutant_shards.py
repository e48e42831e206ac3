"""Faults of the compiled descent over shards of the records, and the tests that see them."""

from __future__ import annotations

from mutant_kinds import Edit, Mutant

__all__ = ["SHARDS"]

TESTS = "tests/unit/test_shards_core.py::"

SHARDS = (
    Mutant(
        "shards share batches",
        "every shard draws the same places: records of different shards join together",
        (
            Edit(
                "rust/core/src/descent/streams.rs",
                "            batches: key.task(shard),\n",
                "            batches: key.task(shard & 0),\n",
            ),
        ),
        (
            TESTS + "test_batches_of_two_shards_meet_by_chance_alone",
            TESTS + "test_tasks_that_run_again_give_the_same_numbers",
        ),
    ),
    Mutant(
        "noise of a step again",
        "a driver that forgets which step it took adds the same noise to the next sum",
        (
            Edit(
                "rust/py/src/shards.rs",
                "        *next = step + 1;\n",
                "        *next = step.max(0);\n",
            ),
        ),
        (TESTS + "test_no_noise_is_used_twice",),
    ),
)
