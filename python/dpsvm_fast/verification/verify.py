"""Recompute the promise of a certificate from its numbers alone, or beside its model.

Recompute the promise of a certificate from its numbers alone.

Deliberately shares no numerical code with the calibrations that made the promise, and has its own
table of the losses.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpsvm_fast.certificates.events import GaussianEvent, PrivacyEvent, PureEvent
from dpsvm_fast.certificates.record import read_json
from dpsvm_fast.certificates.releases import Descent, Noise, Sensitivity, descent_sensitivity
from dpsvm_fast.certificates.render import bullets, paragraphs
from dpsvm_fast.certificates.statement import (
    FederatedStatement,
    PipelineStatement,
    PrivacyStatement,
    SelectionStatement,
    Statement,
    canonical,
    digest_of,
    read_loosely,
    signature_of,
)
from dpsvm_fast.certificates.words import stated
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.verification.compose import recomputed_events
from dpsvm_fast.verification.losses import (
    TooMuchWorkError,
    gaussian_delta,
    gaussian_epsilon,
    limited_work,
)
from dpsvm_fast.verification.releases import (
    EXCESS,
    PARTS,
    check_federated,
    check_objective,
    check_parts,
    check_selection,
    follows,
    lipschitz_of,
    objective_event_matches,
    objective_share,
    reserved_problems,
    scores_of,
    weight_events,
    weight_releases,
)

# What a recomputation of a certificate says.


UNDECIDED = (
    "epsilon and delta of all releases together are not recomputed: this check composes at most "
    "eight losses that are known as curves (noise in objectives, best of several runs), to a few "
    "ten-thousandths of delta, and these are more, or the claim leaves no room for that"
)

TOO_MUCH_WORK = (
    "it is not recomputed: that would take far longer than for any certificate of one fit"
)

NOT_SHOWN = (
    "No recomputation can show that the noise was drawn as stated and from no seed, that nothing "
    "else was released from these rows, that rows were clipped as stated, or that what is assumed "
    "public was."
)

NO_ARITHMETIC = "its numbers are too large, or too small, to compute with"


@dataclass(frozen=True)
class Verification:
    """Outcome of a recomputation; true when every number follows and the promise holds.

    Parameters
    ----------
    ok : bool
    problems : tuple of str
        What does not follow, or cannot be told; empty when ``ok``.
    epsilon : float or None
        Recomputed epsilon at the claimed delta; None where the certificate cannot be read, or the
        claim cannot be recomputed.
    delta : float or None
        Recomputed delta at the claimed epsilon.
    undecided : bool, default=False
        Nothing is wrong that could be found, but there is more noise of different laws together
        than this check composes: the claim is neither confirmed nor refuted. Never with ``ok``.
    stated : tuple of str
        Words of the certificate that follow from nothing else in it: its maker stated them, and
        nobody checked them.
    matches : tuple of str
        What was compared with a model and is the same there; empty without one.
    """

    ok: bool
    problems: tuple[str, ...]
    epsilon: float | None
    delta: float | None
    undecided: bool = False
    stated: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        numbers = (
            ""
            if self.epsilon is None or self.delta is None
            else f" Recomputed: epsilon = {self.epsilon:.6g}, delta = {self.delta:.6g}."
        )
        if self.ok:
            lines = [f"The certificate holds: every number follows from the others.{numbers}"]
            if self.matches:
                lines += ["Compared with the model, and the same there:"]
                lines += bullets(self.matches)
            if self.stated:
                lines += ["Stated by the maker, not checked:"]
                lines += bullets(self.stated)
            return "\n".join([*lines, *paragraphs(NOT_SHOWN)])
        verdict = (
            "The certificate cannot be confirmed."
            if self.undecided
            else "The certificate does NOT hold."
        )
        return verdict + numbers + "".join(f"\n  - {problem}" for problem in self.problems)


# Whether a certificate is about a model: what the model's file holds against what was paid for.
#
# The file is read as plain JSON, without the code that saves and loads models; arrays are known by
# their shapes. A certificate may come with a digest of the model (``bound_certificate``), which is
# worth as much as its signature.


MODEL = "dpsvm_fast.model"
# What the digest of a model's file is over.
CONTENTS = ("format", "version", "library_version", "model", "schema")
# Bytes of a model's file that is read here; larger ones can be given as what they hold.
LARGEST_FILE = 1 << 28
# Of a pipeline that releases weights behind noisy sums.
RELEASES_OF_OUTPUT = 4
# How often the cells of several ellipsoids are summed.
ANCHOR_STEPS = 3

MU_SLACK = 1e-9
# Losses with a score for each of two classes.
PAIRWISE = ("crammer_singer", "margin_distance", "m3", "huber_ww")


def model_document(model: Mapping[str, Any] | str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return what the file of a model holds.

    Raises
    ------
    InvalidParameterError
        It is no file that ``save_model`` wrote, or was changed after that.
    OSError
        It cannot be read.
    """
    document: Any = model
    if not isinstance(model, Mapping):
        if Path(model).exists() and not Path(model).is_file():
            raise InvalidParameterError("model: expected a file, not a folder, pipe or device")
        with Path(model).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise InvalidParameterError(f"model: expected a file of at most {LARGEST_FILE} bytes")
        try:
            document = read_json(data.decode("utf-8-sig"))
        except ValueError:
            document = None
    if not isinstance(document, Mapping) or document.get("format") != MODEL:
        raise InvalidParameterError("model: expected a file that save_model wrote")
    if set(CONTENTS) - set(document) or not isinstance(document["model"], Mapping):
        raise InvalidParameterError("model: expected all that save_model writes")
    digest = hashlib.sha256(canonical({name: document[name] for name in CONTENTS})).hexdigest()
    if document.get("sha256") != digest:
        raise InvalidParameterError("model: the file was changed after save_model wrote it")
    return document


