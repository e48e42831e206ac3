"""No noise twice: sources, calls, threads and processes share no 64-bit word.

Among n independent 64-bit words a repetition has probability below n^2 / 2^65: 1e-9 for N words.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dpsvm_fast import _core

pytestmark = [pytest.mark.statistical, pytest.mark.fresh]

ALPHA = 1e-6
N = 200_000
SCRIPT = """
import sys
import numpy as np
from dpsvm_fast import _core
source = _core.NoiseSource()
words = np.array([source.public_seed() for _ in range({n})], dtype=np.uint64)
sys.stdout.buffer.write(words.tobytes())
"""


def words(source, n):
    return np.array([source.public_seed() for _ in range(n)], dtype=np.uint64)


def repeats(arrays):
    values = np.concatenate(arrays)
    return len(values) - len(np.unique(values))


def test_false_alarms_are_rare_enough():
    assert N**2 / 2**65 < ALPHA


@pytest.mark.proof("grid_gaussian")
def test_no_word_twice_in_processes_threads_and_sources():
    n = N // 8
    processes = [
        subprocess.Popen([sys.executable, "-c", SCRIPT.format(n=n)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    shared = _core.NoiseSource()
    with ThreadPoolExecutor(4) as pool:
        arrays = list(pool.map(words, [shared] * 4, [n] * 4))
    arrays += [words(_core.NoiseSource(), n) for _ in range(2)]
    for process in processes:
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        arrays.append(np.frombuffer(output, dtype=np.uint64))
    assert sum(map(len, arrays)) == N
    assert repeats(arrays) == 0
    # Negative control: one word of another array.
    assert repeats([*arrays, arrays[0][:1]]) == 1


@pytest.mark.proof("grid_gaussian")
@pytest.mark.parametrize("method", ["gaussian", "gamma_ball"])
def test_no_value_twice_in_one_array(method):
    """Values of the fast Gaussian have at least 52 random bits, and a layer on top of them."""
    values = getattr(_core.NoiseSource(2), method)(N, 1.0, 2)
    assert repeats([values]) == 0
    assert repeats([values, values[-1:]]) == 1


@pytest.mark.proof("grid_gaussian")
def test_words_are_uniform():
    """Each of the 64 bits of `public_seed` is fair."""
    x = words(_core.NoiseSource(4), N // 8)
    z = 5.68  # exceeded by one of 64 fair bits with probability below 64 * 1.4e-8 = ALPHA
    for bit in range(64):
        ones = int(np.sum(x >> np.uint64(bit) & np.uint64(1)))
        assert abs(2 * ones - len(x)) < z * len(x) ** 0.5
    biased = x | (x >> np.uint64(5) & x >> np.uint64(4) & x >> np.uint64(3)) & np.uint64(1)
    ones = int(np.sum(biased & np.uint64(1)))
    assert abs(2 * ones - len(x)) > z * len(x) ** 0.5
