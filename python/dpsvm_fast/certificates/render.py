"""Statements as text for people, wrapped for a terminal."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from html import escape
from typing import TYPE_CHECKING

from dpsvm_fast.certificates.words import ROWS_OF_PERSON

if TYPE_CHECKING:
    from dpsvm_fast.certificates.events import PrivacyEvent
    from dpsvm_fast.certificates.releases import (
        Descent,
        LastIterate,
        Noise,
        ObjectiveNoise,
        ReleasePart,
        SecureRound,
        Sensitivity,
    )
    from dpsvm_fast.certificates.statement import (
        FederatedStatement,
        PrivacyStatement,
        Statement,
    )


# A privacy statement as text for people, wrapped for a terminal.


WIDTH = 88
# Above the first epsilon a factor is not written out; above the second it is almost vacuous.
LARGEST, MEANINGFUL = 100.0, 10.0

CHECK = "To check the numbers: save to_json() as a file and run dpsvm-fast verify FILE"

ALONE = (
    "Other releases from the same rows are not covered, nor is model selection by scores on them, "
    "such as GridSearchCV."
)
STEPS_BEFORE = "Earlier steps of a Pipeline are not covered: total_privacy covers all steps."


Sections = tuple[tuple[str, tuple[str, ...]], ...]


def page(statement: Statement) -> str:
    """Return a statement of any kind for people, wrapped for a terminal."""
    bound = (
        f"epsilon = {statement.epsilon:g}, delta = {statement.delta:g} for data sets that differ "
        f"{statement.difference}"
    )
    head, promise = "PRIVATE", statement.promise(bound)
    if not statement.private:
        head, what = "NOT PRIVATE", statement.SUBJECT
        promise = (
            f"This {what} is not private. {statement.NOISE} has the size that would give {bound}."
        )
    lines = [f"{statement.TITLE}: {head}", "=" * WIDTH, *paragraphs(promise)]
    for name, items in (
        ("Why it is not private", statement.not_private_reasons),
        *statement.sections,
        ("Assumed public", statement.assumed_public),
        ("Not covered", statement.caveats),
    ):
        if items:
            lines += ["", name, *bullets(items)]
    lines += ["", *paragraphs(f"Proof: {statement.theorem}"), *paragraphs(statement.CHECK)]
    return "\n".join([*lines, f"dpsvm_fast {statement.library_version}"])


def notebook(text: str) -> str:
    """Return prose as HTML: title and promise, and sections that open at a click.

    Parameters
    ----------
    text : str
        As in :func:`page`.
    """
    title, *blocks = text.replace("\n" + "=" * WIDTH, "\n").split("\n\n")
    parts = [f"<strong>{escape(title)}</strong>"]
    for block in blocks or [""]:
        name, *lines = block.strip("\n").split("\n")
        if any(line.startswith("  - ") for line in lines):
            # Lines with deeper indentation continue.
            joined = re.sub(r"\n {4,}", " ", "\n".join(lines))
            items = "".join(f"<li>{escape(line[4:])}</li>" for line in joined.split("\n"))
            parts.append(f"<details><summary>{escape(name)}</summary><ul>{items}</ul></details>")
        else:
            parts.append(f"<p>{escape(' '.join([name, *lines]))}</p>")
    return f"<div>{''.join(parts)}</div>"


def promise_of_fit(statement: PrivacyStatement, bound: str) -> str:
    """Return the guarantee in a few sentences."""
    what = "evaluation" if statement.mechanism == "private_evaluation" else "fit"
    several = "The unit is a person with all their rows, however many."
    if statement.unit == "row":
        several = _several(statement, OF_ROWS)
    return (
        f"This {what} is differentially private with {bound}. "
        f"{odds(statement.epsilon, statement.delta)} Anything computed from the release alone "
        f"has the same guarantee. {several} {ALONE} {STEPS_BEFORE}"
    )


# The number of units of one person for which a statement shows epsilon, and its words for them.
OF_ROWS, OF_PARTIES = (10, "{} rows"), (2, "rows at {} parties")
# Kinds of events whose cost for a person with several rows is computed at once.
QUICK = ("gaussian", "pure", "zcdp", "distance")


def _several(statement: Statement, units: tuple[int, str]) -> str:
    """Return the guarantee of a person who owns several units."""
    n, many = units
    asked = f"see privacy_.for_group(m) for {many.format('m')}"
    if any(event.tag not in QUICK for event in statement.events):
        return f"A person with {many.format('several')} gets weaker protection: {asked}."
    epsilon, _ = statement.for_group(n)
    return f"A person with {many.format(n)} is protected at epsilon = {epsilon:.3g}: {asked}."


def odds(epsilon: float, delta: float) -> str:
    """Return one sentence on what epsilon and delta mean."""
    factor = f"e^{epsilon:g} = {math.exp(epsilon):.3g}" if epsilon < LARGEST else f"e^{epsilon:g}"
    rest = f", plus {delta:g}" if delta else ""
    weak = " That is a very weak guarantee." if epsilon > MEANINGFUL else ""
    return (
        "The probability of any outcome differs between two such data sets by at most a factor "
        f"{factor}{rest}.{weak}"
    )


def derivation_of_fit(statement: PrivacyStatement) -> tuple[str, ...]:
    """Derive the noise from the settings, number by number."""
    s, noise = statement.sensitivity, statement.noise
    lines = describe_parts(statement)
    if s is None or noise is None:
        return lines
    return lines + _of_weights(statement, s, noise)


def _of_weights(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> tuple[str, ...]:
    """Derive the noise inside the objective and that on the weights."""
    inside, source = statement.objective, statement.random_source
    intercept = (
        f", with the constant feature {s.intercept_scaling:g}: {s.row_norm:.6g}"
        if s.intercept_scaling
        else ""
    )
    rows = f"rows clipped to norm {s.data_norm:g}{intercept}"
    name = "training" if statement.parts else statement.mechanism.replace("_", " ")
    if inside is not None:
        extra = inside.extra_regularization
        added = f" ({extra:.6g} of it added for privacy)" if extra else ""
        return (
            f"{name}, loss {_loss(statement.loss, inside)}, regularization "
            f"{inside.regularization:.6g}{added}; {rows}",
            *_inside(inside, source, "person" if statement.unit == "person" else "row"),
            f"training stops at a gradient of norm {inside.gradient_tol:.6g}, at most "
            f"{s.solver_radius:.6g} from the exact minimiser: sensitivity 2 x "
            f"{s.solver_radius:.6g}; rounding {s.rounding:.6g}; total {s.total:.6g}",
            f"covered by {_law(noise)}, {drawn(noise, source)}, using the remaining epsilon and "
            "delta",
        )
    factor = "" if s.relation_factor == 1 else "2 x "
    run = statement.descent
    if run is not None:
        return (
            f"{name}, loss {statement.loss}, C = {s.C:g}; {rows}",
            _descent(run, s, statement.unit),
            f"{_law(noise)}, {drawn(noise, source)}",
        )
    of_person = ", the losses of a person weighted to a total of at most 1"
    return (
        f"{name}, loss {statement.loss}, C = {s.C:g}; {rows}"
        f"{of_person if statement.unit == 'person' else ''}",
        f"sensitivity of the exact minimiser: {factor}C x {s.lipschitz:.6g} x {s.row_norm:.6g} "
        f"= {s.exact:.6g}; solver error 2 x {s.solver_radius:.6g}; rounding {s.rounding:.6g}; "
        f"total {s.total:.6g}",
        f"{_law(noise)}, {drawn(noise, source)}{_repeated(statement)}",
    )


def _repeated(statement: PrivacyStatement) -> str:
    """Say how often weights were released, if more than once."""
    times = len(statement.events) - len(statement.parts)
    if times <= 1:
        return ""
    return f"; {times} such releases, each regularised towards the one before"


# Later rows of a person are left out where rounding has to be bounded beforehand.
FIRST = {"row": "", "person": f" with at most their first {ROWS_OF_PERSON} rows each"}


def _descent(run: Descent, s: Sensitivity, unit: str) -> str:
    """Derive the sensitivity of projected SGD."""
    which = {"last": "its last iterate", "uniform": "the mean of its iterates"}.get(
        run.average, "the weighted mean of its iterates"
    )
    return (
        f"projected SGD, {run.n_epochs} passes in batches of {run.batch_size} over {run.n_samples} "
        f"{unit}s{FIRST[unit]}, radius {run.radius:.6g} ({run.projection}): sensitivity of {which} "
        f"{s.exact:.6g}; rounding errors 2 x {s.solver_radius:.6g}; grid {s.rounding:.6g}; total "
        f"{s.total:.6g}"
    )


def _inside(inside: ObjectiveNoise, source: str, owner: str) -> tuple[str, ...]:
    """Describe the noise in the objective and the guarantee of the exact minimiser."""
    bounds = (
        f"one {owner} changes the objective's gradient by at most {inside.lipschitz:.6g} x "
        f"{inside.row_norm:.6g} and its curvature by at most {inside.curvature:.6g} x "
        f"{inside.row_norm:.6g}^2, curvature ratio {inside.curvature_ratio:.6g}"
    )
    price = ""
    if inside.jacobian is not None and inside.sigma is not None:
        price = f", of which {inside.jacobian:.6g} is for curvature and several rows"
    elif inside.jacobian is not None:
        price = (
            f", of which the change of curvature costs {inside.jacobian:.6g}"
            if inside.jacobian
            else ", none of it for the change of curvature"
        )
    return (
        bounds,
        f"{_law(inside, 'B', 'linear coefficients')} inside the objective, "
        f"{drawn(inside, source)}: the exact minimiser has epsilon = {inside.epsilon:.6g}, "
        f"delta = {inside.delta:.6g}{price}",
    )


def _loss(name: str, inside: ObjectiveNoise) -> str:
    """Return the loss with its parameters."""
    if name == "logistic":
        return name
    return f"{name} (smoothing {inside.smoothing:g}, margin {inside.margin:g})"


def _law(
    noise: Noise | ObjectiveNoise | ReleasePart, name: str = "b", what: str = "weights"
) -> str:
    """Describe distribution and scale."""
    numbers = f"{' x '.join(map(str, noise.shape))} {what}"
    if noise.distribution == "gaussian":
        return f"Gaussian noise, sigma = {noise.sigma:.6g} on each of {numbers}"
    return (
        f"noise with density ~ exp(-beta ||{name}||), beta = {noise.beta:.6g}, on the vector "
        f"{name} of {numbers}"
    )


def paragraphs(text: str) -> list[str]:
    """Return the text wrapped to the width."""
    return textwrap.wrap(text, WIDTH)


def bullets(items: tuple[str, ...]) -> list[str]:
    """Return items wrapped to the width, each with a dash."""
    return [
        line
        for item in items
        for line in textwrap.wrap(item, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    ]


# The noisy sums of a release as text for people.


SOURCES = {
    "operating_system": "a cryptographic stream keyed by the operating system",
    "seed": "a stream keyed by a seed",
}


def describe_parts(statement: PrivacyStatement) -> tuple[str, ...]:
    """Describe each sum: its sensitivity, its noise and its cost."""
    parts = statement.parts
    if not parts:
        return ()
    name = statement.mechanism.replace("_", " ")
    head = name if statement.loss == "none" else f"{name}, loss {statement.loss}"
    # Identical runs of several calls are described once.
    runs = Counter(parts)
    if len(runs) > 1:
        head += f"; noisy sums for {_listed([part.name for part in runs])}, in this order"
    shares = _shares(statement.events)
    lines = [head]
    for part, count in runs.items():
        at = parts.index(part)
        price = shares[at] if at < len(shares) else ""
        often = f"{count} times " if count > 1 else ""
        each = "" if part.n_steps == 1 else " in every sum" if part.factor else " in every step"
        noise = _law(part, what="numbers") + each
        what = f"{_sums(part, statement.unit)}; {_bound(part, statement.unit)}"
        lines.append(f"{often}{part.name}: {what}; {noise}{price}")
        if part.last_iterate is not None:
            lines.append(_last_iterate(part, part.last_iterate, statement.unit))
    # Facts common to all parts are stated once.
    return (*lines, *(f"noise {sampler}" for sampler in _samplers(parts, statement.random_source)))


def _samplers(parts: tuple[ReleasePart, ...], random_source: str) -> tuple[str, ...]:
    """Say how the noise was drawn, with all grids together."""
    grids = dict.fromkeys(f"{part.grid:.6g}" for part in parts if part.sampler == "exact_grid")
    if len(grids) > 1 and all(part.sampler == "exact_grid" for part in parts):
        return (f"drawn exactly on grids of {_listed(list(grids))}, from {SOURCES[random_source]}",)
    return tuple(dict.fromkeys(drawn(part, random_source) for part in parts))


def _sums(part: ReleasePart, unit: str) -> str:
    """Describe the sums: of what, how often, over which records."""
    total = part.what
    if not total.removeprefix("the ").startswith("sum"):
        total = f"the sum of {total}"
    if part.n_steps == 1 and part.sampling_rate == 1.0:
        return total
    if part.factor:
        return (
            f"{part.n_steps} sums, one per period, each {total}; a {unit} enters the sum of its "
            "period and, with decreasing weight, those after it"
        )
    steps = "1 step" if part.n_steps == 1 else f"{part.n_steps} steps"
    if part.sampling_rate == 1.0:
        return f"{steps} over all rows, each {total}"
    return (
        f"{steps}, each on a fresh Poisson sample at rate {part.sampling_rate:.6g} per {unit}: "
        f"{total}"
    )


def _bound(part: ReleasePart, unit: str) -> str:
    """Say by how much the sums of neighbours can differ."""
    bound = f"one {unit} contributes a norm of at most {part.clip_norm:.6g}"
    if part.rounding:
        bound += f", {part.contribution:.6g} with rounding"
    if part.relation_factor != 1.0:
        moved = part.relation_factor * part.contribution
        bound += f", so replacing one moves the sum by at most {moved:.6g}"
    return bound


def _last_iterate(part: ReleasePart, last: LastIterate, unit: str) -> str:
    """Say why fewer steps are charged than are made."""
    return (
        f"only the last iterate is released: a step of size {last.learning_rate:.6g} contracts "
        f"distances by a factor {last.contraction:.6g} (strong convexity "
        f"{last.regularization:.6g}, smoothness {last.smoothness:.6g} for up to {last.max_records} "
        f"{unit}s{FIRST[unit]}, rows of norm {last.row_norm:.6g}), so {part.n_steps} steps count "
        f"as {last.effective_steps:.6g}"
    )


def _shares(events: tuple[PrivacyEvent, ...]) -> list[str]:
    """Return the share of each event in the budget, if all events are of one additive kind."""
    if len(events) < 2:
        return [""] * len(events)
    squares = [event.mu**2 for event in events if event.mu is not None]
    if len(squares) == len(events):
        return [
            f"; {100.0 * square / sum(squares):.3g}% of the budget in mu^2" for square in squares
        ]
    prices = [
        f"; {event.price} = {getattr(event, event.price):.6g}" if event.price else ""
        for event in events
    ]
    pure = all(event.price == "epsilon" for event in events)
    return [f"{price} of the sum" for price in prices] if pure else prices


def drawn(noise: Noise | ObjectiveNoise | ReleasePart, random_source: str) -> str:
    """Describe sampler and source."""
    sampler = (
        f"drawn exactly on a grid of {noise.grid:.6g}"
        if noise.sampler == "exact_grid"
        else "drawn in floating point"
    )
    return f"{sampler}, from {SOURCES[random_source]}"


def _listed(names: list[str]) -> str:
    """Join names with commas and "and"."""
    return ", ".join(names[:-1]) + " and " + names[-1]


NAMES = {"dp_helmet": "DP-Helmet, blind averaging", "fed_dpdr": "FedDPDR-DPML"}


def federated_promise(statement: FederatedStatement, bound: str) -> str:
    """Return the guarantee in a few sentences."""
    units = OF_ROWS if statement.unit == "row" else OF_PARTIES
    kind = "computationally differentially private"
    if statement.trust == "trusted_curator":
        kind = "differentially private"
    return (
        f"The model and all sums opened on the way to it are {kind} with {bound}. "
        f"{odds(statement.epsilon, statement.delta)} Anything computed from the model alone is as "
        f"private. {_several(statement, units)}"
    )


def trust(statement: FederatedStatement) -> tuple[str, ...]:
    """Describe the trust assumptions, and the local guarantee if they fail."""
    bad = statement.min_survivors - statement.honest_survivors
    lines: tuple[str, ...] = (
        f"{_parties(statement.n_users)} take part; up to {bad} of them may collude and share all "
        "they know, including their own noise",
    )
    if not statement.rounds:
        return (
            *lines,
            "each party adds all the noise that the guarantee needs: it holds whatever others do "
            "and whoever sees the message",
        )
    lost = statement.n_users - statement.min_survivors
    lines += (
        f"{(f'up to {_parties(lost)}' if lost else 'nobody')} may drop out; with fewer than "
        f"{statement.min_survivors} left no sum is opened. The guarantee counts only the noise of "
        f"{_parties(statement.honest_survivors)}, the honest ones in every opened sum",
    )
    if statement.trust == "secure_sum":
        lines += (
            f"masks hide what each party sends, and opening a sum takes {statement.threshold} "
            "parties. The server is not trusted with data, but is trusted to follow the protocol",
        )
    else:
        lines += ("the aggregator sees what each party sends and is trusted with it",)
    return (*lines, _without_sum(statement))


def _parties(n: int) -> str:
    """Return a number of parties in words."""
    return f"{n} {'party' if n == 1 else 'parties'}"


def _without_sum(statement: FederatedStatement) -> str:
    """Describe the guarantee against an observer of single contributions."""
    if statement.local_epsilon is None:
        return (
            "if the secure sum fails, a party has almost no protection: its own noise gives "
            "epsilon above 200"
        )
    return (
        "if the secure sum fails, a party's own noise protects it: epsilon = "
        f"{statement.local_epsilon:.6g} at the same delta"
    )


def secure_sum_derivation(statement: FederatedStatement) -> tuple[str, ...]:
    """Derive the noise from the settings, number by number."""
    lines: tuple[str, ...] = (f"{NAMES[statement.algorithm]}, loss {statement.loss}",)
    s = statement.sensitivity
    if s is not None:
        own = "person" if statement.unit == "person" else "row"
        weight = f"its number of {own}s" if statement.weighting == "records" else "one"
        lines += (
            f"weight of each party's model: {weight}; rows clipped to norm {s.data_norm:g}; one "
            f"{own} moves it by at most 2 x {s.C:.6g} x {s.lipschitz:.6g} x {s.row_norm:.6g} = "
            f"{s.exact:.6g}; solver error 2 x {s.solver_radius:.6g}",
        )
    lines += tuple(line for part in statement.rounds for line in _of_round(part, statement))
    if statement.local_events:
        kinds = ", ".join(event.tag for event in statement.local_events)
        lines += (f"noise that each party adds before it sends anything: {kinds}",)
    return lines


def _of_round(part: SecureRound, statement: FederatedStatement) -> tuple[str, ...]:
    """Derive the noise of one sum."""
    source = statement.random_source.replace("_", " ")
    assumed = (
        f", assumed advantage of an attacker on the cryptography {part.computational:.3g}"
        if part.computational
        else ""
    )
    clipped = ""
    if part.clip_norm is not None and statement.unit == "person":
        clipped = f", clipped to norm {part.clip_norm:g} per person"
    return (
        f"{part.what}{clipped}, summed over parties ({part.size} numbers): neighbours differ by "
        f"at most {part.exact:.6g}, rounding to the grid of {part.grid:.6g} adds "
        f"{part.rounding:.6g}; total {part.total:.6g}",
        f"each party adds discrete Gaussian noise, sigma = {part.sigma_steps} grid steps, from the "
        f"{source}; the noise of {_parties(part.honest_survivors)} counts, sigma = "
        f"{part.sigma:.6g}",
        f"added to delta, times 1 + e^epsilon: discrete noise {part.discreteness:.3g}, overflow of "
        f"the encoding {part.overflow:.3g}{assumed}",
    )
