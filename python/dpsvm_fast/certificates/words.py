"""The words of certificates.

What follows from the other fields is made here and compared; what is one of a few sentences is on a
list; the rest is free, and ``verify`` says of it that the maker of the certificate stated it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsvm_fast.certificates.statement import (
        FederatedStatement,
        PipelineStatement,
        PrivacyStatement,
        SelectionStatement,
    )


# What data sets may differ in that a promise compares, and what is said of it.
UNITS = ("row", "person", "party")
PROTECTED = {
    "row": "one row of the training data",
    "evaluated row": "one row of the evaluated data",
    "person": "one person and all their rows",
}

LOSSES = (
    *("crammer_singer", "softmax_margin", "softplus", "huber", "huber_ww", "margin_distance"),
    *("m3", "logistic"),
)

FLOATING_POINT_CAVEAT = (
    "The noise is drawn and added in floating-point arithmetic. The proof is about real numbers; "
    "the lowest bits of the released numbers may tell more than epsilon and delta say."
)

RUNNING_TIME_CAVEAT = (
    "How long the training took depends on the data and is not covered. Do not let others time it."
)

PRECISION_CAVEAT = (
    "Training can end with CertificationError where double precision cannot certify the minimum. "
    "Whether it did depends on the data and is not covered by epsilon and delta. Extreme settings "
    "make it likely, such as a tiny smoothing with a huge C."
)

MAX_ITER_CAVEAT = (
    "max_iter was set: whether training ended with CertificationError depends on the data, and "
    "that event is not covered by epsilon and delta."
)

MAX_SAMPLES_CAVEAT = (
    "Training refuses more rows than max_samples. Whether it did depends on the data and is not "
    "covered by epsilon and delta."
)

CLUSTER_CAVEAT = (
    "The rows were summed by a Dask cluster ({protocol}). Its machines, and whoever can read what "
    "they send each other, are trusted like the owner of the data: sums without noise, and the key "
    "from which batches are drawn, travel between them. Use TLS."
)

RUNS_CAVEAT = (
    "How long the search took tells about how many runs it made, which the promise needs to be "
    "secret, and how long each took depends on the data. Do not let others time it."
)

PARTS_CAVEAT = (
    "A search ends with an error when the rows are too few for its parts, or, with a probability "
    "below 1e-17, when a part is empty. That it did tells about the number of rows and is not "
    "covered."
)

# Short names, for policies.
CAVEATS = {
    "floating_point": FLOATING_POINT_CAVEAT,
    "running_time": RUNNING_TIME_CAVEAT,
    "precision": PRECISION_CAVEAT,
    "max_iter": MAX_ITER_CAVEAT,
    "max_samples": MAX_SAMPLES_CAVEAT,
    "cluster": CLUSTER_CAVEAT,
    "number_of_runs": RUNS_CAVEAT,
    "empty_parts": PARTS_CAVEAT,
}

SEED_REASON = "the noise was drawn from a seed, so whoever knows the seed can subtract it"

LEARNED_REASON = (
    "learned from the rows without privacy before them; what it learned may repeat them"
)

CLASSES_REASON = "the list of classes was read from the labels, so a rare class may reveal a row"

PARAMETERS = "{parameter} and every other parameter{names}"

FEATURES = "the number and names of the features, and whether the rows came dense or sparse"

ROWS, PERSONS = "the number of rows", "the number of persons"

PERIODS = (
    "the one period that each row belongs to; the rows are all of {periods}, whose rows alone the "
    "ledger was charged for"
)
SAME_PERIOD = "; a row is exchanged for one of the same period"

START = (
    "where the training starts: at a private release about other rows, whose cost to those rows is "
    "not in these numbers"
)

CLASSES_READ = "the label set, read from the training labels"

CLASSES_GIVEN = "the label set, given as classes"

RANDOM_FEATURES = "the random features, drawn from the seed {seed} without the data"

CLASS_WEIGHTS = "the weights of the classes"

EVALUATED = (
    "the model, which was made without these rows or by releases that are counted too, and which "
    "maps every row by itself"
)

DECLARED = "what a DeclaredTrainer declares is what its training costs; nobody here can check that"

FUNCTION = "the function of {step} maps every row by itself"

SAME_ROWS = (
    "all steps were fitted on the same private rows, each row made from one record by the steps "
    "before"
)

STEPS_PUBLIC = (
    "the steps, their order and their parameters were chosen without looking at the rows, nor at "
    "what other steps released"
)

AGREED = (
    "every parameter of the specification, data_norm among them",
    "the number of features and the label set",
    "the number of records of every party",
    "which parties were asked",
)

# What stands for the free words inside a sentence.
HOLES = {
    "parameter": "(?:data_norm|bounds|param_grid|model)",
    "names": r"(?: \([A-Za-z0-9_]+(?:, [A-Za-z0-9_]+)*\))?",
    "seed": "[0-9]+",
    "step": r".+ \([A-Za-z0-9_]+\)",
    "protocol": "[a-z0-9+_-]{1,20}",
    "count": "[2-8]",
    "periods": "[A-Za-z0-9._:+/-]+(?:, [A-Za-z0-9._:+/-]+)*",
}

GAUSSIAN = "Balle and Wang 2018, Theorem 8 (analytic Gaussian mechanism), with the sensitivity of "

GAMMA = (
    "Chaudhuri, Monteleoni and Sarwate 2011 (noise density proportional to exp(-beta ||b||)), with "
    "the sensitivity of "
)

OUTPUT_PAGE = "docs/proofs/output_perturbation.md"

SGD_PAGE = "docs/proofs/projected_sgd.md (after Wu, Li, Kumar, Chaudhuri, Jha and Naughton 2017)"
# Mechanisms that are one noisy sum, and where its sensitivity is proved.
PROVED_IN = {
    "private_center": "docs/proofs/auto_pipeline.md",
    "private_whitener": "docs/proofs/auto_pipeline.md",
    "private_pca": "docs/proofs/private_pca.md",
    "private_standard_scaler": "docs/proofs/private_scaling.md",
    "private_evaluation": "docs/proofs/evaluation.md",
}

OBJECTIVE = {
    "gaussian": "Objective perturbation with Gaussian noise (Kifer, Smith and Thakurta 2012; "
    "Redberg, Koskela and Wang 2023 for one score), with the privacy loss of "
    "docs/proofs/objective_perturbation.md and docs/proofs/joint_bound.md, composed with Balle and "
    "Wang 2018, Theorem 8, for the approximate minimum",
    "gamma": "Objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2), with "
    "the Jacobian of docs/proofs/objective_perturbation.md, composed with noise of density "
    "proportional to exp(-beta ||b||) for the approximate minimum",
}

PERSON_PAGE = "; for persons as in docs/proofs/persons.md"

ELLIPSOIDS = (
    "Objective perturbation over positive semidefinite matrices (Pathak and Raj 2010, corrected in "
    "docs/proofs/gaussian_margin.md; Kifer, Smith and Thakurta 2012 for the constraint): "
)

ANCHORS = "Noisy sums of docs/proofs/gaussian_margin.md, section Mixtures, composed with: "

SUMS = (
    "Gaussian mechanisms compose by adding the squares of their parameters (Dong, Roth and Su "
    "2022), also adaptively with a fixed sum (Smith and Thakurta 2022; Koskela, Tobaben and "
    "Honkela 2023); sensitivities and paths in docs/proofs/auto_pipeline.md"
)

KERNEL = "; public features of norm 1 in docs/proofs/random_features.md"

SOLVERS = "noisy sums of docs/proofs/auto_pipeline.md, composed with: "

RELEASES = (
    '; {count} releases of weights with this noise, section "Several releases" of '
    "docs/proofs/output_perturbation.md"
)

FULL = (
    "Gaussian mechanism on sums of clipped gradients (Abadi et al. 2016; Balle and Wang 2018, "
    'Theorem 8), docs/proofs/gradient_perturbation.md, "Full batch"'
)

SAMPLED = (
    "Poisson-sampled Gaussian mechanism on sums of clipped gradients (Abadi et al. 2016), "
    'docs/proofs/gradient_perturbation.md, "Poisson sampling", composed as in '
    "docs/proofs/accountant.md"
)

LAST = (
    "Last iterate of noisy gradient descent on a strongly convex objective (Bok, Su and Altschuler "
    '2024), docs/proofs/gradient_perturbation.md, "Last iterate"'
)

REPEATED = '; all calls together as in docs/proofs/gradient_perturbation.md, "Repeated calls"'

FEDERATED_MODEL = (
    "Balle and Wang 2018, Theorem 8 (analytic Gaussian mechanism), for sums of discrete Gaussian "
    "noise with the sensitivities of docs/proofs/federated.md (after Wu, Li, Kumar, Chaudhuri, Jha "
    "and Naughton 2017)"
)

FEDERATED_OBJECTIVE = (
    "Objective perturbation of every party by itself, with the privacy loss of "
    "docs/proofs/objective_perturbation.md, composed with noisy second moments: "
    "docs/proofs/federated.md"
)

HALF = "the sum of the rows and half their number"

PRODUCTS = "the sum of the rows' outer products with themselves"

COLUMNS = "every feature's z in [-1, 1]"

SQUARES = f"{COLUMNS} and 11/8 (z^2 - 49/64)"

NUMBER = ", and the number of rows times the fourth root of the number of features"

CLASSES = "numbers of rows by their class"

CELLS = "numbers of rows by the sign and size of their scores"

METRICS = (
    "numbers of rows by labels, predictions and scores, and clipped losses, times weights whose "
    "squares add up to at most 1"
)

CLIPPED = "the sum of the rows' clipped gradients"
# Where the last steps tell the temperature of probabilities.
CALIBRATED = CLIPPED + ", in the last ones of how sure and how right the weights are"

GRADIENTS = "clipped gradients of the loss in the weights, for rows divided by data_norm"

PARTIES_GRAM = "the sum of the outer products of the rows with themselves"

PARTIES_MODEL = "the weights of the parties' models"

WEIGHTED = ", times their numbers of records"


def theorem_of(statement: PrivacyStatement) -> str:
    """Return the citation and proof page of what a statement's numbers describe."""
    mechanism, parts = statement.mechanism, statement.parts
    if mechanism in PROVED_IN:
        pure = parts and parts[0].distribution == "gamma"
        return (GAMMA if pure else GAUSSIAN) + PROVED_IN[mechanism]
    if mechanism == "gradient_perturbation" and parts:
        last = parts[-1]
        steps = FULL if last.sampling_rate == 1.0 else SAMPLED
        steps = steps if last.last_iterate is None else LAST
        return steps if len(parts) == 1 else steps + REPEATED
    own = _theorem_of_solver(statement)
    if mechanism == "gaussian_margin":
        return (ANCHORS if parts else "") + ELLIPSOIDS + own
    if not parts:
        return own
    if not own:
        return SUMS + (KERNEL if mechanism == "private_kernel" else "")
    n_releases = len(statement.events) - len(parts) if statement.objective is None else 1
    return SOLVERS + own + (RELEASES.format(count=n_releases) if n_releases > 1 else "")


