r"""The number of runs of a search by random stopping, drawn exactly.

Only fair draws of whole numbers and comparisons of whole numbers are used, so there is no rounding
whose effect on the law would have to be argued. With :math:`\gamma = p/q` the rational number that
the floating-point parameter of the event is:

- geometric: repeat a trial that succeeds with probability p/q until it does;
- logarithmic, :math:`P(k) \propto (1-\gamma)^k / k`: draw a geometric number k and keep it with
  probability 1/k, else begin again. What is kept has probabilities in proportion to
  :math:`\gamma (1-\gamma)^{k-1} / k`;
- Poisson of mean m: the sum of :math:`n = \lceil m \rceil` Poisson numbers of mean
  :math:`\lambda = m/n \le 1`. For each, draw k with probability :math:`2^{-k-1}` and keep it with
  probability :math:`(2\lambda)^k / (2\, k!) \le 1`; what is kept has probabilities in proportion to
  :math:`\lambda^k / k!`.

None of it looks at data, so how long it takes says nothing about them.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

from dpsvm_fast.accounting import RandomStoppingEvent

__all__ = ["number_of_runs"]


def number_of_runs(event: RandomStoppingEvent, source: random.Random) -> int:
    """Draw the number of runs. To be told to nobody.

    Parameters
    ----------
    event : RandomStoppingEvent
        What is charged for them: its law is the one drawn from.
    source : random.Random
        ``random.SystemRandom()``, whose bits are the operating system's; a seeded generator is for
        searches that promise nothing.
    """
    if event.stopping == "poisson":
        mean = Fraction(event.mean)
        n = math.ceil(mean)
        return sum(_small_poisson(mean / n, source) for _ in range(n))
    gamma = Fraction(event.gamma)
    if event.stopping == "geometric":
        return _geometric(gamma, source)
    while True:
        k = _geometric(gamma, source)
        if source.randrange(k) == 0:
            return k


def _bernoulli(p: Fraction, source: random.Random) -> bool:
    """True with probability p."""
    return source.randrange(p.denominator) < p.numerator


def _geometric(p: Fraction, source: random.Random) -> int:
    """Number of trials until the first success."""
    k = 1
    while not _bernoulli(p, source):
        k += 1
    return k


def _small_poisson(mean: Fraction, source: random.Random) -> int:
    """Poisson number of a mean of at most 1."""
    while True:
        k = _geometric(Fraction(1, 2), source) - 1
        if _bernoulli((2 * mean) ** k / (2 * math.factorial(k)), source):
            return k
