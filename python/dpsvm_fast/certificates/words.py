"""Words of certificates: sentences that follow from facts and numbers.

A certificate contains them next to the facts; when it is read, the two are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsvm_fast.certificates.statement import PrivacyStatement


# Units in which neighbouring data sets differ, and their descriptions.
UNITS = ("row", "person", "party")
PROTECTED = {
    "row": "one row of the training data",
    "evaluated row": "one row of the evaluated data",
    "person": "one person and all their rows",
    "person at a party": "one person and all their rows at one party",
    "party": "all rows of one party",
}
# Units in training across parties.
FEDERATED_DIFFERENCE = {
    "row": "by replacing one row of one party",
    "person": "by replacing all rows of one person at one party",
    "party": "by replacing all rows of one party by as many others",
}

LOSSES = (
    *("crammer_singer", "softmax_margin", "softplus", "huber", "huber_ww", "margin_distance"),
    *("m3", "logistic"),
)

# By the names that certificates and policies have for them.
CAVEATS = {
    "floating_point": "The noise is drawn and added in floating-point arithmetic. The proof is "
    "about real numbers, so the lowest bits of the released numbers may leak more than epsilon "
    "and delta allow.",
    "running_time": "Training time depends on the data and is not covered. Do not let others "
    "measure it.",
    "precision": "Training raises CertificationError if double precision cannot certify the "
    "minimum. Whether it does depends on the data and is not covered. Extreme settings make it "
    "likely, such as a tiny smoothing with a huge C.",
    "max_iter": "max_iter was set, so training can raise CertificationError. Whether it does "
    "depends on the data and is not covered.",
    "max_samples": "Training refuses more rows than max_samples. Whether it does depends on the "
    "data and is not covered.",
    "cluster": "A Dask cluster ({protocol}) summed the rows. Sums without noise, and the key that "
    "draws the batches, travel between its machines. The machines, and anyone who can read their "
    "traffic, are trusted like the owner of the data. Use TLS.",
    "number_of_runs": "The time of a search reveals roughly how many runs it made, which must "
    "stay secret, and the time of each run depends on the data. Do not let others measure it.",
    "empty_parts": "A search raises an error if there are too few rows for its parts or, with "
    "probability below 1e-17, if a part is empty. The error reveals something about the number of "
    "rows and is not covered.",
    "passive_server": "The server and the parties that collude with it are assumed to follow the "
    "protocol, whatever they look at. A server that deviates is not covered, for example one that "
    "names different survivors to different parties or forges public keys.",
    "honest_parties": "An honest party neither reveals nor uses its own noise. A party that knows "
    "its own noise can subtract it from the model, so it must be counted among those that collude "
    "with the server.",
    "computational": "The privacy is computational: it holds against observers who cannot break "
    "the key agreement, the encryption and the masks of the secure sum. Their assumed advantage "
    "is part of delta. Anyone who records the messages and breaks them later gets the noisy model "
    "of each party.",
    "trusted_curator": "The aggregator sees the noisy contribution of each party and is trusted "
    "not to use it or pass it on. Epsilon and delta are for the sum alone.",
    "aborts": "Which parties took part, dropped out or refused, and when, is not covered. A party "
    "that fails because of its data reveals that by failing.",
    "time_of_parties": "A party's computing time depends on its data and is not covered: others "
    "see when its messages arrive.",
    "sizes_of_parties": "The size of each party, its number of rows or of persons, is public: only "
    "data sets of the same sizes are compared, and no noise hides them.",
}

SEED_REASON = "the noise was drawn from a seed, so anyone who knows the seed can subtract it"

LEARNED_REASON = "an earlier step learned from the rows without privacy, and may reveal them"

CLASSES_REASON = "the label set was read from the labels, so a rare class may reveal a row"

PARAMETERS = "{parameter} and every other parameter{names}"

FEATURES = "the number and names of the features, and whether the rows were dense or sparse"

ROWS, PERSONS = "the number of rows", "the number of persons"

PERIODS = (
    "the period of each row; all rows are of {periods}, and the ledger was charged for these alone"
)
SAME_PERIOD = "; a replaced row keeps its period"

CLASSES_READ = "the label set, read from the training labels"

CLASSES_GIVEN = "the label set, given as classes"

RANDOM_FEATURES = "the random features, drawn from the seed {seed} without the data"

EVALUATED = (
    "the model, which maps each row by itself and was made without these rows or by releases that "
    "are also counted"
)

# Assumptions; a statement lists those that it needs.
ASSUMED = {
    "class_weights": "the weights of the classes",
    "declared": "a DeclaredTrainer costs what it declares; this library cannot check that",
    "start": "the starting point of the training: a private release about other rows, whose cost "
    "to those rows is not in these numbers",
}

FUNCTION = "the function of {step} maps each row by itself"

SAME_ROWS = (
    "all steps were fitted on the same private rows, and the steps before make each row from one "
    "record"
)

STEPS_PUBLIC = (
    "the steps, their order and their parameters were chosen without looking at the rows or at the "
    "releases of other steps"
)

AGREED = (
    "every parameter of the specification, including data_norm",
    "the number of features and the label set",
    "the number of {unit}s of every party",
    "the list of invited parties",
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

# Rows of a person that take part if rounding has to be bounded beforehand: the first ones.
ROWS_OF_PERSON = 1024

ELLIPSOIDS = (
    "Objective perturbation over positive semidefinite matrices (Pathak and Raj 2010, corrected in "
    "docs/proofs/gaussian_margin.md; Kifer, Smith and Thakurta 2012 for the constraint): "
)

ANCHORS = "Noisy sums of docs/proofs/gaussian_margin.md, section Mixtures, composed with: "

CLASSES = (
    "Noisy numbers of rows of each class, section Class counts of docs/proofs/persons.md, composed "
    "with: "
)

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

PRODUCTS = "the sum of the outer products of the rows"

COLUMNS = "every feature's z in [-1, 1]"

SQUARES = f"{COLUMNS} and 11/8 (z^2 - 49/64)"

NUMBER = ", and the number of rows times the fourth root of the number of features"


# Noisy sums of a fit, by name.
PARTS = (
    *("count", "classes", "centre", "anchors", "whitening", "components"),
    *("means", "moments", "cells", "metrics", "training"),
)

CLIPPED = "the sum of the rows' clipped gradients"
# If the last steps determine the temperature of probabilities.
CALIBRATED = CLIPPED + ", and in the last steps of confidence and correctness"

GRADIENTS = "clipped gradients of the loss in the weights, rows divided by data_norm"

PARTIES_GRAM = "the sum of the outer products of the rows of all parties"

PARTIES_MODEL = "the weights of the models of the parties"

WEIGHTED = ", times their sizes"


def theorem_of(statement: PrivacyStatement) -> str:
    """Return the citation and proof page of a statement."""
    found = _theorem_of_rows(statement)
    elsewhere = statement.unit == "row" or statement.mechanism == "private_evaluation"
    return found if elsewhere else found + PERSON_PAGE


def _theorem_of_rows(statement: PrivacyStatement) -> str:
    """Return the theorem without the part about persons."""
    mechanism, parts = statement.mechanism, statement.parts
    pipeline = mechanism in ("private_linear", "private_kernel")
    if not pipeline and parts and parts[0].name == "classes":
        return CLASSES + _theorem_of_rows(replace(statement, parts=parts[1:]))
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
    """Return the theorem about noise in the objective or on the weights; empty without any."""
    if statement.objective is not None:
        return OBJECTIVE[statement.objective.distribution]
    if statement.noise is None:
        return ""
    page = OUTPUT_PAGE if statement.descent is None else SGD_PAGE
    return (GAUSSIAN if statement.noise.distribution == "gaussian" else GAMMA) + page


def summed(name: str, adjacency: str, mechanism: str = "") -> str:
    """Return the text on what a part sums over the rows; empty for an unknown name."""
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
        "classes": "the number of rows of each class",
        "cells": "the number of rows by score, or by outcome and score",
        "metrics": "the number of rows by label, prediction and score, and clipped losses, times "
        "weights whose squares sum to at most 1",
        "training": GRADIENTS if mechanism == "gradient_perturbation" else CLIPPED,
    }.get(name, "")


def summed_over_parties(name: str, weighting: str) -> str:
    """Return the text on what parties sum: ``"model"`` or ``"gram"``."""
    if name == "gram":
        return PARTIES_GRAM
    return PARTIES_MODEL + (WEIGHTED if weighting == "records" else "")


def stated(statement: Any, title: str = "") -> tuple[str, ...]:
    """Return all words of a certificate that only its maker vouches for.

    Parameters
    ----------
    statement : statement of any kind
        Its words were checked.
    title : str
        What to say before each; of a step of a pipeline.
    """
    found = [f"version of dpsvm_fast: {statement.library_version}"]
    if statement.unit == "person":
        # The same noise protects a row or a person: it depends on what was clipped.
        found.append("unit: person")
    if hasattr(statement, "random_source"):
        found.append(f"source of the noise: {statement.random_source}")
    if getattr(statement, "mechanism", "") in ("private_linear", "private_kernel"):
        # Its parts fit the other mechanism as well.
        found.append(f"mechanism: {statement.mechanism}")
    if hasattr(statement, "selection"):
        # Both choices, and both kinds of noisy scores, promise the same with the same numbers.
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
        found.append(f"noise that each party adds by itself: {_kinds(statement.local_events)}")
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
    """Return the kinds of events in a few words."""
    laws = [f"{e.tag} ({e.law})" if hasattr(e, "law") else e.tag for e in events]
    return ", ".join(laws)


MECHANISMS = (
    *("output_perturbation", "objective_perturbation", "gradient_perturbation", "private_linear"),
    *("private_kernel", *PROVED_IN, "gaussian_margin"),
)