def _theorem_of_solver(statement: PrivacyStatement) -> str:
    """The theorem about noise in the objective or on the weights; empty without any."""
    if statement.objective is not None:
        of_persons = PERSON_PAGE if statement.unit == "person" else ""
        return OBJECTIVE[statement.objective.distribution] + of_persons
    if statement.noise is None:
        return ""
    page = OUTPUT_PAGE if statement.descent is None else SGD_PAGE
    return (GAUSSIAN if statement.noise.distribution == "gaussian" else GAMMA) + page


def federated_theorem_of(statement: FederatedStatement) -> str:
    """Return the citation and proof page of what the sums over parties describe."""
    return FEDERATED_OBJECTIVE if statement.sensitivity is None else FEDERATED_MODEL


def fit_assumptions(
    parameter: str, names: Iterable[str], adjacency: str, *, labels: str | None
) -> tuple[str, ...]:
    """Return what every statement about one fit assumes public.

    Parameters
    ----------
    parameter : {"data_norm", "bounds", "param_grid", "model"}
        The one on which the sensitivity rests.
    names : iterable of str
        The other parameters.
    adjacency : {"add_remove", "replace_one"}
    labels : {"given", "read"} or None
        Where the label set came from; None where no labels are read.
    """
    listed = ", ".join(names)
    found = [PARAMETERS.format(parameter=parameter, names=f" ({listed})" if listed else "")]
    found.append(FEATURES)
    if adjacency == "replace_one":
        found.append(ROWS)
    if labels is not None:
        found.append(CLASSES_GIVEN if labels == "given" else CLASSES_READ)
    return tuple(found)


