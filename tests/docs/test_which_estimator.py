"""The page that chooses an estimator: its picture is the script's, its table what models do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import dpsvm_fast

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "which_estimator.md"
ROWS = np.random.default_rng(0).uniform(-0.5, 0.5, size=(300, 3))
LABELS = (ROWS[:, 0] > 0.0).astype(int)


def table() -> dict[str, dict[str, str]]:
    """The first table of the page: by estimator what stands in each column."""
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    head = [cell.strip() for cell in lines[0].strip("|").split("|")]
    found = {}
    for line in lines[2:8]:
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found[name.strip("`")] = dict(zip(head[1:], cells, strict=True))
    return found


@pytest.mark.parametrize("name", table())
def test_the_table_says_what_models_do(name: str) -> None:
    kind, row = getattr(dpsvm_fast, name), table()[name]
    facts = re.findall(r"`(\w+)`", row["Public facts needed"])
    public: dict[str, Any] = {"bounds": (-1, 1), "data_norm": 1.0, "classes": [0, 1]}
    settings = {fact: public[fact] for fact in facts}
    assert set(facts) <= set(kind().get_params())
    pure = {"noise": "gamma"} if "data_norm" in facts and name[0] != "G" else {}

    def works(fit: Callable[[], Any]) -> str:
        try:
            fit()
        except (TypeError, ValueError):
            return "no"
        return "yes"

    assert row["δ = 0"] == works(lambda: kind(1.0, 0.0, **settings, **pure).fit(ROWS, LABELS))
    sparse = scipy.sparse.csr_array(ROWS)
    assert row["Sparse rows"] == works(lambda: kind(1.0, 1e-6, **settings).fit(sparse, LABELS))
    exchanged = kind(1.0, 1e-6, adjacency="replace_one", **settings)
    assert row["`replace_one`"] == works(lambda: exchanged.fit(ROWS, LABELS))
    assert row["`partial_fit`"] == ("yes" if hasattr(kind, "partial_fit") else "no")
