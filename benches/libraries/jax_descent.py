"""The step in JAX (pip install jax), jitted, in single precision on the processor.

The same loss, clip and noise as ``DescentProblem``, in two formulations: "rank_one" never forms
the gradient of a record, like our own; "per_example" is the textbook's vmap of grad. Both are one
jitted step a call, as training loops are written. "rank_one_loop" compiles a loop around that step,
so that Python is left for many steps like in our own call. A compiled function wants one shape, so
a batch is padded to five standard deviations above its expected size and the rest masked (a larger
one is compiled for when it comes up). Batches are drawn by numpy's generator, faster than a coin a
record in JAX; noise by JAX's default generator. Rows are dense: its sparse matrices are
experimental. Threads are those of the processors that the process may use.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benches.descent_problem import DescentProblem, drawn

# Steps of one call of the compiled loop.
LOOP = 32


def rank_one(clip: float, W: Any, X: Any, y: Any, joins: Any) -> Any:
    """Sum of clipped gradients; those of padding are masked."""
    slopes = jax.nn.softmax(X @ W.T) - jax.nn.one_hot(y, W.shape[0])
    squares = jnp.sum(slopes**2, axis=1) * jnp.sum(X**2, axis=1)
    factors = jnp.minimum(1.0, clip * jax.lax.rsqrt(jnp.maximum(squares, 1e-30))) * joins
    return (slopes * factors[:, None]).T @ X


def per_example(clip: float, W: Any, X: Any, y: Any, joins: Any) -> Any:
    """The same through gradients of single records."""

    def loss(W: Any, x: Any, label: Any) -> Any:
        scores = W @ x
        return jax.nn.logsumexp(scores) - scores[label]

    gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(W, X, y)
    squares = jnp.sum(gradients**2, axis=(1, 2))
    factors = jnp.minimum(1.0, clip * jax.lax.rsqrt(jnp.maximum(squares, 1e-30))) * joins
    return jnp.tensordot(factors, gradients, axes=1)


# What is summed, and steps a call.
FORMULATIONS = {
    "rank_one": (rank_one, 1),
    "per_example": (per_example, 1),
    "rank_one_loop": (rank_one, LOOP),
}


class Stepper:
    """Descends step by step."""

    def __init__(self, problem: DescentProblem, formulation: str) -> None:
        self.problem = problem
        self.X = jnp.asarray(problem.X, dtype=jnp.float32)
        self.y = jnp.asarray(problem.y, dtype=jnp.int32)
        self.rng, self.key = np.random.default_rng(1), jax.random.key(1)
        self.W = jnp.zeros(problem.shape, dtype=jnp.float32)
        gradients, self.chunk = FORMULATIONS[formulation]
        summed = partial(gradients, problem.clip)
        loop = partial(_full if problem.full else _sampled, summed, problem)
        self.loop = jax.jit(loop, donate_argnames=("W", "key"))

    @property
    def weights(self) -> Any:
        """The weights now."""
        return np.asarray(self.W)

    def advance(self, n_steps: int) -> None:
        """Take steps, and wait for the last one."""
        more: dict[str, Any]
        for first in range(0, n_steps, self.chunk):
            count = min(self.chunk, n_steps - first)
            more = {} if self.problem.full else self._batches(count)
            self.W, self.key = self.loop(
                W=self.W, key=self.key, X=self.X, y=self.y, n_steps=count, **more
            )
        self.W.block_until_ready()

    def _batches(self, count: int) -> dict[str, Any]:
        """Padded indices of the batches, and their sizes."""
        problem = self.problem
        drawn_ones = [drawn(self.rng, problem.n_samples, problem.batch) for _ in range(count)]
        sizes = np.zeros(self.chunk, dtype=np.int32)
        sizes[:count] = [len(batch) for batch in drawn_ones]
        indices = np.zeros((self.chunk, max(problem.padded, sizes.max())), dtype=np.int32)
        for place, batch in zip(indices, drawn_ones, strict=False):
            place[: len(batch)] = batch
        return {"indices": indices, "sizes": sizes}


def _moved(problem: DescentProblem, W: Any, total: Any, key: Any) -> Any:
    """The weights after noise and step."""
    if problem.sigma > 0.0:
        total += problem.sigma * jax.random.normal(key, W.shape)
    return W - problem.step * total


def _full(summed: Any, problem: DescentProblem, *, W: Any, key: Any, X: Any, y: Any, n_steps: Any):
    """Steps of all records."""

    def step(_: Any, state: Any) -> Any:
        W, key = state
        key, own = jax.random.split(key)
        return _moved(problem, W, summed(W, X, y, jnp.ones(X.shape[0])), own), key

    return jax.lax.fori_loop(0, n_steps, step, (W, key))


def _sampled(
    summed: Any,
    problem: DescentProblem,
    *,
    W: Any,
    key: Any,
    X: Any,
    y: Any,
    n_steps: Any,
    indices: Any,
    sizes: Any,
) -> Any:
    """Steps of padded batches."""

    def step(i: Any, state: Any) -> Any:
        W, key = state
        key, own = jax.random.split(key)
        batch, joins = indices[i], jnp.arange(indices.shape[1]) < sizes[i]
        return _moved(problem, W, summed(W, X[batch], y[batch], joins), own), key

    return jax.lax.fori_loop(0, n_steps, step, (W, key))