def summed(name: str, adjacency: str, mechanism: str = "") -> str:
    """Return what is summed over the rows under the name of a part; empty for an unknown name."""
    counted = adjacency == "add_remove"
    columns = {"means": COLUMNS, "moments": SQUARES}
    if name in columns:
        return columns[name] + (NUMBER if counted else "")
    return {
        "count": ROWS,
        "centre": HALF if counted else "sum of the rows",
        "anchors": f"{HALF}, in each cell",
        "whitening": PRODUCTS,
        "components": PRODUCTS,
        "classes": CLASSES,
        "cells": CELLS,
        "metrics": METRICS,
        "training": GRADIENTS if mechanism == "gradient_perturbation" else CLIPPED,
    }.get(name, "")


def summed_over_parties(name: str, weighting: str) -> str:
    """Return what parties sum up under a name: ``"model"`` or ``"gram"``."""
    if name == "gram":
        return PARTIES_GRAM
    return PARTIES_MODEL + (WEIGHTED if weighting == "records" else "")


def statement_word_problems(statement: PrivacyStatement) -> list[str]:
    """Say which words of a certificate do not follow from its numbers, and are on no list."""
    found = _none_of("mechanism", statement.mechanism, MECHANISMS)
    found += _none_of("loss", statement.loss, (*LOSSES, "none"))
    for part in (*statement.parts, *statement.reserved):
        what = summed(part.name, statement.adjacency, statement.mechanism)
        found += _none_of("what", part.what, (what, CALIBRATED) if what == CLIPPED else (what,))
    possible = (MAX_ITER_CAVEAT, CLUSTER_CAVEAT)
    found += _odd_sentences("caveats", statement.caveats, needed_caveats(statement), possible)
    labels = () if statement.loss == "none" else _labels(statement)
    if statement.mechanism == "private_evaluation":
        labels = (CLASSES_GIVEN, EVALUATED)
    features = (RANDOM_FEATURES,) if statement.mechanism in KERNELS else ()
    return found + _odd_assumptions(statement, labels, features) + _odd_reasons(statement)


