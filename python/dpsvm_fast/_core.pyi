"""Stub of the compiled module. Private: use the Python package."""

import os
from collections.abc import Callable
from typing import Any, TypedDict, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack

__all__ = [
    "Descent",
    "FourierMap",
    "LossDistribution",
    "NoiseSource",
    "RecordEnds",
    "Records",
    "ShardedRun",
    "TextCells",
    "UsualArithmetic",
    "build_info",
    "clipped_sum_distance",
    "column_moments",
    "descent_rounding",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "objective_delta",
    "objective_log_determinant",
    "objective_profile",
    "objective_sigma",
    "oriented_gradients",
    "projected_sgd",
    "projected_sgd_orders",
    "projected_sgd_parties",
    "projected_sgd_rounding",
    "row_products",
    "solve_crammer_singer",
    "solve_crammer_singer_parties",
    "solve_gaussian_margin",
    "solve_gaussian_margin_batch",
    "solve_smooth",
    "solve_smooth_batch",
    "solve_smooth_parties",
    "subsampled_gaussian_delta",
    "subsampled_gaussian_epsilon",
    "subsampled_gaussian_noise_multiplier",
    "symmetric_eigen",
]

# An array, or `(data, indices, indptr, n_features)` of a CSR matrix.
_Values = NDArray[np.float64] | NDArray[np.float32]
_Indices = NDArray[np.int32] | NDArray[np.int64]
_Rows = _Values | tuple[_Values, _Indices, _Indices, int]

# Keyword arguments that several functions take.
class _Loss(TypedDict):
    loss: str
    n_scores: int
    smoothing: float
    margin: float

class _Solver(_Loss):
    data_norm: float
    intercept_scaling: float
    shuffle_seed: int
    n_threads: int

class _Sgd(_Loss):
    n_epochs: int
    batch_size: int
    radius: float
    projection: str
    average: str
    data_norm: float
    intercept_scaling: float

class _CrammerSinger(TypedDict):
    n_classes: int
    C: float
    data_norm: float
    intercept_scaling: float
    radius: float
    max_iter: int | None
    shuffle_seed: int
    n_threads: int
    low_memory: bool

class _CrammerSingerParties(TypedDict):
    n_classes: int
    C: NDArray[np.float64]
    data_norm: float
    intercept_scaling: float
    radius: NDArray[np.float64]
    shuffle_seed: int
    n_threads: int

class _Smooth(_Solver):
    regularization: float
    linear: NDArray[np.float64] | None
    gradient_tol: float
    max_iter: int | None
    low_memory: bool

class _SmoothBatch(_Solver):
    regularization: float
    linear: NDArray[np.float64]
    gradient_tol: float
    max_iter: int | None

class _SmoothParties(_Solver):
    regularizations: NDArray[np.float64]
    gradient_tols: NDArray[np.float64]

class _ProjectedSgd(_Sgd):
    regularization: float
    permutation_seed: int
    low_memory: bool
    most_rows: int

class _ProjectedSgdParties(_Sgd):
    regularizations: NDArray[np.float64]
    permutation_seed: int
    n_threads: int

class _SgdRounding(_Sgd):
    n_samples: int
    n_columns: int
    regularization: float
    most_rows: int

class _DescentRounding(_Loss):
    n_columns: int
    row_norm: float
    clip: float
    max_records: int
    max_rows: int
    truncated: bool
    radius: float
    grid: float | None
    step: float

class _GaussianMargin(TypedDict):
    loss: str
    n_classes: int
    n_ellipsoids: int
    smoothing: float
    margin: float
    regularization: float
    linear: NDArray[np.float64]
    data_norm: float
    psd: bool
    gradient_tol: float
    max_iter: int | None
    n_threads: int

class _Records(TypedDict):
    n_classes: int
    offset: NDArray[np.float64] | None
    scale: NDArray[np.float64] | None
    low: float
    floor: NDArray[np.float64] | None
    high: float
    constant: float
    data_norm: float
    unit: bool
    n_threads: int

class _Descent(_Loss):
    n_features: int
    intercept: float
    row_scale: float
    clip: float
    sigma: float
    grid: float | None
    sampling_rate: float
    divisor: float
    regularization: float
    optimizer: str
    learning_rate: float
    schedule: str
    horizon: int
    momentum: float
    nesterov: bool
    beta1: float
    beta2: float
    stabilizer: float
    noise_correction: bool
    average_from: int | None
    radius: float | None
    precision: str

class _TextFormat(TypedDict):
    n_features: int
    delimiter: str
    quote: str
    decimal: str
    missing: list[str]

