"""Events in the vocabulary of the ``dp-accounting`` library, for checking with its accountants.

What is exported is right in each of that library's accountants when they are made for its relation
``ADD_OR_REMOVE_ONE``, also for events of ``replace_one``: a Gaussian event is exported with its
sigma over the distance of neighbours under *its own* relation. (With bare noise multipliers and
``REPLACE_ONE``, two accountants of that library differ by a factor of two; google/
differential-privacy #378.) What the vocabulary cannot say becomes an ``UnsupportedDpEvent``, which
every accountant refuses.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dpsvm_fast.accounting.totals import choices, of_events
from dpsvm_fast.certificates.events import (
    ParallelEvent,
    PrivacyEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
)
from dpsvm_fast.rounding import div_down, fraction_up, mul_up
from dpsvm_fast.validation import check_items

SHAPES = {"geometric": 1.0, "logarithmic": 0.0, "poisson": math.inf}

UNSUPPORTED = {"type": "UnsupportedDpEvent"}


def dp_accounting_tree(events: Iterable[PrivacyEvent]) -> dict[str, Any]:
    r"""Return events as plain dictionaries in the vocabulary of ``dp-accounting``.

    Parameters
    ----------
    events : iterable of PrivacyEvent
        Events of one neighbouring relation.

    Returns
    -------
    dict
        ``"type"`` is the name of a class in ``dp_accounting.dp_event``, the rest are its arguments.
        For that library's relation ``ADD_OR_REMOVE_ONE``, whatever the events' own is.

    Notes
    -----
    A pure event becomes zCDP with :math:`\rho = \epsilon^2 / 2`, because Laplace noise, the only
    pure event that is known for all relations there, loses less than others do. Sampled sums under
    ``replace_one``, approximate, distance and most objective events, parallel branches and
    alternatives of which none covers all others become ``UnsupportedDpEvent``. Random stopping is
    known to the RDP accountant only, and so is zCDP.

    Examples
    --------
    >>> from dpsvm_fast.accounting import dp_accounting_tree
    >>> from dpsvm_fast.certificates import GaussianEvent
    >>> dp_accounting_tree([GaussianEvent(8.0, 2.0, "replace_one")])
    {'type': 'GaussianDpEvent', 'noise_multiplier': 4.0}
    """
    counts = Counter(check_items("events", events, "events of releases"))
    # Raises what any composition of two relations raises.
    of_events(counts)
    trees = [_times(_tree(event), count) for event, count in counts.items()]
    if not trees:
        return {"type": "NoOpDpEvent"}
    return trees[0] if len(trees) == 1 else {"type": "ComposedDpEvent", "events": trees}


def dp_accounting_event(events: Iterable[PrivacyEvent]) -> Any:
    """Return events as an event of ``dp-accounting``, which must be installed.

    Parameters
    ----------
    events : iterable of PrivacyEvent
        Events of one neighbouring relation.

    Returns
    -------
    dp_accounting.DpEvent
        For that library's relation ``ADD_OR_REMOVE_ONE``.

    Raises
    ------
    ImportError
        The library is not installed.

    Examples
    --------
    >>> from dpsvm_fast.accounting import dp_accounting_event
    >>> from dpsvm_fast.certificates import GaussianEvent
    >>> event = GaussianEvent(8.0, 2.0, "replace_one")
    >>> dp_accounting_event([event])  # doctest: +SKIP
    GaussianDpEvent(noise_multiplier=4.0)
    """
    tree = dp_accounting_tree(events)
    try:
        library = importlib.import_module("dp_accounting.dp_event")
    except ImportError as error:
        raise ImportError(
            "this needs dp-accounting, which is not installed: pip install dp-accounting"
        ) from error
    return _build(library, tree)


def _build(library: Any, tree: Mapping[str, Any]) -> Any:
    """Make an event of the other library."""
    fields = {name: value for name, value in tree.items() if name != "type"}
    if "event" in fields:
        fields["event"] = _build(library, fields["event"])
    if "events" in fields:
        fields["events"] = [_build(library, inner) for inner in fields["events"]]
    return getattr(library, tree["type"])(**fields)


def _times(tree: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the event ``count`` times."""
    return tree if count == 1 else {"type": "SelfComposedDpEvent", "event": tree, "count": count}


def _tree(event: PrivacyEvent) -> dict[str, Any]:
    """Return one event as a tree."""
    totals = of_events([event])
    match event:
        case ParallelEvent():
            # The branch that covers all others, if there is one.
            whole = choices(totals)
            covering = (b for b in event.branches if whole[0].within(of_events(b)))
            branch = next(covering, None) if len(whole) == 1 else None
            return dict(UNSUPPORTED) if branch is None else dp_accounting_tree(branch)
        case RandomStoppingEvent():
            return {
                "type": "RepeatAndSelectDpEvent",
                "event": dp_accounting_tree(event.base),
                "mean": event.mean,
                "shape": SHAPES[event.stopping],
            }
        case SubsampledGaussianEvent(sampling_rate=rate) if rate < 1.0:
            if event.adjacency == "replace_one":
                # Only a few accountants there know these.
                return dict(UNSUPPORTED)
            noise = {"type": "GaussianDpEvent", "noise_multiplier": event.noise_multiplier}
            step = {"type": "PoissonSampledDpEvent", "sampling_probability": rate, "event": noise}
            return _times(step, event.n_steps)
    if totals.mu_squared:
        return {"type": "GaussianDpEvent", "noise_multiplier": div_down(1.0, totals.mu)}
    if totals.rho:
        return {"type": "ZCDpEvent", "rho": fraction_up(totals.rho), "xi": 0.0}
    if totals.pure and not totals.leaks:
        epsilon = totals.pure_epsilon
        return {"type": "ZCDpEvent", "rho": mul_up(mul_up(epsilon, epsilon), 0.5), "xi": 0.0}
    return dict(UNSUPPORTED)