def selection_word_problems(statement: SelectionStatement) -> list[str]:
    """Say the same of a search."""
    events = [event for branch in statement.branches for event in branch]
    partition = statement.strategy == "partition"
    needed: tuple[str, ...] = (RUNNING_TIME_CAVEAT, PARTS_CAVEAT) if partition else (RUNS_CAVEAT,)
    needed += (FLOATING_POINT_CAVEAT,) * any(event.tag == "pure" for event in events)
    possible = (FLOATING_POINT_CAVEAT, PRECISION_CAVEAT, MAX_ITER_CAVEAT)
    found = _odd_sentences("caveats", statement.caveats, needed, possible)
    more = (CLASS_WEIGHTS, FUNCTION, DECLARED)
    return found + _odd_assumptions(statement, _labels(statement), more) + _odd_reasons(statement)


def pipeline_word_problems(statement: PipelineStatement) -> list[str]:
    """Say the same of a pipeline, without its steps."""
    needed = (SAME_ROWS, STEPS_PUBLIC)
    return _odd_sentences("assumptions", statement.assumptions, needed, (FUNCTION,))


def federated_word_problems(statement: FederatedStatement, caveats: tuple[str, ...]) -> list[str]:
    """Say the same of training across parties, which has to have ``caveats`` and no others."""
    found = _none_of("loss", statement.loss, LOSSES)
    for part in statement.rounds:
        what = summed_over_parties(part.name, statement.weighting)
        found += _none_of("what", part.what, (what, CALIBRATED) if what == CLIPPED else (what,))
    found += _odd_sentences("caveats", statement.caveats, caveats, ())
    return found + _odd_sentences("assumed_public", statement.assumed_public, AGREED, ())


