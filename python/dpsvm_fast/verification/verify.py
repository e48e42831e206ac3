"""Verify a certificate: recompute its guarantee from its numbers, with or without the model.

The module deliberately shares no numerical code with the calibration of the noise, and has its own
table of losses.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates import record as field
from dpsvm_fast.certificates.record import Record, read_json
from dpsvm_fast.certificates.render import bullets, paragraphs
from dpsvm_fast.certificates.statement import (
    FederatedStatement,
    PrivacyStatement,
    SelectionStatement,
    Statement,
    canonical,
    digest_of,
    read_unchecked,
    signature_of,
)
from dpsvm_fast.certificates.words import CAVEATS, UNITS, stated
from dpsvm_fast.exceptions import InvalidParameterError, ModelFormatError
from dpsvm_fast.files import read_bytes
from dpsvm_fast.validation import check_path, check_type
from dpsvm_fast.verification.compose import recomputed_events
from dpsvm_fast.verification.losses import TooMuchWorkError, limited_work
from dpsvm_fast.verification.releases import (
    CHECKS,
    WESTON_WATKINS,
    objective_share,
    recomputed_weights,
)

# Results of recomputing a certificate.


UNDECIDED = (
    "the total epsilon and delta are not recomputed: this check composes at most eight numerical "
    "privacy profiles (noise in objectives, best of several runs); here there are more"
)

NOT_CONFIRMED = (
    "the upper bound of this check is above the claim, and no lower bound refutes it: its bounds "
    "are a few ten-thousandths of delta wide, or more at unusual settings"
)

TOO_MUCH_WORK = "it is not recomputed: that takes far longer than for any certificate of one fit"

NOT_SHOWN = (
    "Recomputation cannot show that the noise was drawn as stated and without a seed, that nothing "
    "else was released from these rows, that rows were clipped and grouped by person as stated, or "
    "that what is assumed public is public."
)

NO_ARITHMETIC = "its numbers are too large or too small to compute with"


@dataclass(frozen=True)
class Verification:
    """Result of ``verify``; true if the certificate is consistent and its guarantee holds.

    Parameters
    ----------
    ok : bool
    problems : tuple of str
        What does not follow or is undecided; empty if ``ok``.
    epsilon : float or None
        Recomputed epsilon at the claimed delta; None if the certificate cannot be read or the claim
        cannot be recomputed.
    delta : float or None
        Recomputed delta at the claimed epsilon.
    undecided : bool, default=False
        Whether the claim is neither confirmed nor refuted: no error was found, but the recomputed
        upper bound is above the claim, or this check cannot compose that many different privacy
        laws. Never with ``ok``.
    stated : tuple of str
        Words of the certificate that follow from nothing else in it: the maker's statements, which
        are not checked.
    matches : tuple of str
        What was compared with a model and agrees; empty without a model.
    forbidden : tuple of str
        What a policy forbids in a guarantee that holds; empty without a policy. Never with ``ok``.
    """

    ok: bool
    problems: tuple[str, ...]
    epsilon: float | None
    delta: float | None
    undecided: bool = False
    stated: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        numbers = (
            ""
            if self.epsilon is None or self.delta is None
            else f" Recomputed: epsilon = {self.epsilon:.6g}, delta = {self.delta:.6g}."
        )
        if self.ok:
            lines = [f"The certificate holds: its numbers are consistent.{numbers}"]
            if self.matches:
                lines += ["Compared with the model and equal:"]
                lines += bullets(self.matches)
            if self.stated:
                lines += ["Stated by the maker, not checked:"]
                lines += bullets(self.stated)
            return "\n".join([*lines, *paragraphs(NOT_SHOWN)])
        if self.forbidden:
            lines = [f"The certificate holds, but the policy does NOT allow it.{numbers}"]
            return "\n".join([*lines, *bullets(self.forbidden)])
        verdict = (
            "The certificate cannot be confirmed."
            if self.undecided
            else "The certificate does NOT hold."
        )
        return verdict + numbers + "".join(f"\n  - {problem}" for problem in self.problems)


@dataclass(frozen=True, kw_only=True)
class Policy(Record):
    """Rules that a guarantee must satisfy to be accepted.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
        Largest accepted value.
    delta : float in [0, 1)
        Largest accepted value.
    adjacency : tuple of {"add_remove", "replace_one"}, default=()
        Accepted neighbouring relations; empty accepts both.
    unit : tuple of {"row", "person", "party"}, default=()
        Accepted units, as stated by the maker; empty accepts all.
    exact_noise : bool, default=False
        Whether all noise must be drawn exactly, not in floating point.
    forbidden_caveats : tuple of str, default=()
        Names of caveats that are not accepted: "floating_point", "running_time", "precision",
        "max_iter", "max_samples", "cluster", "number_of_runs", "empty_parts"; for training across
        parties "passive_server", "honest_parties", "computational", "trusted_curator", "aborts",
        "time_of_parties", "sizes_of_parties".

    Raises
    ------
    TypeError, InvalidParameterError
        A field has the wrong type or is outside its range.
    """

    epsilon: field.Epsilon
    delta: field.Delta
    adjacency: field.Several[field.Adjacency] = ()
    unit: field.Several[Annotated[str, field.Options(*UNITS)]] = ()
    exact_noise: Annotated[bool, field.OmitIfDefault()] = False
    forbidden_caveats: field.Several[Annotated[str, field.Options(*CAVEATS)]] = ()

    @classmethod
    def read(cls, record: object) -> Policy:
        """Read a policy from plain values, as in a TOML file; refuse unknown names."""
        if isinstance(record, Mapping) and record.get("exact_noise") is False:
            record = {name: value for name, value in record.items() if name != "exact_noise"}
        return super().read(record)

    def violations(self, statement: Statement) -> list[str]:
        """Return what the policy forbids in a statement."""
        found = [
            f"{name} is {getattr(statement, name):g}, at most {getattr(self, name):g} is allowed"
            for name in ("epsilon", "delta")
            if getattr(statement, name) > getattr(self, name)
        ]
        stated = {"adjacency": statement.adjacency, "unit": statement.unit}
        for name, own in stated.items():
            accepted = getattr(self, name)
            if accepted and own not in accepted:
                found.append(f"{name} is {own}, {' or '.join(accepted)} is required")
        caveats = statement.uncovered
        if self.exact_noise and "floating_point" in caveats:
            found.append("noise was drawn in floating point, exact noise is required")
        forbidden = [name for name in caveats if name in self.forbidden_caveats]
        return found + [f"caveat {name}: {CAVEATS[name]}" for name in forbidden]


# Comparison of a certificate with a model: the model's file and the releases paid for.
#
# The file is read as plain JSON, without the code that saves and loads models; arrays are known by
# their shapes. A certificate may come with a digest of the model (``bound_certificate``), which is
# worth as much as its signature.


MODEL = "dpsvm_fast.model"
# Fields of a model's file under its digest.
CONTENTS = ("format", "version", "library_version", "model", "schema")
# Releases of weights of a pipeline, after its noisy sums.
RELEASES_OF_OUTPUT = 4
# How often the cells of several ellipsoids are summed.
ANCHOR_STEPS = 3

MU_SLACK = 1e-9
# Losses with one score for each of two classes.
PAIRWISE = ("crammer_singer", "margin_distance", *WESTON_WATKINS)
# Classes that set the norm of rows themselves.
PIPELINES = ("PrivateLinearSVC", "PrivateKernelSVC")
# The class whose further calls spend more than its parameter says.
CONTINUED = "GradientPerturbationSVC"
# Terms that parties agree on, and the promise.
AGREED = (
    *("algorithm", "epsilon", "delta", "n_users", "honest_fraction", "max_dropout"),
    *("min_survivors", "unit"),
)
# Errors raised by comparing a record of another form.
FORMLESS = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
NO_FORM = "the model does not have the form that save_model writes"
# Mechanism of each class.
MECHANISMS = {
    "OutputPerturbationSVC": "output_perturbation",
    "ObjectivePerturbationSVC": "objective_perturbation",
    "GradientPerturbationSVC": "gradient_perturbation",
    "PrivateGaussianMarginClassifier": "gaussian_margin",
    "PrivateLinearSVC": "private_linear",
    "PrivateKernelSVC": "private_kernel",
    "PrivateCenter": "private_center",
    "PrivateWhitener": "private_whitener",
    "PrivatePCA": "private_pca",
    "PrivateStandardScaler": "private_standard_scaler",
}


def model_document(model: Mapping[str, Any] | str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the contents of a model file.

    Raises
    ------
    InvalidParameterError
        The file was not written by ``save_model``, or was changed afterwards.
    OSError
        The file cannot be read.
    """
    document: Any = model
    if not isinstance(model, Mapping):
        path = Path(check_path("model", model))
        if path.exists() and not path.is_file():
            raise InvalidParameterError("model: expected a file, not a folder, pipe or device")
        try:
            data = read_bytes(path)
            text = data.decode("utf-8-sig")
            # A large file need not be in memory twice.
            del data
            document = read_json(text)
        except ModelFormatError as error:
            raise InvalidParameterError(f"model: the file {error}") from None
        except ValueError:
            document = None
    if not isinstance(document, Mapping) or document.get("format") != MODEL:
        raise InvalidParameterError("model: expected a file that save_model wrote")
    if set(CONTENTS) - set(document) or not isinstance(document["model"], Mapping):
        raise InvalidParameterError("model: fields that save_model writes are missing")
    digest = hashlib.sha256(canonical({name: document[name] for name in CONTENTS})).hexdigest()
    if document.get("sha256") != digest:
        raise InvalidParameterError("model: the file was changed after save_model wrote it")
    return document


