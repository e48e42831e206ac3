"""dpsvm_fast.noise: arguments, shapes, reproducibility, interrupts and refusal of copies."""

import copy
import decimal
import pickle
import threading

import numpy as np
import pytest

from dpsvm_fast import _core
from dpsvm_fast.noise import (
    discrete_gaussian,
    gamma_ball,
    gaussian,
    gaussian_on_grid,
    symmetric_gaussian,
)
from oracles.signals import FORKS, POSIX, in_child, interrupted

pytestmark = pytest.mark.fresh

GRID = 2.0**-20
BY_SHAPE = {
    "gaussian": lambda shape, random_state=None: gaussian(shape, 1.0, random_state),
    "gaussian_on_grid": lambda shape, random_state=None: gaussian_on_grid(
        shape, 1.0, GRID, random_state
    ),
    "gamma_ball": lambda shape, random_state=None: gamma_ball(shape, 1.0, random_state),
}
by_shape = pytest.mark.parametrize("draw", BY_SHAPE.values(), ids=BY_SHAPE.keys())


@by_shape
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (3, (3,)),
        (np.int32(3), (3,)),
        ((2, 3), (2, 3)),
        ([2, 3, 4], (2, 3, 4)),
        (0, (0,)),
        ((5, 0), (5, 0)),
        ((), ()),
    ],
)
def test_shapes(draw, shape, expected):
    noise = draw(shape)
    assert noise.shape == expected
    assert noise.dtype == np.float64
    assert noise.flags.c_contiguous
    assert noise.flags.writeable


@by_shape
@pytest.mark.parametrize("shape", [2.0, "3", None, True, (2, 2.0), (2, None), {2, 3}])
def test_shape_of_wrong_type_is_a_type_error(draw, shape):
    with pytest.raises(TypeError, match=r"^shape: "):
        draw(shape)


@by_shape
@pytest.mark.parametrize("shape", [-1, (2, -1), 2**63, (2**40, 2**40)])
def test_shape_out_of_range_is_a_value_error(draw, shape):
    with pytest.raises(ValueError, match=r"^shape: "):
        draw(shape)


@by_shape
def test_result_beyond_memory_is_a_memory_error(draw):
    with pytest.raises((MemoryError, ValueError)):
        draw(2**60)


@by_shape
@pytest.mark.parametrize("seed", [1.0, "1", True, np.random.default_rng(0), [1]])
def test_random_state_of_wrong_type(draw, seed):
    with pytest.raises(TypeError, match=r"^random_state: "):
        draw(3, seed)


@by_shape
@pytest.mark.parametrize("seed", [-1, 2**64])
def test_random_state_out_of_range(draw, seed):
    with pytest.raises(ValueError, match=r"^random_state: "):
        draw(3, seed)


@by_shape
def test_seed_reproduces_and_its_absence_does_not(draw):
    for seed in (0, np.uint64(2**64 - 1)):
        assert np.array_equal(draw(1000, seed), draw(1000, seed))
    assert not np.array_equal(draw(1000, 1), draw(1000, 2))
    assert not np.array_equal(draw(1000), draw(1000))


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf, 5e-324, 1e308, 10**400])
def test_sigma_out_of_range(sigma):
    for draw in (
        lambda: gaussian(3, sigma),
        lambda: gaussian_on_grid(3, sigma, GRID),
        lambda: symmetric_gaussian(3, sigma),
    ):
        with pytest.raises(ValueError, match=r"^sigma: "):
            draw()


@pytest.mark.parametrize("value", ["1", None, True, 1j, decimal.Decimal(1), [1.0]])
def test_scales_of_wrong_type(value):
    with pytest.raises(TypeError, match=r"^sigma: "):
        gaussian(3, value)
    with pytest.raises(TypeError, match=r"^grid: "):
        gaussian_on_grid(3, 1.0, value)
    with pytest.raises(TypeError, match=r"^beta: "):
        gamma_ball(3, value)


@pytest.mark.parametrize("beta", [0.0, -1.0, np.nan, np.inf, 5e-324, 1e305])
def test_beta_out_of_range(beta):
    with pytest.raises(ValueError, match=r"^beta: "):
        gamma_ball(3, beta)


@pytest.mark.parametrize("grid", [0.0, -1.0, 0.3, np.nan, np.inf, 2.0**-47, 2.0**21])
def test_grid_out_of_range(grid):
    with pytest.raises(ValueError, match=r"^grid: "):
        gaussian_on_grid(3, 1.0, grid)