class _Gradients(TypedDict):
    shape: tuple[int, int, int]
    cells: tuple[int, int]
    n_orientations: int
    n_threads: int

class _Losses(TypedDict):
    subsampled: list[tuple[float, float, int]]
    gaussian_mu: float
    pure: list[tuple[float, int]]
    zcdp_rho: float
    profiles: list[tuple[NDArray[np.float64], NDArray[np.float64], int]]
    replace_one: bool

class _FourierMap(TypedDict):
    n_features: int
    n_components: int
    gamma: float
    kernel: str
    structure: str
    centre: str
    seed: int

def build_info() -> dict[str, Any]: ...

@final
class TextCells:
    def __new__(
        cls, columns: list[tuple[str, int]], **options: Unpack[_TextFormat]
    ) -> TextCells: ...
    def read(
        self, text: bytes, start: int, max_rows: int
    ) -> tuple[
        NDArray[np.float32],
        NDArray[np.int32],
        int,
        list[list[str]],
        int,
        tuple[int, str, int] | None,
    ]: ...

@final
class RecordEnds:
    def __new__(cls, quote: str, delimiter: str) -> RecordEnds: ...
    def ends(self, text: bytes) -> tuple[int, int]: ...
    def end_inside(self) -> bool: ...

def symmetric_eigen(
    matrix: NDArray[np.float64], n_components: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def oriented_gradients(X: Any, **options: Unpack[_Gradients]) -> NDArray[Any]: ...
def row_products(
    rows: NDArray[np.float64], matrix: NDArray[np.float64], n_threads: int
) -> NDArray[np.float64]: ...
def gaussian_sigma(epsilon: float, delta: float) -> float: ...
def gaussian_delta(epsilon: float, sigma: float) -> float: ...
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
def objective_log_determinant(law: str, n_scores: int, kappa: float) -> float: ...
def objective_profile(
    law: str,
    n_scores: int,
    low: float,
    high: float,
    count: int,
    sigma: float,
    kappa: float | None,
    jacobian: float | None,
    replace_one: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def subsampled_gaussian_delta(
    noise_multiplier: float,
    sampling_rate: float,
    n_steps: int,
    epsilon: float,
    replace_one: bool,
) -> float: ...
def subsampled_gaussian_epsilon(
    noise_multiplier: float,
    sampling_rate: float,
    n_steps: int,
    delta: float,
    replace_one: bool,
) -> float: ...
def subsampled_gaussian_noise_multiplier(
    epsilon: float,
    delta: float,
    sampling_rate: float,
    n_steps: int,
    replace_one: bool,
) -> float: ...

@final
class LossDistribution:
    def __new__(cls, **options: Unpack[_Losses]) -> LossDistribution: ...
    def delta(self, epsilon: float) -> float: ...
    def epsilon(self, delta: float) -> float: ...
    def quick_delta(self, epsilon: float) -> float: ...
    def quick_epsilon(self, delta: float) -> float: ...

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
    def exponential_choice(self, scores: NDArray[np.int64], rate: float) -> int: ...
    def permute_and_flip(self, scores: NDArray[np.int64], rate: float) -> int: ...
    def discrete_gaussian(self, size: int, sigma: int, n_threads: int = 1) -> NDArray[np.int64]: ...
    def discrete_laplace(
        self, size: int, scale_numerator: int, scale_denominator: int, n_threads: int = 1
    ) -> NDArray[np.int64]: ...
    def random_parts(
        self, size: int, weights: NDArray[np.int64], n_threads: int
    ) -> NDArray[np.int64]: ...
    def public_seed(self) -> int: ...

@final
class Records:
    def __new__(cls, X: _Rows, y: NDArray[np.int64], **options: Unpack[_Records]) -> Records: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    def own(self, persons: NDArray[np.int64], weights: NDArray[np.float64]) -> None: ...
    def weigh(self, factors: NDArray[np.float64]) -> None: ...
    def sums(self, n_threads: int) -> NDArray[np.float64]: ...
    def centre(self, point: NDArray[np.float64], n_threads: int) -> None: ...
    def gram(self, n_threads: int) -> NDArray[np.float64]: ...
    def gram_parts(self, n_threads: int) -> NDArray[np.int64]: ...
    @staticmethod
    def gram_from_parts(parts: NDArray[np.int64]) -> NDArray[np.float64]: ...
    def transform(self, matrix: NDArray[np.float64], n_threads: int) -> None: ...
    def append_to(
        self, entries: str | os.PathLike[str], classes: str | os.PathLike[str]
    ) -> None: ...
    def read_from(
        self,
        entries: str | os.PathLike[str],
        classes: str | os.PathLike[str],
        n_rows: int,
        n_threads: int,
    ) -> None: ...
    def lift(self, map: FourierMap, stored: bool, n_threads: int) -> None: ...

@final
class FourierMap:
    def __new__(cls, **options: Unpack[_FourierMap]) -> FourierMap: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_components(self) -> int: ...
    def weights(self) -> NDArray[np.float64]: ...
    def constants(self) -> NDArray[np.float64]: ...
    def transform(self, X: Any, n_threads: int) -> NDArray[Any]: ...

@final
class UsualArithmetic:
    def __new__(cls) -> UsualArithmetic: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_raised: object) -> None: ...

@final
class Descent:
    def __new__(
        cls,
        *,
        state: dict[str, Any] | None = None,
        exact_sums: bool = False,
        **options: Unpack[_Descent],
    ) -> Descent: ...
    def run(
        self,
        records: Records,
        source: NoiseSource,
        n_steps: int,
        n_threads: int,
        on_step: Callable[[int, int], object] | None = None,
    ) -> None: ...
    def run_batch(
        self, records: Records, source: NoiseSource, n_fits: int, n_steps: int, n_threads: int
    ) -> NDArray[np.float64]: ...
    def partial(
        self,
        records: Records,
        weights: NDArray[np.float64],
        key: bytes,
        shard: int,
        step: int,
        n_threads: int,
    ) -> NDArray[np.int64]: ...
    def weights(self) -> NDArray[np.float64]: ...
    def iterate(self) -> NDArray[np.float64]: ...
    def state(self) -> dict[str, Any]: ...

@final
class ShardedRun:
    def __new__(cls, descent: Descent, source: NoiseSource, n_steps: int) -> ShardedRun: ...
    @property
    def key(self) -> bytes: ...
    @property
    def step(self) -> int: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...
    def advance(self, total: NDArray[np.int64]) -> None: ...

def column_moments(
    X: _Rows,
    *,
    offset: NDArray[np.float64],
    scale: NDArray[np.float64],
    n_threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def clipped_sum_distance(clip: float, n_weights: int, grid: float | None) -> float: ...
def descent_rounding(
    **options: Unpack[_DescentRounding],
) -> float: ...
def solve_crammer_singer(
    X: _Rows,
    y: NDArray[np.int64],
    weights: NDArray[np.float64] | None = None,
    **options: Unpack[_CrammerSinger],
) -> tuple[NDArray[np.float64] | None, dict[str, Any]]: ...
def solve_crammer_singer_parties(
    X: _Rows,
    y: NDArray[np.int64],
    offsets: NDArray[np.int64],
    **options: Unpack[_CrammerSingerParties],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]: ...
def solve_gaussian_margin(
    X: NDArray[np.float64] | NDArray[np.float32],
    target: NDArray[np.int64],
    weights: NDArray[np.float64] | None = None,
    **options: Unpack[_GaussianMargin],
) -> tuple[NDArray[np.float64] | None, float]: ...
def solve_gaussian_margin_batch(
    X: NDArray[np.float64] | NDArray[np.float32],
    target: NDArray[np.int64],
    **options: Unpack[_GaussianMargin],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def solve_smooth_batch(
    X: _Rows,
    y: NDArray[np.int64],
    **options: Unpack[_SmoothBatch],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]: ...
def solve_smooth(
    X: _Rows,
    y: NDArray[np.int64],
    weights: NDArray[np.float64] | None = None,
    **options: Unpack[_Smooth],
) -> tuple[NDArray[np.float64] | None, dict[str, Any]]: ...
def solve_smooth_parties(
    X: _Rows,
    y: NDArray[np.int64],
    offsets: NDArray[np.int64],
    **options: Unpack[_SmoothParties],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]: ...
def projected_sgd(
    X: _Rows,
    y: NDArray[np.int64],
    weights: NDArray[np.float64] | None = None,
    persons: NDArray[np.int64] | None = None,
    **options: Unpack[_ProjectedSgd],
) -> tuple[NDArray[np.float64], dict[str, Any]]: ...
def projected_sgd_parties(
    X: _Rows,
    y: NDArray[np.int64],
    offsets: NDArray[np.int64],
    **options: Unpack[_ProjectedSgdParties],
) -> NDArray[np.float64]: ...
def projected_sgd_orders(
    n_samples: int, n_epochs: int, permutation_seed: int
) -> NDArray[np.uint32]: ...
def projected_sgd_rounding(
    **options: Unpack[_SgdRounding],
) -> float: ...
