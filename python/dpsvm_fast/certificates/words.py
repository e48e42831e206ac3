"""The words of certificates: sentences for people, each of which follows from facts and numbers.

They are written beside the facts, and compared with them when a certificate is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsvm_fast.certificates.statement import FederatedStatement, PrivacyStatement


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

PASSIVE_CAVEAT = (
    "The server and the parties that work with it are assumed to follow the protocol, however much "
    "they look at. A server that deviates from it, for example one that tells parties of different "
    "survivors or sends forged public keys, is not covered."
)

HONEST_CAVEAT = (
    "A party counts as honest if it neither reveals nor uses its own noise. A party that looks at "
    "the model and knows its own noise sees the model with one noise less: it has to be counted "
    "among those that work with the server."
)

COMPUTATIONAL_CAVEAT = (
    "The privacy is computational: it holds for observers who cannot break the key agreement, the "
    "encryption and the masks of the secure sum. Their assumed advantage is part of delta. Whoever "
    "records the messages and breaks them later has the single parties' noisy models."
)

TRUSTED_CAVEAT = (
    "Whoever adds up sees the noisy contribution of every single party and is trusted not to look "
    "at them or pass them on. The stated epsilon and delta are about the sum alone."
)

ABORT_CAVEAT = (
    "Which parties took part, dropped out or refused, and when, is not covered: a party that fails "
    "because of what is in its data tells that by failing."
)

TIME_CAVEAT = (
    "How long a party computes depends on its data and is not covered: others see when its "
    "messages arrive."
)

SIZES_CAVEAT = (
    "How many rows a party has counts as public: data sets of the same sizes are compared. The "
    "number is not hidden by noise."
)

# By the names that certificates and policies have for them.
CAVEATS = {
    "floating_point": FLOATING_POINT_CAVEAT,
    "running_time": RUNNING_TIME_CAVEAT,
    "precision": PRECISION_CAVEAT,
    "max_iter": MAX_ITER_CAVEAT,
    "max_samples": MAX_SAMPLES_CAVEAT,
    "cluster": CLUSTER_CAVEAT,
    "number_of_runs": RUNS_CAVEAT,
    "empty_parts": PARTS_CAVEAT,
    "passive_server": PASSIVE_CAVEAT,
    "honest_parties": HONEST_CAVEAT,
    "computational": COMPUTATIONAL_CAVEAT,
    "trusted_curator": TRUSTED_CAVEAT,
    "aborts": ABORT_CAVEAT,
    "time_of_parties": TIME_CAVEAT,
    "sizes_of_parties": SIZES_CAVEAT,
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

# Of these a statement says which ones it needs.
ASSUMED = {"class_weights": CLASS_WEIGHTS, "declared": DECLARED, "start": START}

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

# Noisy sums of a fit, by name.
PARTS = (
    *("count", "classes", "centre", "anchors", "whitening", "components"),
    *("means", "moments", "cells", "metrics", "training"),
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


def summed_alike(what: str, stated: str) -> bool:
    """Whether a text says what is summed; of clipped gradients there are two."""
    return stated == what or (what, stated) == (CLIPPED, CALIBRATED)


def summed_over_parties(name: str, weighting: str) -> str:
    """Return what parties sum up under a name: ``"model"`` or ``"gram"``."""
    if name == "gram":
        return PARTIES_GRAM
    return PARTIES_MODEL + (WEIGHTED if weighting == "records" else "")


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
    found += [f"step {step}" for step in getattr(statement, "steps", ())]
    if hasattr(statement, "occasion"):
        found += [f"not covered: {CAVEATS[name]}" for name in statement.occasion.uncovered]
    found = [title + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in t) for t in found]
    for step in getattr(statement, "steps", ()):
        if step.statement is not None:
            found += stated(step.statement, f"{title}{step.title}: ")
    return tuple(found)


def _kinds(events: Iterable[Any]) -> str:
    """Kinds of events in a few words."""
    laws = [f"{e.tag} ({e.law})" if hasattr(e, "law") else e.tag for e in events]
    return ", ".join(laws)


MECHANISMS = (
    *("output_perturbation", "objective_perturbation", "gradient_perturbation", "private_linear"),
    *("private_kernel", *PROVED_IN, "gaussian_margin"),
)