def test_sigma_zero_gives_exact_zeros():
    assert np.array_equal(gaussian((2, 3), 0), np.zeros((2, 3)))
    assert np.array_equal(gaussian_on_grid((2, 3), 0.0, 1.0), np.zeros((2, 3)))
    assert np.array_equal(symmetric_gaussian(3, 0), np.zeros((3, 3)))


@pytest.mark.parametrize("grid", [2.0**-46, 2.0**-20, 1.0, 2.0**20])
def test_grid_noise_consists_of_multiples(grid):
    multiples = gaussian_on_grid(10_000, 1.0, grid, 5) / grid
    assert np.array_equal(multiples, np.rint(multiples))


@pytest.mark.parametrize("d", [0, 1, 7])
def test_symmetric_gaussian_is_symmetric(d):
    noise = symmetric_gaussian(d, 1.0)
    assert noise.shape == (d, d)
    assert np.array_equal(noise, noise.T)


@pytest.mark.parametrize(("d", "error"), [(-1, ValueError), (2.0, TypeError), (True, TypeError)])
def test_symmetric_gaussian_dimension(d, error):
    with pytest.raises(error, match=r"^d: "):
        symmetric_gaussian(d, 1.0)


def test_gamma_ball_of_one_entry_has_both_signs():
    signs = {float(np.sign(gamma_ball(1, 1.0, seed)[0])) for seed in range(64)}
    assert signs == {-1.0, 1.0}


def test_source_says_whether_it_is_seeded():
    assert _core.NoiseSource(0).seeded
    assert not _core.NoiseSource().seeded
    assert not _core.NoiseSource(None).seeded


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"]
)
def test_source_cannot_be_copied(duplicate):
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        duplicate(_core.NoiseSource(1))


@pytest.mark.proof("grid_gaussian")
def test_threads_sharing_a_source_never_share_noise():
    source = _core.NoiseSource(3)
    arrays = []

    def work():
        for _ in range(50):
            arrays.append(source.gaussian(100, 1.0, 1))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = np.concatenate(arrays)
    assert len(values) == 40_000
    assert len(np.unique(values)) == len(values)


@POSIX
@pytest.mark.parametrize(
    "method", [("gaussian_on_grid", 1.0, GRID), ("gaussian", 1.0), ("gamma_ball", 1.0)]
)
def test_a_signal_ends_a_long_draw(method):
    name, *scales = method

    source = _core.NoiseSource()
    # Ten seconds and 8 GB if it went on to the end; the interrupt comes after a percent of it.
    late = interrupted(lambda: getattr(source, name)(1_000_000_000, *scales, 2), 0.1)
    assert late < 3.0
    assert getattr(source, name)(10, *scales, 2).shape == (10,)


@pytest.mark.proof("grid_gaussian")
@FORKS
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_refuses_the_source_of_its_parent():
    source = _core.NoiseSource()
    source.gaussian(100_000, 1.0, 2)  # the thread pool exists before the fork

    def draws() -> bytes:
        with pytest.raises(RuntimeError):
            source.gaussian(10, 1.0, 1)
        return repr(_core.NoiseSource().gaussian(100_000, 1.0, 2).shape).encode()

    assert in_child(draws) == b"(100000,)"
    assert source.gaussian(10, 1.0, 1).shape == (10,)


@pytest.mark.proof("discrete_gaussian")
def test_discrete_gaussian_arguments_and_seeds():
    drawn = discrete_gaussian((2, 3), 1000, 7)
    assert drawn.shape == (2, 3)
    assert drawn.dtype == np.int64
    assert (drawn == discrete_gaussian((2, 3), 1000, 7)).all()
    assert (discrete_gaussian(64, 2**20) != discrete_gaussian(64, 2**20)).any()
    assert discrete_gaussian(0, 1).shape == (0,)
    for bad in (0, -1, 2**40, 2**64):
        with pytest.raises(ValueError, match=r"^sigma: "):
            discrete_gaussian(3, bad)
    for bad in (1.0, "1", None, True):
        with pytest.raises(TypeError, match=r"^sigma: "):
            discrete_gaussian(3, bad)
    with pytest.raises(ValueError, match=r"^shape: "):
        discrete_gaussian(-1, 4)
    for sigma in (0, 2**40):
        with pytest.raises(ValueError, match="sigma"):
            _core.NoiseSource(1).discrete_gaussian(3, sigma)


@pytest.mark.proof("discrete_gaussian")
@pytest.mark.parametrize("sigma", [1, 33, 2**20])
def test_discrete_gaussian_does_not_depend_on_threads(sigma):
    one, two = (_core.NoiseSource(5).discrete_gaussian(50_000, sigma, n) for n in (1, 2))
    assert (one == two).all()
