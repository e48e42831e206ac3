"""One private fit of rows from a file: within memory, with a bar, and with nothing half done."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from dpsvm_fast import distributed
from dpsvm_fast.cli._errors import CommandError
from dpsvm_fast.cli._models import needs_all_rows, trainer_of
from dpsvm_fast.cli._rows import MIB, Room, TrainingRows
from dpsvm_fast.cli._screen import Screen
from dpsvm_fast.estimators import PrivateKernelSVC

__all__ = ["copies_of", "train"]

# Copies of all rows that a fit needs, in the size in which they are decoded: rows and packed
# records; rows, mapped rows and the solver's; and the scalers' double precision besides.
DESCENT, SOLVER, PIPELINE = 2, 4, 8
# Components of a kernel, where they are chosen by its rule.
FEATURES = 1000
# With less, features of a kernel are computed anew for every step; they would take up to 256 MiB.
ROOM_FOR_FEATURES = 1024 * MIB


def copies_of(estimator: Any, n_features: int) -> int:
    """How many copies of the rows are in memory while it is fitted there."""
    if not needs_all_rows(estimator):
        return DESCENT
    if isinstance(estimator, PrivateKernelSVC):
        # A sine and a cosine of each component.
        return SOLVER * -(-2 * FEATURES // n_features)
    return PIPELINE if isinstance(estimator, Pipeline) else SOLVER


def train(screen: Screen, estimator: Any, rows: TrainingRows, room: Room) -> Any:
    """Fit an estimator on checked rows; its ledger is charged here.

    Parameters
    ----------
    screen : Screen
    estimator : estimator
        As of ``made``.
    rows : TrainingRows
    room : Room

    Returns
    -------
    estimator
        Fitted.

    Raises
    ------
    CommandError
        The rows do not fit into the memory that this training needs. Nothing was spent.
    """
    if not needs_all_rows(estimator):
        small = isinstance(estimator, PrivateKernelSVC) and room.left < ROOM_FOR_FEATURES
        if not small:
            return _by_sums(screen, estimator, rows, room)
        before = estimator.low_memory
        _by_sums(screen, estimator.set_params(low_memory=True), rows, room)
        # It is saved with the model, and how much room rows have left is theirs.
        return estimator.set_params(low_memory=before)
    copies = copies_of(estimator, rows.partitions.n_features)
    if rows.folder is not None and not room.holds(rows.n_bytes, copies):
        raise CommandError(
            "--max-memory: this training needs all rows in memory, several times; give it more "
            "(see dpsvm-fast fit --help), or train by sums over parts of the rows: --model linear "
            "--mechanism gradient"
        )
    X, y = rows.whole()
    # Iterations of a solver depend on the rows: there is nothing to show but that it works.
    with screen.progress("Training", None):
        return estimator.fit(X, y)


def _by_sums(screen: Screen, estimator: Any, rows: TrainingRows, room: Room) -> Any:
    """Descent by sums over parts of the rows, whose number of steps is public."""
    # Names would be asked for at every prediction; the schema has them.
    parts = dataclasses.replace(rows.partitions, feature_names=None)
    trainer = trainer_of(estimator)
    before = [step for _, step in estimator.steps[:-1]] if trainer is not estimator else []
    for step in before:
        step.fit(np.zeros((1, parts.n_features)))
        parts = parts.transformed(step)
    # Always a folder, also where nothing is written to it: rows are rounded the same way then,
    # however many of them there are.
    kept, scratch = len(parts), Path(tempfile.gettempdir())
    if rows.folder is not None:
        kept = room.kept_parts(rows.n_bytes, len(parts))
        scratch = rows.folder / "mapped"
        scratch.mkdir(mode=0o700)
    with screen.progress("Training", None) as bar:
        distributed.fit(trainer, parts, resident=kept, scratch=scratch, on_step=bar.advance_to)
    return estimator