class Comparison:
    """A certificate held against a model.

    Attributes
    ----------
    problems, matches, unchecked : list of str
        What differs, what is the same, and what could not be compared.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.matches: list[str] = []
        self.unchecked: list[str] = []

    def _compare(self, what: str, stated: object, found: object) -> None:
        """Note whether two facts are the same."""
        if stated == found:
            self.matches.append(what)
        else:
            self.problems.append(
                f"the model has another {what}: {found!r}, in the certificate {stated!r}"
            )

    def seal(
        self,
        bound: Mapping[str, Any] | None,
        document: Mapping[str, Any] | None,
        key: bytes | None,
    ) -> None:
        """Compare signature and digest."""
        if bound is None:
            if key is not None:
                self.problems.append("a key was given, and the certificate is not signed")
            if document is not None:
                self.unchecked.append(
                    "the numbers of the model: the certificate has no digest of them"
                )
            return
        signature = bound["hmac_sha256"]
        if signature is None:
            self.unchecked.append("the digest of the model: it is unsigned, anyone can write one")
            if key is not None:
                self.problems.append("a key was given, and the certificate is not signed")
        elif key is None:
            self.unchecked.append("the signature of the certificate: no key was given")
        else:
            unsigned = {name: value for name, value in bound.items() if name != "hmac_sha256"}
            good = isinstance(signature, str) and hmac.compare_digest(
                signature.encode("utf-8", "surrogatepass"), signature_of(unsigned, key).encode()
            )
            if good:
                self.matches.append("the signature of the certificate is that of the key")
            else:
                self.problems.append("the certificate was not signed with this key")
        if document is None:
            self.unchecked.append(f"which model it is about: SHA-256 {bound['model_sha256'][:64]}")
        else:
            what = "SHA-256 of the class, parameters, numbers and certificate of the model"
            self._compare(what, bound["model_sha256"], digest_of(document["model"]))

    def model(self, statement: Any, certificate: Mapping[str, Any], record: Any) -> None:
        """Compare the certificate with the one in the model, and its releases with the model's."""
        try:
            self._model(statement, certificate, record)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            self.problems.append("the model has not the form that save_model writes")

    def _model(self, statement: Any, certificate: Mapping[str, Any], record: Any) -> None:
        leaves = list(_leaves(record, ""))
        if isinstance(statement, PipelineStatement):
            found = [(name, leaf["class"], leaf.get("privacy")) for name, leaf in leaves]
            stated = [(s["name"], s["estimator"], s["statement"]) for s in certificate["steps"]]
            self._compare("steps, classes and certificate of every step", stated, found)
            if stated != found:
                return
            pairs = [
                (step.statement, leaf)
                for step, (_, leaf) in zip(statement.steps, leaves, strict=True)
            ]
        else:
            own = [leaf for _, leaf in leaves if "privacy" in leaf]
            if not any(leaf["privacy"] == certificate for leaf in own):
                self.problems.append("the model has another certificate")
                return
            self.matches.append("the certificate that the model itself holds")
            pairs = [(statement, leaf) for leaf in own if leaf["privacy"] == certificate]
        for each, leaf in pairs:
            if isinstance(each, PrivacyStatement):
                self._releases(each, leaf)
            elif isinstance(each, FederatedStatement):
                self._parties(each, leaf)
            elif each is not None:
                self.unchecked.append(
                    "what single runs of the search released: only the winner is in the model"
                )

    def _releases(self, s: PrivacyStatement, leaf: Mapping[str, Any]) -> None:
        """Compare what a fit published with the releases that its certificate lists."""
        facts, given = leaf["attributes"], leaf["parameters"]
        d = facts["n_features_in_"]
        for name in ("adjacency", "noise", "data_norm"):
            stated = {
                "adjacency": s.adjacency,
                "noise": "gamma" if s.delta == 0.0 else "gaussian",
                "data_norm": s.sensitivity.data_norm if s.sensitivity is not None else None,
            }[name]
            pipeline = leaf["class"] in ("PrivateLinearSVC", "PrivateKernelSVC")
            if name in given and stated is not None and not (pipeline and name == "data_norm"):
                self._compare(name, stated, given[name])
        counted = int(s.adjacency == "add_remove")
        names = [part.name for part in s.parts]
        shapes = {part.name: part.shape for part in s.parts}
        expected: dict[str, tuple[int, ...]] = {}
        if facts.get("centre_", facts.get("mean_")) is not None and "components_" not in facts:
            expected["centre"] = (d + counted,)
        if facts.get("whitening_") is not None:
            expected["whitening"] = (d, d)
        if "components_" in facts:
            expected["components"] = (d, d)
        if "scale_" in facts:
            del expected["centre"]
            both = facts["scale_"] is not None
            expected["moments" if both else "means"] = (d * (1 + both) + counted,)
        if counted and "centre" not in expected and facts.get("n_samples_") is not None:
            expected["count"] = (1,)
        if "ellipsoids_" in facts:
            self._ellipsoids(s, facts, names)
        elif "coef_" in facts:
            self._weights(s, leaf, expected)
        else:
            self._compare("noisy sums and their shapes", shapes, expected)

    def _weights(
        self, s: PrivacyStatement, leaf: Mapping[str, Any], expected: dict[str, tuple[int, ...]]
    ) -> None:
        """Compare the releases before the weights, and the weights."""
        facts = leaf["attributes"]
        before = {part.name: part.shape for part in s.parts if part.name != "training"}
        self._compare("noisy sums before the weights, and their shapes", before, expected)
        coef = facts["coef_"]["shape"]
        pair = coef[0] == 1 and s.loss in PAIRWISE
        shape = (coef[0] + pair, coef[1] + int(bool(leaf["parameters"]["fit_intercept"])))
        stated = [part.shape for part in s.parts if part.name == "training"]
        stated += [s.noise.shape] if s.noise is not None else []
        self._compare("shape of the weights", sorted(set(stated)), [shape])
        self._compare("loss", s.loss, facts["fitted_loss"]["name"])
        if "mechanism_" not in facts:
            return
        kind = "objective" if s.objective is not None else "output"
        self._compare("training", "gradient" if s.noise is None else kind, facts["mechanism_"])
        steps = [part.n_steps for part in s.parts if part.name == "training"]
        self._compare("number of steps", steps[0] if steps else None, facts["n_steps_"])
        several = facts["mechanism_"] == "output" and s.delta > 0.0 and bool(s.parts)
        if s.noise is not None:
            releases = RELEASES_OF_OUTPUT if several else 1
            self._compare("number of releases of weights", weight_releases(s), releases)
        for name, mu in facts["mu_"].items():
            own = [
                (event.sensitivity / event.sigma) ** 2
                for part, event in zip(s.parts, s.events, strict=False)
                if part.name == name and isinstance(event, GaussianEvent)
            ]
            same = math.isclose(math.sqrt(math.fsum(own)), mu, rel_tol=MU_SLACK)
            self._compare(f"Gaussian parameter of {name}", mu if same else own, mu)

    def _ellipsoids(self, s: PrivacyStatement, facts: Mapping[str, Any], names: list[str]) -> None:
        """Compare the ellipsoids with the noise, and the sums that placed them."""
        n_classes, each, side, _ = facts["ellipsoids_"]["shape"]
        numbers = (n_classes * each, math.comb(side + 1, 2))
        self._compare("shape of the ellipsoids", s.noise and s.noise.shape, numbers)
        before = ["anchors"] * ANCHOR_STEPS if each > 1 else []
        self._compare("number of noisy sums before the ellipsoids", len(names), len(before))

    def _parties(self, s: FederatedStatement, leaf: Mapping[str, Any]) -> None:
        """Compare a model of many parties with the sums that were paid for."""
        facts = leaf["attributes"]
        survivors = facts["n_survivors_"]
        enough = s.min_survivors <= survivors <= s.n_users
        if not enough:
            self.problems.append(f"the model is the sum of {survivors} parties: too few, or many")
        reduced = "components_" in facts
        paid = any(part.name == "gram" for part in s.rounds) or bool(s.local_events)
        paid = paid and s.algorithm == "fed_dpdr"
        self._compare("release of components" if paid else "absence of components", paid, reduced)


