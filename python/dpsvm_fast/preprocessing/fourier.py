"""Random Fourier features: a kernel for linear models, at no cost in privacy."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import _validation as check
from dpsvm_fast.estimators._training import FEATURE_FACTS
from dpsvm_fast.estimators._training_data import checked_rows, checked_training_rows
from dpsvm_fast.mechanisms.fourier import (
    KERNELS,
    LARGEST_GAMMA,
    MOST_COMPONENTS,
    SMALLEST_GAMMA,
    FourierFeatures,
    structure_of,
)

__all__ = ["RandomFourierFeatures"]


class RandomFourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Random Fourier features with rows of norm exactly 1.

    .. math:: \phi(x) = D^{-1/2} (\cos\langle w_1, x\rangle, \dots, \cos\langle w_D, x\rangle,
        \sin\langle w_1, x\rangle, \dots, \sin\langle w_D, x\rangle)

    with frequencies drawn from the spectrum of the kernel, so that :math:`\langle \phi(x),
    \phi(x') \rangle` is an unbiased estimate of it with an error of about :math:`D^{-1/2}`.

    Parameters
    ----------
    n_components : int, default=1000
        Number D of frequencies, at most 2**20, each of which gives a cosine and a sine: 2 D
        features.
    gamma : float, default=1.0
        Scale of the kernel, 1e-30 <= gamma <= 1e30.
    kernel : {"rbf", "laplacian"}, default="rbf"
        ``exp(-gamma ||x - x'||^2)`` or ``exp(-gamma ||x - x'||_1)``.
    orthogonal : bool, default=True
        Whether frequencies of "rbf" are orthogonal in blocks, which makes the error smaller: by
        random rotations up to 64 features, above by products of random signs and Hadamard matrices,
        which are faster. Those of "laplacian" are always independent.
    random_state : int or None, default=None
        Seed of the frequencies, 0 <= random_state < 2**64; None draws one. It is public either way
        and kept in ``seed_``: there is no noise that it could reveal.
    n_threads : int or None, default=None
        Threads; None is all cores that this process may use. Never changes the result.

    Attributes
    ----------
    seed_ : int
        The public seed.
    structure_ : {"independent", "orthogonal", "fast"}
        How the frequencies were drawn.
    random_weights_ : ndarray of shape (n_components, n_features)
        The frequencies; computed anew by every access.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Notes
    -----
    Guarantees: ``fit`` reads the number and names of the features only, and everything published is
    independent of the rows: it costs no budget. Features of a row are a function of that row alone,
    and have norm 1 up to rounding (a few 1e-16 for double and 1e-7 for single precision), whatever
    the row is; a mechanism that follows with ``data_norm=1`` shortens what exceeds it. Proof:
    docs/proofs/random_features.md, "Feature map". That ``gamma`` was not chosen by looking at
    private data is up to the caller.

    Time is of the order of n d D, or n D log d for the products of signs. The result is dense, n x
    2 D numbers in the precision of X: `PrivateKernelSVC` needs a block of it at a time.

    References
    ----------
    .. [1] Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007.
    .. [2] Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, "Orthogonal random features",
       NIPS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast import RandomFourierFeatures
    >>> X = np.array([[0.0, 0.0], [0.3, 0.1], [2.0, 2.0]])
    >>> features = RandomFourierFeatures(5000, random_state=0).fit_transform(X)
    >>> features.shape
    (3, 10000)
    >>> kernel = np.exp(-np.square(X[:, None] - X).sum(axis=2))
    >>> bool(np.abs(features @ features.T - kernel).max() < 0.05)
    True
    """

    # Nothing that this transformer does depends on more than one row.
    _learns_from_rows = False

    seed_: int
    structure_: str
    n_features_in_: int
    _features: FourierFeatures

    def __init__(
        self,
        n_components: int = 1000,
        gamma: float = 1.0,
        *,
        kernel: str = "rbf",
        orthogonal: bool = True,
        random_state: int | None = None,
        n_threads: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.kernel = kernel
        self.orthogonal = orthogonal
        self.random_state = random_state
        self.n_threads = n_threads

    def fit(self, X: Any, y: Any = None) -> RandomFourierFeatures:
        """Draw the frequencies; of X only the number and names of the features matter.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.
        y : ignored

        Returns
        -------
        RandomFourierFeatures
            This transformer.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range.
        ValueError
            X is invalid; the text does not quote it.
        """
        D = check.check_integer("n_components", self.n_components, 1, MOST_COMPONENTS)
        gamma = check.check_real("gamma", self.gamma, low=SMALLEST_GAMMA, high=LARGEST_GAMMA)
        kernel = check.check_option("kernel", self.kernel, KERNELS)
        orthogonal = check.check_bool("orthogonal", self.orthogonal)
        seed = check.check_random_state(self.random_state)
        check.check_n_threads(self.n_threads)
        # Validation writes what it learns about X onto the copy: until the map is drawn this object
        # stays as it is.
        probe = copy.copy(self)
        X = checked_training_rows(probe, X)
        features = FourierFeatures(
            n_features=X.shape[1],
            n_components=D,
            gamma=gamma,
            kernel=kernel,
            structure=structure_of(kernel, X.shape[1], orthogonal=orthogonal),
            centre="none",
            seed=_core.NoiseSource(None).public_seed() if seed is None else seed,
        )
        # Memory that is lacking for the frequencies is lacking now.
        features.map()
        for name in FEATURE_FACTS:
            self.__dict__.pop(name, None)
        facts = {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}
        self.__dict__.update(
            facts, _features=features, seed_=features.seed, structure_=features.structure
        )
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Features of rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, 2 n_components)
            Of the precision of X.
        """
        check_is_fitted(self)
        threads = check.check_n_threads(self.n_threads)
        X = checked_rows(self, X)
        drawn = self._features.map()
        if sparse.issparse(X):
            return drawn.transform_csr(X.data, X.indices, X.indptr, X.shape[1], threads)
        return drawn.transform_dense(np.ascontiguousarray(X), threads)

    @property
    def random_weights_(self) -> NDArray[np.float64]:
        """The frequencies, shape (n_components, n_features)."""
        check_is_fitted(self, "seed_")
        return self._features.map().weights()

    @property
    def _n_features_out(self) -> int:
        """What the names of the features are counted by."""
        return 2 * self._features.n_components

    def __sklearn_is_fitted__(self) -> bool:
        """Whether frequencies have been drawn."""
        return "seed_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are accepted; precision is kept."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
