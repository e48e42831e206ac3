"""Whatever bytes a file has: it is read or refused with a typed error, within memory and time."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from oracles.reader_attacks import faults, seeds

N_FILES, N_BY_NIGHT = 440, 10_000


def test_the_files_are_good_before_they_are_changed(tmp_path: Path) -> None:
    for seed in seeds():
        path = tmp_path / seed.name
        path.write_bytes(seed.content)
        seed.read(path)


def test_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    assert faults(tmp_path, N_FILES, 1) == []


@pytest.mark.nightly
def test_many_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    entropy = secrets.randbits(64)
    assert faults(tmp_path, N_BY_NIGHT, entropy) == [], f"entropy {entropy}"
