"""What is measured, and how often. Everything that a result depends on is here or on its CSV."""

from __future__ import annotations

from dataclasses import dataclass

# Rows used of each data set; None is all. USPS and ISOLET are small, MNIST is cut.
DATA_SETS: dict[str, int | None] = {"usps": None, "isolet": None, "mnist": 20_000}
C_VALUES = (0.005, 0.1, 1.0)

# The solver stops at a certified distance of tol * Delta(relation) to the exact minimiser.
# The first is comparable with what liblinear reaches, the last is the estimator's default.
TARGETS: tuple[tuple[str, float], ...] = (
    ("replace_one", 1e-2),
    ("replace_one", 1e-3),
    ("add_remove", 1e-3),
)
LIBLINEAR_TOL = 1e-6
LIBLINEAR_DEFAULT_TOL = 1e-4
# Of the memory of scikit-learn's LogisticRegression, which does not depend on it.
LBFGS_TOL = 1e-6

# Ours may not have the larger objective by more than this share: else it did not do the work.
OBJECTIVE_SLACK = 1e-6

# A release of a few thousand weights puts its noise on a grid about this much finer than sigma.
NOISE_STEPS = 2.0**28
NOISE_THREADS = (1, 2)
# Of the discrete Gaussian: what a party adds to a sum, in steps.
NOISE_SIGMA = 2**20

BUDGETS: tuple[tuple[float, float], ...] = ((0.1, 1e-5), (1.0, 1e-6), (8.0, 1e-10))

# The promise: at most this many times X, and this many bytes, beyond X itself.
MEMORY_FACTOR = 1.5
MEMORY_ALLOWANCE = 50_000_000
# Large C has the largest working set.
MEMORY_C = 1.0

# Smooth objectives: rows used of each dense set (None is all) beside Adult and two synthetic sparse
# ones, and lambda = 1 / C. Reached when the gradient's norm is this share of what it is at 0.
OBJECTIVE_SETS: dict[str, int | None] = {"usps": None, "mnist": 60_000}
REGULARIZATIONS = (100.0, 10.0, 1.0)
GRADIENT_SHARE = 1e-6
# Aims: times faster than the fastest peer on one thread, and times faster than that on two.
OBJECTIVE_GOALS = (5.0, 1.8)
# A candidate sits out the rounds after its runs took so long together. A peer without the norm
# after so many seconds of searching is given up for all smaller lambdas; the last is to get ready.
ROUNDS_SECONDS, SEARCH_SECONDS, READY_SECONDS = 6.0, 40.0, 60.0
# Rows and columns of the sparse set, and the non-zeros of a row.
TEXT_SHAPE, TEXT_ROW = (100_000, 100_000), 100

# Private fits: the delta, the setting of FedDPDR (2024, section 5: lambda for mean losses), and the
# seconds aimed at.
DELTA = 1e-6
FEDDPDR_ROWS, FEDDPDR_LAMBDA, FEDDPDR_EPSILON = 10_000, 0.01, 0.1
FIT_GOALS = {"closed": 0.05, "joint": 1.0, "large": 2.0, "feddpdr": 0.3}

# Private gradient descent: rows used of each set (80 percent of the small ones), a dense synthetic
# set in the shape of one that is not at hand (rows, columns, classes), storages that a user might
# choose where that is not "dense" alone, and expected batches beside all rows.
DESCENT_SETS = {
    "usps": 7_438,
    "isolet": 1_248,
    "cornell": 661,
    "mnist": 60_000,
}
DESCENT_SYNTHETIC = {
    "har-like": (8_183, 561, 6),
    "covertype-like": (200_000, 54, 7),
    "narrow": (200_000, 30, 2),
}
DESCENT_STORAGES = {"cornell": ("dense", "csr"), "mnist": ("dense", "csr")}
DESCENT_BATCHES = (128, 1024)
# Aims: our private step over our plain one, nanoseconds a weight (and share of the plain step)
# that noise and clipping may cost, and the steps of numpy, JAX and Opacus over our private one.
DESCENT_PRIVATE_GOAL, DESCENT_NOISE_GOAL = 1.3, (6.0, 0.05)
DESCENT_GOALS = {"numpy": 4.0, "jax": 2.0, "opacus": 20.0}
# A peer whose step takes longer than this is measured in so many rounds only.
LONG_STEP_SECONDS, ROUNDS_OF_LONG_STEPS = 0.3, 2
# Forms that hold a gradient for every record are left out where these have more entries than this.
MAX_GRADIENT_ENTRIES = 200_000_000
# Weights of all libraries after some noise-free steps on the first rows agree to this share.
DESCENT_CHECK_ROWS, DESCENT_CHECK_STEPS, DESCENT_AGREEMENT = 500, 5, 1e-3
# Steps whose peak memory is taken, and bytes by which it may grow from the smallest batch to all
# rows and still count as flat.
DESCENT_MEMORY_STEPS, DESCENT_MEMORY_ALLOWANCE = 20, 8_000_000

# PrivateLinearSVC on MNIST, and the seconds aimed at on two threads.
LINEAR_EPSILON, LINEAR_DELTA, LINEAR_GOAL, LINEAR_ROUNDS = 1.0, 1e-5, 5.0, 3

# Poisson-sampled Gaussian sums: sampling rate, steps, epsilons; the delta; the seconds aimed at.
SAMPLING_RATE, SAMPLED_STEPS, SAMPLED_EPSILONS = 128 / 7000, (600, 6000), (1.0, 8.0)
SAMPLED_DELTA, SAMPLED_GOAL = 1e-5, 0.1

# Transformers: rows, columns, and pairs of random features.
TRANSFORMER_ROWS, TRANSFORMER_FEATURES, TRANSFORMER_COMPONENTS = 10_000, (16, 64, 784), 1_000

# Parties: rows of each, columns, classes; Lambda of the mean-form objective; passes of projected
# SGD; and the parties over which a loop of single calls is measured.
PARTIES_SHAPE, PARTIES_REGULARIZATIONS = (50, 784, 10), (0.1, 0.01, 0.001)
PARTIES_EPOCHS, PARTIES_LOOP = (20, 50), 50


@dataclass(frozen=True)
class Plan:
    """Size of a run.

    Parameters
    ----------
    repeats : int
        Interleaved measurements a cell; medians are reported.
    n_threads : int
        Threads of our solver.
    n_draws : int
        Noise values a measurement.
    n_parties : int
        Local fits of one call.
    batch_seconds : float
        Length of one measurement of calls that are too short to time alone.
    max_rows : int or None
        Further cut of every data set.
    C_values : tuple of float
    regularizations : tuple of float
        Lambda of the smooth objectives.
    """

    repeats: int = 7
    n_threads: int = 1
    n_draws: int = 1_000_000
    n_parties: int = 1_000
    batch_seconds: float = 0.05
    max_rows: int | None = None
    C_values: tuple[float, ...] = C_VALUES
    regularizations: tuple[float, ...] = REGULARIZATIONS


def quick(n_threads: int = 1) -> Plan:
    """A run of seconds: shows that everything works, measures nothing worth keeping."""
    return Plan(
        repeats=2,
        n_threads=n_threads,
        n_draws=20_000,
        n_parties=20,
        batch_seconds=0.002,
        max_rows=600,
        C_values=(0.005, 1.0),
        regularizations=(10.0,),
    )