def stated(statement: Any, title: str = "") -> tuple[str, ...]:
    """Return every word of a certificate that rests on the maker alone, for people.

    Parameters
    ----------
    statement : statement of any kind
        Its words were checked.
    title : str
        What to say before each; of a step of a pipeline.
    """
    found = [f"release of dpsvm_fast: {statement.library_version}"]
    if hasattr(statement, "random_source"):
        found.append(f"the noise came from: {statement.random_source}")
    if getattr(statement, "mechanism", "") in ("private_linear", "private_kernel"):
        # What one is made of is all that the other needs.
        found.append(f"mechanism: {statement.mechanism}")
    if hasattr(statement, "selection"):
        # Both ways to choose, and both to make a score noisy, promise the same by the same numbers.
        found.append(f"choice by scores: {statement.selection.mechanism}")
    if hasattr(statement, "loss") and statement.loss != "none":
        found.append(f"loss: {statement.loss}")
    if getattr(statement, "descent", None) is not None:
        run = statement.descent
        found.append(f"projected SGD: projection {run.projection}, average {run.average}")
    branches = getattr(statement, "branches", ())
    for text, branch in zip(getattr(statement, "candidates", ()), branches, strict=True):
        found.append(f"candidate {text}: {_kinds(branch)}")
    if getattr(statement, "refit", ()):
        found.append(f"refit: {_kinds(statement.refit)}")
    if getattr(statement, "local_events", ()):
        found.append(f"noise that parties add for themselves: {_kinds(statement.local_events)}")
    own = getattr(statement, "assumptions", None)
    assumed = statement.assumed_public if own is None else own
    found += [f"assumed public: {text}" for text in assumed]
    if hasattr(statement, "steps"):
        found += [f"step {step}" for step in statement.steps]
    else:
        found += [f"not covered: {text}" for text in statement.caveats if _is_optional(text)]
    found = [title + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in t) for t in found]
    for step in getattr(statement, "steps", ()):
        if step.statement is not None:
            found += stated(step.statement, f"{title}{step.title}: ")
    return tuple(found)


def _kinds(events: Iterable[Any]) -> str:
    """Kinds of events in a few words."""
    laws = [f"{e.tag} ({e.law})" if hasattr(e, "law") else e.tag for e in events]
    return ", ".join(laws)


def _is_optional(caveat: str) -> bool:
    """Whether a caveat does not follow from numbers."""
    return caveat in (MAX_ITER_CAVEAT, PRECISION_CAVEAT) or matches(caveat, CLUSTER_CAVEAT)


KERNELS = ("private_kernel", "output_perturbation", "objective_perturbation")

MECHANISMS = (
    *("output_perturbation", "objective_perturbation", "gradient_perturbation", "private_linear"),
    *("private_kernel", *PROVED_IN, "gaussian_margin"),
)


def needed_caveats(statement: PrivacyStatement) -> tuple[str, ...]:
    """Return the caveats that a statement must have by its numbers."""
    noises = (statement.noise, statement.objective, *statement.parts)
    inexact = any(part is not None and part.sampler == "floating_point" for part in noises)
    minimised = statement.noise is not None and statement.descent is None
    bounded = any(part.last_iterate is not None for part in statement.parts)
    return (
        RUNNING_TIME_CAVEAT,
        *(PRECISION_CAVEAT,) * (minimised and statement.loss != "crammer_singer"),
        *(FLOATING_POINT_CAVEAT,) * inexact,
        *(MAX_SAMPLES_CAVEAT,) * (bounded and statement.adjacency == "add_remove"),
    )


def _labels(statement: Any) -> tuple[str, ...]:
    """Where the label set came from, as the reasons say."""
    return (CLASSES_READ if CLASSES_REASON in statement.not_private_reasons else CLASSES_GIVEN,)


def _odd_assumptions(statement: Any, labels: tuple[str, ...], more: tuple[str, ...]) -> list[str]:
    """What a fit, or a search, assumes public and should not, and the other way round."""
    counted = PERSONS if statement.unit == "person" else ROWS
    rows = (counted,) if statement.adjacency == "replace_one" else ()
    needed = (PARAMETERS, FEATURES, *rows, *labels)
    periods = PERIODS + (SAME_PERIOD if rows else "")
    possible = (*more, periods, START)
    return _odd_sentences("assumed_public", statement.assumed_public, needed, possible)


def _odd_reasons(statement: Any) -> list[str]:
    """The same of the reasons for which a release is not private."""
    needed = (SEED_REASON,) if statement.random_source == "seed" else ()
    possible = (SEED_REASON, CLASSES_REASON, f"{{step}} {LEARNED_REASON}")
    name = "not_private_reasons"
    return _odd_sentences(name, statement.not_private_reasons, needed, possible)


def _none_of(name: str, text: str, options: tuple[str, ...]) -> list[str]:
    """Whether a word is none of a few."""
    if text in options:
        return []
    accepted = " or ".join(map(repr, options))
    return [f"{name}: got {shortened(text)!r}, expected {accepted}"]


