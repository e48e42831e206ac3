"""Files of earlier releases are loaded for ever, and predict what they predicted then.

Run as a script, this file saves models of kinds that are not there yet; ``--overwrite`` saves all
of them again, right only before a release: what has been released must stay as it was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "stored" / "models"
if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from dpsvm_fast.exceptions import ModelFormatError  # noqa: E402
from dpsvm_fast.persist import load_model, read_model, save_model  # noqa: E402
from oracles.saved import COMPOSED, ROWS, answers, fitted  # noqa: E402
from oracles.subjects import SUBJECTS  # noqa: E402

KINDS = (*(name for name, s in SUBJECTS.items() if not s.slow), *COMPOSED)
KEY = b"the key of the golden files"
# Rounding of other processors and linear algebra libraries.
TOLERANCE = 1e-9


def stem(kind: str) -> str:
    return kind.replace(" ", "_")


def stored() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("v*/*.json") if path.stem != "answers")


def rows_for(model: Any, rows: Any) -> Any:
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=names)


def said_by(model: Any, rows: Any) -> dict[str, Any]:
    return {
        name: np.asarray(v).tolist() for name, v in answers(model, rows_for(model, rows)).items()
    }


def test_every_kind_is_stored() -> None:
    assert set(stored()) >= {stem(kind) for kind in KINDS}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("v*/*.json")), ids=lambda path: path.stem)
def test_files_of_every_version_load_and_predict_what_they_did(path: Path) -> None:
    if path.stem == "answers":
        return
    expected = json.loads((path.parent / "answers.json").read_text())
    # Recomputed where that takes no time.
    quick = "search" not in path.stem and "sgd" not in path.stem
    model = load_model(path, key=KEY, verify=quick)
    said = said_by(model, np.array(expected["rows"]))
    assert set(said) == set(expected[path.stem])
    for name, values in expected[path.stem].items():
        if name == "predict":
            assert said[name] == values
        else:
            assert np.allclose(said[name], values, rtol=TOLERANCE, atol=TOLERANCE), name


def test_versions_are_those_of_the_folders() -> None:
    for path in FOLDER.glob("v*/output.json"):
        assert read_model(path).format_version == int(path.parent.name[1:])


def test_files_of_an_older_version_are_refused_for_it(tmp_path: Path) -> None:
    record = json.loads((FOLDER / "v5" / "output.json").read_text()) | {"version": 1}
    (tmp_path / "old.json").write_text(json.dumps(record))
    with pytest.raises(ModelFormatError, match="another dpsvm_fast"):
        load_model(tmp_path / "old.json")


def write(*, overwrite: bool) -> None:
    """Saves what is missing, or everything."""
    folder = FOLDER / "v5"
    folder.mkdir(parents=True, exist_ok=True)
    book = folder / "answers.json"
    found: dict[str, Any] = {"rows": ROWS[:6].tolist()}
    if book.exists() and not overwrite:
        found = json.loads(book.read_text())
    for kind in KINDS:
        path = folder / f"{stem(kind)}.json"
        if path.exists() and not overwrite:
            continue
        save_model(fitted(kind), path, key=KEY)
        found[path.stem] = said_by(load_model(path, verify=False), np.array(found["rows"]))
    book.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    write(overwrite="--overwrite" in sys.argv[1:])