class Comparison:
    """Comparison of a certificate with a model.

    Attributes
    ----------
    problems, matches, unchecked : list of str
        Differences, agreements, and parts that could not be compared.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.matches: list[str] = []
        self.unchecked: list[str] = []

    def _compare(self, what: str, stated: object, found: object) -> None:
        """Record whether two facts are the same."""
        if stated == found:
            self.matches.append(what)
        else:
            self.problems.append(
                f"the model has another {what}: {found!r}, the certificate {stated!r}"
            )

    def seal(
        self,
        bound: Mapping[str, Any] | None,
        document: Mapping[str, Any] | None,
        key: bytes | None,
    ) -> None:
        """Compare signature and digest."""
        signature = None if bound is None else bound["hmac_sha256"]
        if signature is None and key is not None:
            self.problems.append("a key was given, but the certificate is not signed")
        if bound is None:
            if document is not None:
                self.unchecked.append(
                    "the numbers of the model: the certificate has no digest of them"
                )
            return
        if signature is None:
            self.unchecked.append("the digest of the model: unsigned, so anyone can write one")
        elif key is None:
            self.unchecked.append("the signature of the certificate: no key was given")
        else:
            unsigned = {name: value for name, value in bound.items() if name != "hmac_sha256"}
            # Reading it has shown that it is hexadecimal.
            if hmac.compare_digest(signature, signature_of(unsigned, key)):
                self.matches.append("the signature of the certificate matches the key")
            else:
                self.problems.append("the certificate was not signed with this key")
        if document is None:
            self.unchecked.append(f"the model: SHA-256 {bound['model_sha256'][:64]}")
        else:
            what = "SHA-256 of the class, parameters, numbers and certificate of the model"
            self._compare(what, bound["model_sha256"], digest_of(document["model"]))

    def model(self, statement: Any, certificate: Mapping[str, Any], record: Any) -> None:
        """Compare the certificate and its releases with those of the model."""
        try:
            self._model(statement, certificate, record)
        except FORMLESS:
            self.problems.append(NO_FORM)

    def _model(self, statement: Any, certificate: Mapping[str, Any], record: Any) -> None:
        leaves = list(_leaves(record, ""))
        if statement.inside:
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
            if type(each) is SelectionStatement:
                self._compare("class", "PrivateGridSearch", leaf["class"])
            if each is not None:
                COMPARED[type(each)](self, each, leaf)

    def fit(self, statement: Statement, leaf: Mapping[str, Any]) -> None:
        """Compare the statement of one fit with its published attributes."""
        try:
            COMPARED[type(statement)](self, statement, leaf)
        except FORMLESS:
            self.problems.append(NO_FORM)

    def _given(self, stated: Mapping[str, object], given: Mapping[str, Any]) -> None:
        """Compare facts with parameters of the same names, if any."""
        for name in stated:
            if name in given:
                self._compare(name, stated[name], given[name])

    def _search(self, s: SelectionStatement, leaf: Mapping[str, Any]) -> None:
        """Compare a search with its parameters; the winner had a smaller budget than the search."""
        given = leaf["parameters"]
        names: tuple[str, ...] = ("epsilon", "delta", "adjacency", "strategy")
        if leaf["class"] != "PrivateGridSearch":
            names = ("adjacency",)
            for name in ("epsilon", "delta"):
                if given[name] > getattr(s, name):
                    self.problems.append(f"the parameter {name} is larger than that of the search")
        self._given({name: getattr(s, name) for name in names}, given)
        self.unchecked.append("the runs of the search: only the winner is in the model")

    def _releases(self, s: PrivacyStatement, leaf: Mapping[str, Any]) -> None:
        """Compare published attributes with the releases in the certificate."""
        facts, given = leaf["attributes"], leaf["parameters"]
        known = MECHANISMS[leaf["class"]]
        if leaf["class"] in PIPELINES and not s.parts:
            # Nothing is released before the weights.
            known = f"{facts['mechanism_']}_perturbation"
        self._compare("mechanism", s.mechanism, known)
        # A mapped row may have a constant behind its features.
        d, splines = facts["n_features_in_"], facts.get("splines_")
        if splines is not None:
            # One function at each knot, but a column that is only scaled has a single one.
            d = sum(map(len, splines["knots"])) - sum(splines["linear"])
        d += facts.get("lift_", 0.0) > 0.0
        stated: dict[str, object] = {"adjacency": s.adjacency}
        if leaf["class"] != CONTINUED or s.epsilon <= given["epsilon"]:
            stated["epsilon"] = s.epsilon
        if given.get("noise") != "gamma":
            stated["delta"] = s.delta
        stated["noise"] = "gamma" if s.delta == 0.0 else "gaussian"
        if s.sensitivity is not None and leaf["class"] not in PIPELINES:
            stated["data_norm"] = s.sensitivity.data_norm
        self._given(stated, given)
        counted = int(s.adjacency == "add_remove")
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
        if given.get("class_weight") == "balanced":
            expected["classes"] = (len(facts["classes_"]["values"]),)
        if "ellipsoids_" in facts:
            self._ellipsoids(s, facts, expected)
        elif "coef_" in facts:
            self._weights(s, leaf, expected)
        else:
            self._compare("noisy sums and their shapes", shapes, expected)

    def _weights(
        self, s: PrivacyStatement, leaf: Mapping[str, Any], expected: dict[str, tuple[int, ...]]
    ) -> None:
        """Compare the weights, and the releases before them."""
        facts = leaf["attributes"]
        before = {part.name: part.shape for part in s.parts if part.name != "training"}
        self._compare("noisy sums before the weights, and their shapes", before, expected)
        coef = facts["coef_"]["shape"]
        pair = coef[0] == 1 and s.loss in PAIRWISE
        added = int(bool(leaf["parameters"]["fit_intercept"]))
        added += facts.get("lift_coef_") is not None
        shape = (coef[0] + pair, coef[1] + added)
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
            self._compare("number of releases of weights", s.noise.n_releases, releases)
        for name, mu in facts["mu_"].items():
            own = [
                event.mu**2
                for part, event in zip(s.parts, s.events, strict=False)
                if part.name == name and event.mu is not None
            ]
            same = math.isclose(math.sqrt(math.fsum(own)), mu, rel_tol=MU_SLACK)
            self._compare(f"Gaussian parameter of {name}", mu if same else own, mu)

    def _ellipsoids(self, s: PrivacyStatement, facts: Any, expected: Any) -> None:
        """Compare the ellipsoids, and the sums before them, with the noise."""
        n_classes, each, side, _ = facts["ellipsoids_"]["shape"]
        numbers = (n_classes * each, math.comb(side + 1, 2))
        self._compare("shape of the ellipsoids", s.noise and s.noise.shape, numbers)
        self._compare("loss", s.loss, facts["fitted_loss"]["name"])
        anchors = ("anchors", (n_classes * each, side))
        before = [*expected.items(), *[anchors] * (ANCHOR_STEPS if each > 1 else 0)]
        stated = [(part.name, part.shape) for part in s.parts]
        self._compare("noisy sums before the ellipsoids, and their shapes", stated, before)

    def _parties(self, s: FederatedStatement, leaf: Mapping[str, Any]) -> None:
        """Compare a model of many parties with the charged sums."""
        facts, spec = leaf["attributes"], leaf["parameters"]["spec"]
        for name in AGREED:
            self._compare(name, getattr(s, name), spec[name])
        survivors = facts["n_survivors_"]
        enough = s.min_survivors <= survivors <= s.n_users
        if not enough:
            self.problems.append(f"the model sums {survivors} parties: too few or too many")
        reduced = "components_" in facts
        paid = any(part.name == "gram" for part in s.rounds) or bool(s.local_events)
        paid = paid and s.algorithm == "fed_dpdr"
        self._compare("release of components" if paid else "absence of components", paid, reduced)


# How a statement of each kind is compared with what its fit published.
COMPARED: dict[type[Statement], Callable[[Comparison, Any, Mapping[str, Any]], None]] = {
    PrivacyStatement: Comparison._releases,
    FederatedStatement: Comparison._parties,
    SelectionStatement: Comparison._search,
}


def _leaves(record: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every innermost estimator of a model, with the path of names to it."""
    if record["class"] not in ("Pipeline", "PrivatePipeline"):
        yield name or record["class"].lower(), record
        return
    for step, inner in record["steps"]:
        if inner is not None:
            yield from _leaves(inner, f"{name}__{step}" if name else step)


