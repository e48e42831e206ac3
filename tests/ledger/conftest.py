"""A file, and a ledger in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsvm_fast.ledger import PrivacyLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.budget"


@pytest.fixture
def ledger(path: Path) -> PrivacyLedger:
    return PrivacyLedger(1.0, 0.0, path=path)
