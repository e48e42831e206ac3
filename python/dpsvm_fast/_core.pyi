"""Stub of the compiled module. Private: use the Python package."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NoiseSource",
    "Records",
    "build_info",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_log_delta",
    "gaussian_sigma",
    "objective_delta",
    "objective_log_delta",
    "objective_sigma",
    "projected_sgd_csr",
    "projected_sgd_dense",
    "projected_sgd_orders",
    "projected_sgd_rounding",
    "solve_crammer_singer_csr",
    "solve_crammer_singer_dense",
    "solve_smooth_csr",
    "solve_smooth_dense",
]

def build_info() -> dict[str, Any]: ...
def gaussian_sigma(epsilon: float, delta: float) -> float: ...
def gaussian_delta(epsilon: float, sigma: float) -> float: ...
def gaussian_log_delta(epsilon: float, sigma: float) -> float: ...
def gaussian_epsilon(delta: float, sigma: float) -> float: ...
def objective_delta(
    law: str,
    n_scores: int,
    epsilon: float,
    sigma: float,
    kappa: float | None,
    jacobian: float | None,
    replace_one: bool,
) -> float: ...
def objective_log_delta(
    law: str,
    n_scores: int,
    epsilon: float,
    sigma: float,
    kappa: float | None,
    jacobian: float | None,
    replace_one: bool,
) -> float: ...
def objective_sigma(
    law: str,
    n_scores: int,
    epsilon: float,
    delta: float,
    kappa: float | None,
    kappa_per_t: float | None,
    jacobian: float | None,
    replace_one: bool,
) -> float: ...

@final
class NoiseSource:
    def __new__(cls, seed: int | None = None) -> NoiseSource: ...
    @property
    def seeded(self) -> bool: ...
    def gaussian_on_grid(
        self, size: int, sigma: float, grid: float, n_threads: int
    ) -> NDArray[np.int64]: ...
    def gaussian(self, size: int, sigma: float, n_threads: int) -> NDArray[np.float64]: ...
    def gamma_ball(self, size: int, beta: float, n_threads: int) -> NDArray[np.float64]: ...
    def symmetric_gaussian(self, d: int, sigma: float, n_threads: int) -> NDArray[np.float64]: ...
    def public_seed(self) -> int: ...

@final
class Records:
    @staticmethod
    def dense(
        X: NDArray[np.float64] | NDArray[np.float32],
        y: NDArray[np.int64],
        *,
        n_classes: int,
        offset: NDArray[np.float64] | None,
        scale: NDArray[np.float64] | None,
        low: float,
        high: float,
        data_norm: float,
        unit: bool,
        n_threads: int,
    ) -> Records: ...
    @staticmethod
    def csr(
        data: NDArray[np.float64] | NDArray[np.float32],
        indices: NDArray[np.int32] | NDArray[np.int64],
        indptr: NDArray[np.int32] | NDArray[np.int64],
        n_features: int,
        y: NDArray[np.int64],
        *,
        n_classes: int,
        scale: NDArray[np.float64] | None,
        low: float,
        high: float,
        data_norm: float,
        unit: bool,
        n_threads: int,
    ) -> Records: ...
    @property
    def n_features(self) -> int: ...
    def sums(self, n_threads: int) -> NDArray[np.float64]: ...
    def centre(self, point: NDArray[np.float64], n_threads: int) -> None: ...
    def gram(self, n_threads: int) -> NDArray[np.float64]: ...
    def transform(self, matrix: NDArray[np.float64], n_threads: int) -> None: ...

def solve_crammer_singer_dense(
    X: NDArray[np.float64] | NDArray[np.float32],
    y: NDArray[np.int64],
    *,
    n_classes: int,
    C: float,
    data_norm: float,
    intercept_scaling: float,
    radius: float,
    max_iter: int | None,
    shuffle_seed: int,
    n_threads: int,
    low_memory: bool,
) -> tuple[NDArray[np.float64] | None, dict[str, Any]]: ...
def solve_crammer_singer_csr(
    data: NDArray[np.float64] | NDArray[np.float32],
    indices: NDArray[np.int32] | NDArray[np.int64],
    indptr: NDArray[np.int32] | NDArray[np.int64],
    n_features: int,
    y: NDArray[np.int64],
    *,
    n_classes: int,
    C: float,
    data_norm: float,
    intercept_scaling: float,
    radius: float,
    max_iter: int | None,
    shuffle_seed: int,
    n_threads: int,
    low_memory: bool,
) -> tuple[NDArray[np.float64] | None, dict[str, Any]]: ...
def solve_smooth_dense(
    X: NDArray[np.float64] | NDArray[np.float32],
    y: NDArray[np.int64],
    *,
    loss: str,
    n_scores: int,
    smoothing: float,
    margin: float,
    regularization: float,
    linear: NDArray[np.float64] | None,
    data_norm: float,
    intercept_scaling: float,
    gradient_tol: float,
    max_iter: int | None,
    shuffle_seed: int,
    n_threads: int,
    low_memory: bool,
) -> tuple[NDArray[np.float64] | None, dict[str, Any]]: ...
def solve_smooth_csr(
    data: NDArray[np.float64] | NDArray[np.float32],
    indices: NDArray[np.int32] | NDArray[np.int64],
    indptr: NDArray[np.int32] | NDArray[np.int64],
    n_features: int,
    y: NDArray[np.int64],
    *,
    loss: str,
    n_scores: int,
    smoothing: float,
    margin: float,
    regularization: float,
    linear: NDArray[np.float64] | None,
    data_norm: float,
    intercept_scaling: float,
    gradient_tol: float,
    max_iter: int | None,
    shuffle_seed: int,
    n_threads: int,
    low_memory: bool,
) -> tuple[NDArray[np.float64] | None, dict[str, Any]]: ...
def projected_sgd_dense(
    X: NDArray[np.float64] | NDArray[np.float32],
    y: NDArray[np.int64],
    *,
    loss: str,
    n_scores: int,
    smoothing: float,
    margin: float,
    n_epochs: int,
    batch_size: int,
    regularization: float,
    radius: float,
    projection: str,
    average: str,
    data_norm: float,
    intercept_scaling: float,
    permutation_seed: int,
    low_memory: bool,
) -> tuple[NDArray[np.float64], dict[str, Any]]: ...
def projected_sgd_csr(
    data: NDArray[np.float64] | NDArray[np.float32],
    indices: NDArray[np.int32] | NDArray[np.int64],
    indptr: NDArray[np.int32] | NDArray[np.int64],
    n_features: int,
    y: NDArray[np.int64],
    *,
    loss: str,
    n_scores: int,
    smoothing: float,
    margin: float,
    n_epochs: int,
    batch_size: int,
    regularization: float,
    radius: float,
    projection: str,
    average: str,
    data_norm: float,
    intercept_scaling: float,
    permutation_seed: int,
    low_memory: bool,
) -> tuple[NDArray[np.float64], dict[str, Any]]: ...
def projected_sgd_orders(
    n_samples: int, n_epochs: int, permutation_seed: int
) -> NDArray[np.uint32]: ...
def projected_sgd_rounding(
    *,
    n_samples: int,
    n_columns: int,
    loss: str,
    n_scores: int,
    smoothing: float,
    margin: float,
    n_epochs: int,
    batch_size: int,
    regularization: float,
    radius: float,
    projection: str,
    average: str,
    data_norm: float,
    intercept_scaling: float,
) -> float: ...