@in_usual_arithmetic
def verify(
    certificate: Mapping[str, Any] | str | Statement,
    *,
    model: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    key: bytes | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
) -> Verification:
    """Check that the guarantee of a certificate follows from its numbers.

    Parameters
    ----------
    certificate : PrivacyStatement, PipelineStatement, SelectionStatement, FederatedStatement, \
dict or str
        Statement, its ``to_dict()`` or its ``to_json()``; or a text written by
        :func:`dpsvm_fast.persist.save_certificate`.
    model : path, mapping or None, default=None
        File written by ``save_model``, or its content, to compare with the certificate release by
        release. ``matches`` of the result lists what agrees.
    key : bytes or None, default=None
        Key with which a certificate with a model's digest was signed.
    policy : Policy, mapping or None, default=None
        Rules for acceptance. ``forbidden`` of the result lists violations.

    Returns
    -------
    Verification
        False if a number does not follow, the release is not private, or the certificate cannot be
        read (another version, unknown fields). False and ``undecided`` with more than eight
        numerical privacy profiles, such as those of objective perturbation, or more than about 10 s
        of work.

    Raises
    ------
    TypeError
        An argument has the wrong type.
    InvalidParameterError
        ``model`` was not written by ``save_model`` or was changed afterwards, or ``policy`` is not
        a policy.
    OSError
        The file cannot be read.

    Notes
    -----
    Guarantees: the epsilon and delta of a certificate that passes follow, by the theorems it names,
    from its own sensitivity and noise. Every word in it follows from its numbers or is listed in
    ``stated``, which is not checked. ``str(verify(...))`` ends with what no recomputation can show.

    Examples
    --------
    >>> from dpsvm_fast.verification import verify
    >>> print(verify("[]"))
    The certificate does NOT hold.
      - Statement: got list, expected a mapping
    """
    accepted = "a PrivacyStatement, a dict or a JSON string"
    check_type("certificate", certificate, (str, Mapping, Statement), accepted)
    rules = policy if policy is None or isinstance(policy, Policy) else Policy.read(policy)
    document = None if model is None else model_document(model)
    try:
        statement, record, bound = read_unchecked(certificate)
        words = statement.word_problems(record)
    except (TypeError, ValueError) as error:
        return Verification(ok=False, problems=(str(error),), epsilon=None, delta=None)
    try:
        with limited_work():
            found = _verified(statement)
    except TooMuchWorkError:
        problems = (TOO_MUCH_WORK,)
        found = Verification(ok=False, problems=problems, epsilon=None, delta=None, undecided=True)
    except (ArithmeticError, IndexError, ValueError):
        # No fit writes such numbers; their overflows and empty results cannot be listed.
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
        forbidden = tuple(rules.violations(statement)) if found.ok and rules is not None else ()
        return replace(found, ok=found.ok and not forbidden, forbidden=forbidden)
    known = () if found.undecided else found.problems
    return replace(found, ok=False, undecided=False, problems=(*wrong, *known))