def _leaves(record: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every estimator of a model that is not made of others, with the names down to it."""
    if record["class"] not in ("Pipeline", "PrivatePipeline"):
        yield name or record["class"].lower(), record
        return
    for step, inner in record["steps"]:
        if inner is not None:
            yield from _leaves(inner, f"{name}__{step}" if name else step)


RELATION_FACTOR = {"add_remove": 1, "replace_one": 2}

# The recomputation rounds to nearest and the promise rounded outward; both stay far within these.
DELTA_SLACK = 1e-9

EPSILON_SLACK = 1e-12
# Most releases of weights by one fit.
WEIGHT_RELEASES = 8

MECHANISMS = ("output_perturbation", "objective_perturbation", *PARTS)


def verify(
    certificate: Mapping[str, Any] | str | Statement,
    *,
    model: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    key: bytes | None = None,
) -> Verification:
    """Check that the promise of a certificate follows from the numbers in it.

    Parameters
    ----------
    certificate : PrivacyStatement, PipelineStatement, SelectionStatement, FederatedStatement, \
dict or str
        A statement, its ``to_dict()`` or its ``to_json()``; or what
        :func:`dpsvm_fast.persist.save_certificate` wrote.
    model : path, mapping or None, default=None
        File that ``save_model`` wrote, or what it holds: certificate and model are compared,
        release by release. ``matches`` of the result says what is the same.
    key : bytes or None, default=None
        Secret that a certificate with the digest of a model was signed with.

    Returns
    -------
    Verification
        False for anything that cannot be read: another version, unknown fields, not private. Also
        false where the check does not compose so much (``undecided``): more than eight losses that
        are known as curves, such as those of noise in objectives, or work of more than about half a
        minute, far beyond what fits write.

    Raises
    ------
    TypeError
        An argument of another type.
    InvalidParameterError
        ``model`` is no file that ``save_model`` wrote, or was changed after that.
    OSError
        It cannot be read.

    Notes
    -----
    Guarantees: a certificate that passes states an epsilon and a delta which follow, by the
    theorems it names, from its own sensitivity and noise. Every word in it follows from its
    numbers or is in ``stated``, which nobody checked. What no recomputation can show is said at the
    end of ``str(verify(...))``.

    Examples
    --------
    >>> from dpsvm_fast.verification import verify
    >>> print(verify("[]"))
    The certificate does NOT hold.
      - Statement: got list, expected a mapping
    """
    if not isinstance(certificate, (str, Mapping, Statement)):
        raise TypeError(
            f"certificate: got {type(certificate).__name__}, expected a PrivacyStatement, a dict "
            "or a JSON string"
        )
    document = None if model is None else model_document(model)
    try:
        statement, record, bound = read_loosely(certificate)
        words = statement.word_problems(record)
    except (TypeError, ValueError) as error:
        return Verification(ok=False, problems=(str(error),), epsilon=None, delta=None)
    try:
        with limited_work(), np.errstate(all="ignore"):
            if isinstance(statement, PipelineStatement):
                found = _verify_pipeline(statement)
            else:
                found = _verify_step(statement)
    except TooMuchWorkError:
        problems = (TOO_MUCH_WORK,)
        found = Verification(ok=False, problems=problems, epsilon=None, delta=None, undecided=True)
    except (ArithmeticError, IndexError, ValueError):
        # Of numbers that no fit writes: what they overflow, or leave empty, cannot be listed.
        return Verification(ok=False, problems=(NO_ARITHMETIC,), epsilon=None, delta=None)
    compared = Comparison()
    compared.seal(bound, document, key)
    if document is not None:
        compared.model(statement, record, document["model"])
    found = replace(
        found,
        matches=tuple(compared.matches),
        stated=(*(f"not compared: {text}" for text in compared.unchecked), *found.stated),
    )
    wrong = (*words, *compared.problems)
    if not wrong:
        return found
    known = () if found.undecided else found.problems
    return replace(found, ok=False, undecided=False, problems=(*wrong, *known))


def _verify_statement(statement: PrivacyStatement) -> Verification:
    """One release."""
    problems = [*_standing(statement), *_loss_problems(statement), *check_parts(statement)]
    s, noise = statement.sensitivity, statement.noise
    if s is not None and noise is not None:
        problems += _sensitivity_problems(statement, s, noise)
        problems += check_objective(statement, s, noise)
        problems += _event_problems(statement, s, noise)
        problems += reserved_problems(statement)
    elif len(statement.events) > len(statement.parts):
        problems.append("there are more events than noisy sums")
    return _outcome(statement, problems, *_recomputed(statement))


def _verify_pipeline(whole: PipelineStatement) -> Verification:
    """Several releases: each by itself, and what they add up to."""
    problems = [f"not private: {reason}" for reason in whole.not_private_reasons]
    for step in whole.steps:
        if step.statement is not None:
            found = _verify_step(step.statement)
            # What cannot be told of one of them cannot be told of all together either.
            own = () if found.undecided else found.problems
            problems += [f"{step.title}: {problem}" for problem in own]
    # Each statement's events say what its numbers say; together they are the whole.
    recomputed = recomputed_events(whole.events, whole.epsilon, whole.delta)
    return _outcome(whole, problems, *recomputed)


def _verify_step(statement: Statement) -> Verification:
    """One of several releases."""
    if isinstance(statement, SelectionStatement):
        return _verify_selection(statement)
    if isinstance(statement, FederatedStatement):
        return _verify_federated(statement)
    assert isinstance(statement, PrivacyStatement)
    return _verify_statement(statement)


def _verify_selection(search: SelectionStatement) -> Verification:
    """A search: its choice by itself, and all its events together."""
    recomputed = recomputed_events(search.events, search.epsilon, search.delta)
    return _outcome(search, check_selection(search), *recomputed)


def _verify_federated(trained: FederatedStatement) -> Verification:
    """Training across parties: its sums by themselves, and all its events together."""
    recomputed = recomputed_events(trained.events, trained.epsilon, trained.delta)
    return _outcome(trained, check_federated(trained), *recomputed)


def _outcome(
    claim: Statement,
    problems: list[str],
    epsilon: float,
    delta: float,
    holds: bool | None,  # noqa: FBT001 - the last of three recomputed values
) -> Verification:
    """All problems, that of the claim last."""
    if holds is None and not problems:
        return Verification(
            ok=False, problems=(UNDECIDED,), epsilon=None, delta=None, undecided=True
        )
    if holds is not None and not holds:
        problems = [
            *problems,
            f"the noise does not give epsilon = {claim.epsilon!r} with delta = {claim.delta!r}",
        ]
    return Verification(
        ok=not problems,
        problems=tuple(problems),
        epsilon=epsilon,
        delta=delta,
        stated=stated(claim),
    )


def _standing(statement: PrivacyStatement) -> list[str]:
    """Reasons for which the numbers do not matter."""
    problems = [f"not private: {reason}" for reason in statement.not_private_reasons]
    if statement.random_source != "operating_system":
        problems.append("the noise does not come from the operating system's entropy")
    if statement.mechanism not in MECHANISMS:
        problems.append(f"unknown mechanism {statement.mechanism!r}")
    elif statement.mechanism == "gaussian_margin":
        # Noisy sums are there where a class has several ellipsoids.
        if statement.objective is None:
            problems.append("gaussian_margin has no noise in the objective")
    elif statement.mechanism in ("private_linear", "private_kernel"):
        # Trained by noisy sums, or by one of the two mechanisms that have noise on the weights.
        if (statement.noise is None) != any(part.name == "training" for part in statement.parts):
            problems.append("expected either noisy sums for training or noise on the weights")
    elif (statement.mechanism == "objective_perturbation") != (statement.objective is not None):
        problems.append("noise in the objective belongs to objective_perturbation alone")
    elif (statement.mechanism in PARTS) != (statement.noise is None):
        problems.append(f"noise on the weights does not belong to {statement.mechanism}")
    return problems


def _loss_problems(statement: PrivacyStatement) -> list[str]:
    """Whether there is a loss where something was trained, and none where nothing was."""
    trained = statement.noise is not None or any(p.name == "training" for p in statement.parts)
    known = statement.loss == "none" or lipschitz_of(statement.loss, 2) is not None
    if known and trained == (statement.loss != "none"):
        return []
    return [f"loss {statement.loss!r} of what was {'' if trained else 'not '}trained"]


def _sensitivity_problems(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> list[str]:
    """Numbers of the sensitivity that do not follow from the ones before them."""
    lipschitz = lipschitz_of(statement.loss, scores_of(statement, noise.shape[0]))
    if lipschitz is None:
        return [f"unknown loss {statement.loss!r}"]
    problems = []
    if s.relation_factor != RELATION_FACTOR[statement.adjacency]:
        problems.append(f"relation_factor is not that of {statement.adjacency}")
    # Each from the certificate's own earlier numbers, so one lie is reported once.
    problems += follows("lipschitz", s.lipschitz, lipschitz)
    problems += follows("row_norm", s.row_norm, math.hypot(s.data_norm, s.intercept_scaling))
    if statement.descent is not None:
        problems += _descent_problems(statement, statement.descent, s, noise)
    elif statement.objective is None:
        exact = s.relation_factor * s.C * s.lipschitz * s.row_norm
        problems += follows("exact", s.exact, exact)
    elif s.exact != 0.0:
        problems.append("exact is not 0, the distance of minimisers that coincide")
    problems += follows("rounding", s.rounding, _rounding(noise))
    problems += follows("total", s.total, s.exact + 2.0 * s.solver_radius + s.rounding)
    if noise.grid is not None and math.frexp(noise.grid)[0] != 0.5:
        problems.append("grid is not a power of two")
    return problems


def _descent_problems(
    statement: PrivacyStatement, descent: Descent, s: Sensitivity, noise: Noise
) -> list[str]:
    """Whether projected SGD was within the reach of its theorem, and moves no further."""
    problems = follows("exact", s.exact, descent_sensitivity(s, descent, noise.shape[0]))
    if statement.adjacency != "replace_one":
        problems.append("projected SGD is private for replace_one only")
    if statement.loss == "crammer_singer":
        problems.append("projected SGD needs a smooth loss")
    if statement.objective is not None:
        problems.append("projected SGD does not minimise an objective with noise inside")
    return problems


def _rounding(noise: Noise) -> float:
    """How far rounding to the grid can move two sets of weights apart, before the noise."""
    if noise.sampler != "exact_grid" or noise.grid is None:
        return 0.0
    return noise.grid * math.sqrt(noise.n_weights)


def _event_problems(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> list[str]:
    """Compare: the events must say what the noises say: they are what ledgers were charged."""
    events, objective = weight_events(statement), statement.objective
    # Behind noisy sums weights may be released several times, always with the same noise.
    most = WEIGHT_RELEASES if statement.parts and objective is None else 1
    if not 1 <= len(events) <= most:
        return [f"{len(events)} events for the weights, expected 1 to {most}"]
    if any(event.adjacency != statement.adjacency for event in statement.events):
        return ["an event is of another neighbouring relation"]
    matches = all(_event_matches(statement, s, noise, event) for event in events)
    if objective is not None:
        inside = statement.events[len(statement.parts)]
        matches = matches and objective_event_matches(statement, objective, inside)
    return [] if matches else ["the events do not describe the noise"]


def _event_matches(
    statement: PrivacyStatement, s: Sensitivity, noise: Noise, event: PrivacyEvent
) -> bool:
    """Whether an event says what the noise added to the weights says."""
    if noise.distribution == "gaussian":
        return (
            isinstance(event, GaussianEvent)
            and event.sigma == noise.sigma
            and event.sensitivity == s.total
        )
    return (
        isinstance(event, PureEvent)
        and _pure_epsilon(s, noise) <= event.epsilon * (1.0 + EPSILON_SLACK)
        and event.epsilon <= _pure_epsilon(s, noise) * (1.0 + EXCESS)
        and event.epsilon <= statement.epsilon
    )


def _recomputed(statement: PrivacyStatement) -> tuple[float, float, bool | None]:
    """Epsilon at the claimed delta, delta at the claimed epsilon, and whether the claim holds."""
    objective = statement.objective
    share, holds = ((0.0, 0.0), True)
    if objective is not None:
        share, holds = objective_share(statement, objective)
    s, noise = statement.sensitivity, statement.noise
    if statement.parts or s is None or noise is None:
        epsilon, delta, both = recomputed_events(
            statement.events, statement.epsilon, statement.delta
        )
        return epsilon, delta, both if holds else False
    return _of_weights(statement, s, noise, share, holds=holds)


def _of_weights(
    statement: PrivacyStatement,
    s: Sensitivity,
    noise: Noise,
    first: tuple[float, float],
    *,
    holds: bool,
) -> tuple[float, float, bool]:
    """The same without noisy sums.

    With noise in the objective, epsilon and delta are the sums over the two noises, each at its own
    share of the budget: what the noise in the objective does not claim is left to the other one.
    """
    epsilon, delta, objective = statement.epsilon, statement.delta, statement.objective
    if objective is not None:
        epsilon, delta = epsilon - objective.epsilon, delta - objective.delta
    if noise.sigma is None:
        second = _pure_epsilon(s, noise)
        holds = holds and second <= epsilon + EPSILON_SLACK * statement.epsilon
        return first[0] + second, first[1] + (0.0 if holds else 1.0), holds
    if not (epsilon > 0.0 and delta > 0.0):
        return math.inf, 1.0, False
    mu = s.total / noise.sigma
    second_delta = gaussian_delta(epsilon, mu)
    holds = holds and second_delta <= delta * (1.0 + DELTA_SLACK)
    return first[0] + gaussian_epsilon(delta, mu), min(1.0, first[1] + second_delta), holds


def _pure_epsilon(s: Sensitivity, noise: Noise) -> float:
    """Epsilon of noise with density ~ exp(-beta ||b||)."""
    return math.inf if noise.beta is None else noise.beta * s.total
