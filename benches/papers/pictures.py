"""Histograms of oriented gradients: features of one picture at a time, which no budget pays for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# As FedDPDR describes them: side of a cell, angles of a histogram, cells along a block's side.
CELL, ANGLES, BLOCK = 4, 9, 2
CHANNELS, SIDE = 3, 32
# Rows at a time.
CHUNK = 1000
# Below the smallest difference of brightness: keeps flat blocks from being divided by 0.
FLAT = 1e-6


def histograms(X: Array) -> Array:
    """Rows of 3 x 32 x 32 points from 0 to 255, one channel after the other, as histograms.

    Every 4 x 4 cell counts the directions of its gradients, half a turn in nine parts, by their
    length; at each point the channel with the longest gradient counts. Blocks of 2 x 2 cells, one
    cell apart, are scaled to norm 1 each.
    """
    chunks = [_histograms(X[first : first + CHUNK]) for first in range(0, len(X), CHUNK)]
    return np.concatenate(chunks)


def _histograms(X: Array) -> Array:
    """The same for few rows."""
    n = len(X)
    pictures = X.reshape(n, CHANNELS, SIDE, SIDE) / 255.0
    down, right = np.gradient(pictures, axis=(2, 3))
    strongest = np.argmax(down**2 + right**2, axis=1)[:, None]
    down, right = (np.take_along_axis(part, strongest, 1)[:, 0] for part in (down, right))
    length = np.hypot(down, right)
    angle = np.minimum(
        ((np.arctan2(down, right) % np.pi) * (ANGLES / np.pi)).astype(np.int64), ANGLES - 1
    )
    cells = SIDE // CELL
    counts = np.stack(
        [
            np.where(angle == part, length, 0.0)
            .reshape(n, cells, CELL, cells, CELL)
            .sum(axis=(2, 4))
            for part in range(ANGLES)
        ],
        axis=-1,
    )
    last = cells - BLOCK + 1
    blocks = np.concatenate(
        [counts[:, i : i + last, j : j + last] for i in range(BLOCK) for j in range(BLOCK)],
        axis=-1,
    )
    blocks /= np.linalg.norm(blocks, axis=-1, keepdims=True) + FLAT
    return blocks.reshape(n, -1)
