"""Histograms of directions of edges as whole arrays: slow, and by another route than the core."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def windows(side: int, cells: int) -> NDArray[np.float64]:
    """Triangles about the middles of cells, shape (cells, side)."""
    middles = (np.arange(cells) + 0.5) * side / cells
    distances = np.abs(np.arange(side) + 0.5 - middles[:, None])
    return np.clip(1.0 - distances * cells / side, 0.0, None)


def features(
    images: NDArray[Any], cells: tuple[int, int], n_orientations: int
) -> NDArray[np.float64]:
    """Of images of shape (n, height, width, channels)."""
    found = []
    for plane in np.moveaxis(images.astype(np.float64), 3, 0):
        padded = np.pad(plane, ((0, 0), (1, 1), (1, 1)), mode="edge")
        dx = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
        dy = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
        turns = 2.0 * np.pi * np.arange(n_orientations) / n_orientations
        cosines = np.cos(np.arctan2(dy, dx)[..., None] - turns)
        edges = np.hypot(dx, dy)[..., None] * np.maximum(cosines, 0.0) ** 8
        rows, columns = windows(plane.shape[1], cells[0]), windows(plane.shape[2], cells[1])
        sums = np.einsum("ay,nyxk,bx->nabk", rows, edges, columns)
        found.append(sums)
    whole = np.stack(found, axis=1)
    cell = whole.sum(axis=(1, 4), keepdims=True)
    level = cell + 0.1 * cell.mean(axis=(2, 3), keepdims=True)
    shares = (whole / np.where(level > 0.0, level, 1.0)).reshape(len(images), -1)
    total = shares.sum(axis=1, keepdims=True)
    return np.asarray(np.sqrt(shares / np.where(total > 0.0, total, 1.0)))


def features_of_order_two(
    images: NDArray[Any], cells: tuple[int, int], n_orientations: int
) -> NDArray[np.float64]:
    """The same with edges of edges behind them, a third of the squared norm."""
    n, height, width, channels = images.shape
    half = ((height + 1) // 2, (width + 1) // 2)
    inner = features(images, half, n_orientations)
    edges = np.empty((n, *half, channels * n_orientations))
    for channel, plane in enumerate(np.split(inner, channels, axis=1)):
        places = slice(channel * n_orientations, (channel + 1) * n_orientations)
        edges[..., places] = plane.reshape(n, *half, n_orientations)
    few = ((cells[0] + 1) // 2, (cells[1] + 1) // 2)
    behind = features(edges, few, max(3, (n_orientations + 1) // 2))
    own = features(images, cells, n_orientations)
    return np.hstack([own * np.sqrt(2.0), behind]) / np.sqrt(3.0)