def _verified(statement: Statement) -> Verification:
    """Check each release by itself, then the total of all."""
    problems = [f"not private: {reason}" for reason in statement.not_private_reasons]
    if getattr(statement, "random_source", "operating_system") != "operating_system":
        problems.append("the noise does not come from the entropy of the operating system")
    problems += CHECKS[type(statement)](statement)
    for title, inner in statement.inside:
        found = _verified(inner)
        # If one of them is undecided, so is the whole.
        own = () if found.undecided else found.problems
        problems += [f"{title}: {problem}" for problem in own]
    epsilon, delta, holds = _recomputed(statement)
    if holds is None and not problems:
        known = delta < 1.0
        return Verification(
            ok=False,
            problems=(NOT_CONFIRMED if known else UNDECIDED,),
            epsilon=epsilon if known else None,
            delta=delta if known else None,
            undecided=True,
        )
    if holds is not None and not holds:
        claim = f"epsilon = {statement.epsilon!r} with delta = {statement.delta!r}"
        problems.append(f"the noise does not give {claim}")
    return Verification(
        ok=not problems,
        problems=tuple(problems),
        epsilon=epsilon,
        delta=delta,
        stated=stated(statement),
    )


def _recomputed(statement: Statement) -> tuple[float, float, bool | None]:
    """Return the recomputed epsilon and delta, and whether the claim holds.

    The last value is None if the claim is neither confirmed nor refuted.
    """
    shares: bool | None = True
    if isinstance(statement, PrivacyStatement):
        if not statement.parts:
            return recomputed_weights(statement)
        # The share claimed for noise in an objective has to hold by itself.
        shares = statement.objective is None or objective_share(statement, statement.objective)[1]
    found = recomputed_events(statement.events, statement.epsilon, statement.delta)
    return found if shares or found[2] is False else (*found[:2], shares)