def _odd_sentences(
    name: str, texts: tuple[str, ...], needed: tuple[str, ...], possible: tuple[str, ...]
) -> list[str]:
    """Sentences that nobody knows, that are there twice, and that are missing."""
    known = (*needed, *possible)
    found = [
        f"{name}: got {shortened(text)!r}, expected sentences that dpsvm_fast writes there"
        for text in texts
        if not any(matches(text, sentence) for sentence in known)
    ]
    if len(set(texts)) < len(texts):
        found.append(f"{name}: a sentence is there twice")
    return found + [
        f"{name}: the sentence {sentence!r} is missing"
        for sentence in needed
        if not any(matches(text, sentence) for text in texts)
    ]


def shortened(value: object) -> object:
    """Return a value for a message: of a text its beginning, of a list or object its type."""
    if isinstance(value, (list, dict)):
        return type(value).__name__
    return value[:200] if isinstance(value, str) else value


def matches(text: str, sentence: str) -> bool:
    """Whether a text is a sentence, with something in its holes."""
    return text == sentence or re.fullmatch(pattern_of(sentence), text) is not None


def pattern_of(sentence: str) -> str:
    """Return the regular expression of a sentence with holes."""
    pieces = re.split(r"\{(\w+)\}", sentence)
    # What a pattern of a JSON schema may escape, and no more.
    literal = [re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", piece) for piece in pieces]
    return "".join(HOLES[pieces[i]] if i % 2 else text for i, text in enumerate(literal))


def schema_words() -> dict[str, tuple[str, ...]]:
    """Return the sentences that each field of words may have, by a name for the schemas."""
    solvers = [law + page for law in (GAUSSIAN, GAMMA) for page in (OUTPUT_PAGE, SGD_PAGE)]
    solvers += OBJECTIVE.values()
    theorems = [
        *solvers,
        *(head + ELLIPSOIDS + own for head in ("", ANCHORS) for own in OBJECTIVE.values()),
        *(SOLVERS + own + more for own in solvers for more in ("", RELEASES)),
        *(SUMS, SUMS + KERNEL),
        *(steps + more for steps in (FULL, SAMPLED, LAST) for more in ("", REPEATED)),
        *(law + page for law in (GAUSSIAN, GAMMA) for page in dict.fromkeys(PROVED_IN.values())),
    ]
    names = ("count", "classes", "centre", "anchors", "whitening", "components")
    more = ("means", "moments", "cells", "metrics")
    every = [
        (name, relation) for name in (*names, *more) for relation in ("add_remove", "replace_one")
    ]
    whats = [*(summed(*pair) for pair in every), CLIPPED, CALIBRATED, GRADIENTS]
    assumed = (FEATURES, ROWS, PERSONS, CLASSES_READ, CLASSES_GIVEN)
    fit = (*assumed, PERIODS, PERIODS + SAME_PERIOD, START)
    shared = (FLOATING_POINT_CAVEAT, RUNNING_TIME_CAVEAT, PRECISION_CAVEAT, MAX_ITER_CAVEAT)
    return {
        "protected": tuple(PROTECTED.values()),
        "mechanism": MECHANISMS,
        "loss": (*LOSSES, "none"),
        "theorem": tuple(theorems),
        "part": (*names, *more, "training"),
        "what": tuple(dict.fromkeys(whats)),
        "caveat": (*shared, MAX_SAMPLES_CAVEAT, CLUSTER_CAVEAT),
        "assumed_public": (PARAMETERS, *fit, RANDOM_FEATURES, EVALUATED),
        "reason": (SEED_REASON, CLASSES_REASON, f"{{step}} {LEARNED_REASON}"),
        "search_caveat": (*shared, RUNS_CAVEAT, PARTS_CAVEAT),
        "search_assumed_public": (PARAMETERS, *fit, CLASS_WEIGHTS, FUNCTION, DECLARED),
        "assumption": (SAME_ROWS, STEPS_PUBLIC, FUNCTION),
        "federated_loss": LOSSES,
        "federated_theorem": (FEDERATED_MODEL, FEDERATED_OBJECTIVE),
        "federated_what": (PARTIES_GRAM, PARTIES_MODEL, PARTIES_MODEL + WEIGHTED),
        "federated_assumed_public": AGREED,
    }
