"""What is attacked: certificates, composed events, calibrated noise, fits on neighbours."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import dpsvm_fast
from attacks.climb import Look, Point, Rng, Target
from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    gaussian_epsilon,
    gaussian_sigma,
    objective_sigma,
    subsampled_gaussian_noise_multiplier,
)
from dpsvm_fast.accounting.composition import totals_fit
from dpsvm_fast.accounting.totals import of_events
from dpsvm_fast.audit import Pair, audit_density
from dpsvm_fast.certificates import PrivacyEvent, read_certificate
from dpsvm_fast.verification import verify
from dpsvm_fast.verification.compose import least_gaussian, recomputed_events
from dpsvm_fast.verification.losses import TooMuchWorkError, gaussian_delta, limited_work
from dpsvm_fast.verification.objective import objective_delta as recomputed_objective
from oracles import objective_density
from oracles.coupled import coupled, estimator_run
from oracles.loss_grid import lower_delta
from oracles.objective_pairs import Setting, kernel_of, random_setting
from oracles.statements import MAKERS, statement_of

__all__ = ["TARGETS"]

RELATIONS = ("add_remove", "replace_one")
# Deltas that are looked at; below, lower bounds of sampled steps lose their digits.
SMALLEST, LARGEST = 1e-250, 0.5


def between(rng: Rng, low: float, high: float) -> float:
    """A number whose logarithm is uniform."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def one_event(rng: Rng, relation: str) -> Point:
    """A random event that ``lower_delta`` knows nearly everything about, or an objective."""
    kinds = ("gaussian", "gaussian", "pure", "approximate", "zcdp", "sampled", "objective")
    kind = kinds[int(rng.integers(len(kinds)))]
    fields: Point = {"type": kind, "adjacency": relation}
    if kind == "gaussian":
        return fields | {"sigma": between(rng, 0.1, 1e4), "sensitivity": between(rng, 0.01, 10.0)}
    if kind in ("pure", "approximate"):
        delta = {"delta": between(rng, 1e-12, 1e-2)} if kind == "approximate" else {}
        return fields | {"epsilon": between(rng, 1e-9, 5.0)} | delta
    if kind == "zcdp":
        return fields | {"rho": between(rng, 1e-18, 4.0)}
    if kind == "sampled":
        # Also some so large that their whole law lies in one cell of a grid, and some so small that
        # a rare join loses far more than all else.
        noise = [(0.4, 30.0), (0.4, 30.0), (0.4, 30.0), (30.0, 1e9), (0.03, 0.4)][rng.integers(5)]
        return fields | {
            "type": "subsampled_gaussian",
            "noise_multiplier": between(rng, *noise),
            "sampling_rate": min(1.0, between(rng, 1e-9 if noise[1] < 1.0 else 1e-3, 1.5)),
            "n_steps": int(between(rng, 1.0, 64.0)),
        }
    law = str(rng.choice(["softmax", "logistic", "huber", "weston_watkins"]))
    given = rng.random() < 0.2
    return fields | {
        "_law": law,
        "law": law,
        "n_scores": int(rng.integers(2, 6)),
        "sigma": between(rng, 0.1, 100.0),
        "kappa": None if given else between(rng, 1e-9, 1e6),
        "jacobian": between(rng, 1e-9, 3.0) if given else None,
    }


def several(rng: Rng, relation: str, most: int) -> list[Point]:
    """One event or more."""
    return [one_event(rng, relation) for _ in range(int(rng.integers(1, most + 1)))]


def events_point(rng: Rng, most: int = 4) -> Point:
    """A list of events, perhaps with one that has branches, and an epsilon."""
    relation = str(rng.choice(RELATIONS))
    events = several(rng, relation, most)
    if rng.random() < 0.3:
        branches = [several(rng, relation, 2) for _ in range(int(rng.integers(1, 4)))]
        kind = str(rng.choice(["parallel", "alternatives"]))
        events[0] = {"type": kind, "adjacency": relation, "branches": branches}
    return {"events": events, "epsilon": between(rng, 1e-3, 30.0)}


def events_of(point: Point) -> list[PrivacyEvent]:
    """The events of a point, or a refusal."""
    return [PrivacyEvent.from_dict(record_of(record)) for record in point["events"]]


def record_of(record: Point) -> Point:
    """A record of an event as the library reads it."""
    fields = {name: value for name, value in record.items() if not name.startswith("_")}
    if fields.get("sampling_rate", 0.0) > 1.0:
        fields["sampling_rate"] = 1.0
    if "branches" in fields:
        fields["branches"] = [list(map(record_of, branch)) for branch in fields["branches"]]
    return fields


def truth_of(events: list[PrivacyEvent], epsilon: float) -> float:
    """Lower bound of delta, where it is neither too small nor nearly 1."""
    found = lower_delta(events, epsilon)
    if not SMALLEST < found < LARGEST:
        raise ArithmeticError("nothing to see here")
    return found


def composed(point: Point) -> Look:
    """The accountant against a lower bound."""
    events = events_of(point)
    true = truth_of(events, point["epsilon"])
    claimed = composed_delta(events, point["epsilon"])
    return Look(true / claimed, true, claimed)


def subset(point: Point) -> Look:
    """The accountant against itself: one event less, or each with a little more noise."""
    events = events_of(point)
    whole = composed_delta(events, point["epsilon"])
    if not SMALLEST < whole < LARGEST:
        raise ArithmeticError("nothing to see here")
    less = max(
        (composed_delta(events[:i] + events[i + 1 :], point["epsilon"]) for i in range(len(events)))
        if len(events) > 1
        else [composed_delta(events, point["epsilon"] * (1.0 + 1e-9))]
    )
    return Look(less / whole, less, whole)


def turned(point: Point) -> Look:
    """``composed_epsilon`` at a delta: the truth at that epsilon is at most the delta."""
    events = events_of(point)
    delta = composed_delta(events, point["epsilon"])
    if not SMALLEST < delta < LARGEST:
        raise ArithmeticError("nothing to see here")
    epsilon = composed_epsilon(events, delta)
    # Infinity promises nothing.
    true = lower_delta(events, epsilon) if epsilon < math.inf else 0.0
    return Look(true / delta, true, delta)


def admitted(point: Point) -> Look:
    """What a ledger admits against a lower bound, by whichever of its bounds."""
    events = events_of(point)
    true = truth_of(events, point["epsilon"])
    totals = of_events(events)
    for share in (0.5, 0.999):
        if totals_fit(totals, point["epsilon"], share * true):
            return Look(1.0 / share, true, share * true)
    larger = [x for x in (1.01, 1.1, 2.0, 10.0) if x * true < 1.0]
    claimed = next((x for x in larger if totals_fit(totals, point["epsilon"], x * true)), 1e3)
    return Look(1.0 / claimed, true, claimed * true)


def confirmed(point: Point) -> Look:
    """``verify`` against a lower bound: the least delta that it takes, nearly."""
    events = tuple(events_of(point))
    true = truth_of(list(events), point["epsilon"])
    # The claim that is a little below the truth is what counts.
    below = 0.999 * true
    try:
        with limited_work():
            if recomputed_events(events, point["epsilon"], below)[2]:
                return Look(1.0 / 0.999, true, below)
        with limited_work():
            _, claimed, holds = recomputed_events(events, point["epsilon"], 0.999999)
    except TooMuchWorkError:
        holds = None
    if holds is None:
        raise ArithmeticError("cannot be read")
    return Look(min(1.0, true / max(claimed, true)), true, claimed)


LAWS = {"softplus": "logistic", "logistic": "logistic", "huber": "huber"}


def pair_point(rng: Rng) -> Point:
    """A pair of neighbours with one score and one weight, for exact densities."""
    name = str(rng.choice(["softplus", "huber"]))
    setting = random_setting(rng, name, 1, 1, replace_one=bool(rng.random() < 0.5))
    pair = setting.pair
    return {
        "_name": name,
        "_replace_one": setting.replace_one,
        "_y": pair.y.tolist(),
        "kappa": between(rng, 0.02, 1e4),
        "margin": pair.kernel[2],
        "regularization": pair.regularization,
        "t": between(rng, 0.05, 4.0),
        "epsilon": between(rng, 0.05, 8.0),
        "rows": pair.rows.tolist(),
        "_first": pair.first.tolist(),
        "_second": pair.second.tolist(),
    }


def pair_of(point: Point) -> Setting:
    """The pair of a point, its rows clipped as the library clips them."""
    rows = np.asarray(point["rows"], dtype=float)
    rows = rows / np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    lam = point["regularization"]
    pair = objective_density.Pair(
        rows,
        np.asarray(point["_y"]),
        np.asarray(point["_first"]),
        np.asarray(point["_second"]),
        kernel_of(point["_name"], point["kappa"], lam, abs(point["margin"])),
        1,
        lam,
    )
    return Setting(pair, point["t"], point["_replace_one"])


def exact_pair(point: Point, *, by_verify: bool) -> Look:
    """Noise in objectives: the exact delta of a pair against the law's bound."""
    setting, epsilon = pair_of(point), point["epsilon"]
    law = LAWS[point["_name"]]
    relation = "replace_one" if setting.replace_one else "add_remove"
    record = {"type": "objective", "law": law, "n_scores": 1, "sigma": 1.0 / setting.t}
    record |= {"kappa": setting.kappa, "jacobian": None, "adjacency": relation}
    event = PrivacyEvent.from_dict(record)
    deltas = objective_density.gaussian_deltas(setting.pair, 1.0 / setting.t, np.array([epsilon]))
    # Quadrature is right to 1e-8 of the whole mass.
    true = float(deltas.max()) - 1e-7
    if not 1e-5 < true < LARGEST:
        raise ArithmeticError("nothing to see here")
    if by_verify:
        claimed = recomputed_events((event,), epsilon, 0.999999)[1]
    else:
        claimed = composed_delta([event], epsilon)
    return Look(true / claimed, true, claimed)


# Scores of each law; sums over many pairs of scores take a hundred times as long.
LAWS_OF_SCORES: dict[str, dict[str, tuple[int, ...]]] = {
    "softmax": {"softmax": (2, 3, 4, 10)},
    "softmax of many": {"softmax": (100, 1000, 10_000)},
    "logistic": {"logistic": (1, 2, 4)},
    "huber": {"huber": (1, 4)},
    "Weston-Watkins": {"weston_watkins": (2,)},
    "Weston-Watkins of 3": {"weston_watkins": (3,)},
    "Weston-Watkins of 4": {"weston_watkins": (4,)},
    "Weston-Watkins of many": {"weston_watkins": (60, 2000)},
}


def law_point(rng: Rng, laws: dict[str, tuple[int, ...]]) -> Point:
    """One noisy objective, its noise by the Gaussian parameter of the record with most to tell."""
    law = str(rng.choice(sorted(laws)))
    n_scores = int(rng.choice(laws[law]))
    epsilon = between(rng, 0.03, 16.0)
    return {
        "_law": law,
        "_n_scores": n_scores,
        "_replace_one": bool(rng.random() < 0.5),
        "epsilon": epsilon,
        "mu": epsilon * between(rng, 0.06, 6.0),
        "kappa": between(rng, 1e-4, 1e6),
    }


def recomputed_law(point: Point) -> Look:
    """What ``verify`` computes for tables, at 41 epsilons, against the Gaussian law inside."""
    law, n_scores, replaced = point["_law"], point["_n_scores"], point["_replace_one"]
    sigma = least_gaussian(law, n_scores, 1.0, replace_one=replaced) / point["mu"]
    looks = [Look(0.0, 0.0, 1.0)]
    for epsilon in point["epsilon"] * np.geomspace(0.85, 1.18, 41):
        true = gaussian_delta(float(epsilon), point["mu"])
        if not SMALLEST < true < LARGEST:
            continue
        claimed = recomputed_objective(
            law,
            n_scores,
            float(epsilon),
            sigma,
            kappa=point["kappa"],
            jacobian=None,
            replace_one=replaced,
            quickly=True,
        )
        looks.append(Look(true / claimed, true, claimed))
    return replace(max(looks, key=lambda look: look.ratio), tries=len(looks) - 1)


def noise_point(rng: Rng) -> Point:
    """A guarantee that noise is to be calibrated for."""
    kind = str(rng.choice(["gaussian", "sampled", "objective"]))
    return {
        "_kind": kind,
        "_relation": str(rng.choice(RELATIONS)),
        "_loss": str(rng.choice(["softmax_margin", "softplus", "logistic", "huber", "huber_ww"])),
        "epsilon": between(rng, 1e-3, 30.0),
        "delta": between(rng, 1e-30, 0.3),
        "sampling_rate": min(1.0, between(rng, 3e-3, 1.5)),
        "n_steps": int(between(rng, 1.0, 64.0)),
        "n_classes": int(rng.integers(2, 6)),
        "kappa": between(rng, 1e-6, 1e6),
    }


def calibrated(point: Point) -> Look:
    """Calibrated noise: the truth at epsilon is at most delta."""
    epsilon, delta, relation = point["epsilon"], point["delta"], point["_relation"]
    record: Point = {"adjacency": relation}
    if point["_kind"] == "gaussian":
        sigma = gaussian_sigma(epsilon, delta)
        record |= {"type": "gaussian", "sigma": sigma, "sensitivity": 1.0}
    elif point["_kind"] == "sampled":
        rate = min(1.0, point["sampling_rate"])
        noise = subsampled_gaussian_noise_multiplier(
            epsilon, delta, rate, point["n_steps"], relation
        )
        record |= {"type": "subsampled_gaussian", "noise_multiplier": noise}
        record |= {"sampling_rate": rate, "n_steps": point["n_steps"]}
    else:
        classes = max(2, point["n_classes"])
        loss, kappa = point["_loss"], point["kappa"]
        sigma = objective_sigma(
            epsilon, delta, loss=loss, n_classes=classes, kappa=kappa, adjacency=relation
        )
        laws = {"softmax_margin": "softmax", "huber": "huber", "huber_ww": "weston_watkins"}
        shared = classes == 2 and loss not in ("huber_ww",)
        law = laws.get(loss, "logistic")
        law = "logistic" if shared and law == "softmax" else law
        record |= {"type": "objective", "law": law, "n_scores": 1 if shared else classes}
        record |= {"sigma": sigma, "kappa": kappa, "jacobian": None}
    true = truth_of([PrivacyEvent.from_dict(record)], epsilon)
    return Look(true / delta, true, delta)


FITS: dict[str, tuple[Any, dict[str, Any], int]] = {
    # Class, settings, largest number of features with a closed form.
    "output": (dpsvm_fast.OutputPerturbationSVC, {}, 3),
    "output, huber": (dpsvm_fast.OutputPerturbationSVC, {"loss": "huber"}, 3),
    "output, softmax": (dpsvm_fast.OutputPerturbationSVC, {"loss": "softmax_margin"}, 3),
    "output, logistic": (dpsvm_fast.OutputPerturbationSVC, {"loss": "logistic"}, 3),
    "output, distance": (dpsvm_fast.OutputPerturbationSVC, {"loss": "margin_distance"}, 3),
    "output, gamma": (dpsvm_fast.OutputPerturbationSVC, {"noise": "gamma", "delta": 0.0}, 3),
    "objective": (dpsvm_fast.ObjectivePerturbationSVC, {"fit_intercept": False}, 1),
    "objective, huber": (
        dpsvm_fast.ObjectivePerturbationSVC,
        {"fit_intercept": False, "loss": "huber"},
        1,
    ),
    "objective, gamma": (
        dpsvm_fast.ObjectivePerturbationSVC,
        {"fit_intercept": False, "noise": "gamma", "delta": 0.0},
        1,
    ),
    "centre": (dpsvm_fast.PrivateCenter, {}, 3),
    "centre, gamma": (dpsvm_fast.PrivateCenter, {"delta": 0.0}, 3),
    "whitener": (dpsvm_fast.PrivateWhitener, {}, 3),
    "components": (dpsvm_fast.PrivatePCA, {}, 3),
    "scaler": (dpsvm_fast.PrivateStandardScaler, {"bounds": (-1.0, 1.0)}, 3),
}
TRANSFORMERS = ("centre", "whitener", "components", "scaler")


def fit_point(rng: Rng, kinds: tuple[str, ...]) -> Point:
    """Settings of an estimator and neighbouring data sets: the last record goes or is exchanged."""
    kind = str(rng.choice(kinds))
    made, _, widest = FITS.get(kind) or (*COUPLED[kind], 4)
    n, d = int(rng.integers(1, 5)), int(rng.integers(1, widest + 1))
    if kind in COUPLED:
        n += 20
    rows = rng.choice([-1.0, 0.0, 0.5, 1.0, 1.0, 3.0], (n + 1, d)) * rng.choice([1.0, 1.0, 0.3])
    point: Point = {
        "_kind": kind,
        "_relation": str(rng.choice(RELATIONS)),
        "_labels": rng.integers(0, 2, n + 1).tolist(),
        "_other": int(rng.integers(0, 2)),
        "epsilon": between(rng, 0.05, 10.0),
        "rows": rows.tolist(),
        "exchanged": rng.choice([-1.0, 0.0, 1.0], d).tolist(),
    }
    if made in (dpsvm_fast.OutputPerturbationSVC, dpsvm_fast.ObjectivePerturbationSVC):
        point["C"] = between(rng, 1e-4, 10.0)
        point["data_norm"] = between(rng, 0.1, 10.0)
    return point


def worlds_of(point: Point) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Both data sets."""
    X, y = np.asarray(point["rows"], dtype=float), np.asarray(point["_labels"])
    if point["_relation"] == "add_remove":
        return (X, y), (X[:-1], y[:-1])
    other = np.vstack([X[:-1], point["exchanged"]]), np.append(y[:-1], point["_other"])
    return (X, y), other


def options_of(point: Point, settings: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an estimator."""
    given = {name: point[name] for name in ("C", "data_norm") if name in point}
    options = {"delta": 1e-5, "n_threads": 1} | given | settings
    return options | {"epsilon": point["epsilon"], "adjacency": point["_relation"]}


def exact_fit(point: Point) -> Look:
    """A mechanism's own noise against the exact law of both data sets: epsilons at its delta."""
    made, settings, _ = FITS[point["_kind"]]
    options = options_of(point, settings)
    if not point["_kind"].startswith(TRANSFORMERS):
        options["classes"] = [0, 1]
    pair = Pair(*worlds_of(point), point["_relation"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = audit_density(made(**options), pair=pair)
    return Look(report.certified / report.epsilon, report.certified, report.epsilon)


COUPLED: dict[str, tuple[Any, dict[str, Any]]] = {
    "linear": (dpsvm_fast.PrivateLinearSVC, {"bounds": (-1.0, 1.0)}),
    "linear, whitened": (dpsvm_fast.PrivateLinearSVC, {"whiten": True}),
    "linear, output": (dpsvm_fast.PrivateLinearSVC, {"mechanism": "output", "whiten": True}),
    "linear, pure": (dpsvm_fast.PrivateLinearSVC, {"delta": 0.0, "mechanism": "output"}),
    "kernel": (
        dpsvm_fast.PrivateKernelSVC,
        {"kernel": "rbf", "gamma": 1.0, "n_components": 8, "bounds": (-1.0, 1.0)},
    ),
    "gradient": (dpsvm_fast.GradientPerturbationSVC, {"n_steps": 4}),
    "gradient, floats": (
        dpsvm_fast.GradientPerturbationSVC,
        {"n_steps": 4, "noise_grid": "float"},
    ),
}


def coupled_fit(point: Point) -> Look:
    """Two runs on neighbours that release the same: what their sums differ by, in epsilon."""
    made, settings = COUPLED[point["_kind"]]
    options = options_of(point, settings) | {"classes": [0, 1]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = coupled(estimator_run(lambda: made(**options)), *worlds_of(point))
    sizes, laws = found.sizes, [draw.law for draw in found.draws[0]]
    pure = math.fsum(s for s, law in zip(sizes, laws, strict=True) if law == "gamma")
    mu = math.hypot(*(s for s, law in zip(sizes, laws, strict=True) if law == "gaussian"))
    epsilon, delta = point["epsilon"], options["delta"]
    true = pure + (gaussian_epsilon(delta, 1.0 / mu) if mu > 1e-9 and delta > 0.0 else 0.0)
    return Look(true / epsilon, true, epsilon)


def certificate_point(rng: Rng) -> Point:
    """A certificate of the library, some of its numbers multiplied, and an epsilon to claim."""
    kind, relation = MAKERS[int(rng.integers(len(MAKERS)))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record = statement_of(kind, relation).to_dict()
    leaves = sorted({path[-1] for path in float_paths(record)} - {"epsilon", "delta"})
    names = rng.choice(leaves, int(rng.integers(0, 4))).tolist() if leaves else []
    factors = {f"{name}": between(rng, 0.3, 3.0) for name in names}
    return {"_kind": kind, "_relation": relation, "factors": factors, "less": between(rng, 0.3, 1)}


def float_paths(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """Where the floats of a certificate are."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in items:
        if isinstance(inner, (dict, list)):
            yield from float_paths(inner, (*path, name))
        elif isinstance(inner, float):
            yield (*path, name)


def forged(point: Point) -> dict[str, Any]:
    """The certificate: all floats of one name are multiplied alike, and so is the claim."""
    record: dict[str, Any] = statement_of(point["_kind"], point["_relation"]).to_dict()
    for path in list(float_paths(record)):
        inner: Any = record
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] *= point["factors"].get(path[-1], 1.0)
    record["epsilon"] *= point["less"]
    return record


def forged_certificate(point: Point) -> Look:
    """``verify`` on whole forged certificates, against what their own events come to."""
    record = forged(point)
    if not verify(record).ok:
        raise ArithmeticError("refused")
    statement = read_certificate(record)
    events = list(statement.events)
    if record["delta"] == 0.0:
        true = math.fsum(getattr(event, "epsilon", math.inf) for event in events)
        return Look(true / record["epsilon"], true, record["epsilon"])
    true = lower_delta(events, record["epsilon"])
    return Look(true / record["delta"], true, record["delta"])


ALL_FITS = tuple(FITS)
TARGETS = (
    Target("composed delta", events_point, composed),
    Target("composed epsilon", events_point, turned),
    Target("admitted by a ledger", events_point, admitted),
    # Two upper bounds: a ratio above 1 is a bound that could be smaller, not one that is wrong.
    Target("one event less", partial(events_point, most=3), subset, math.inf),
    Target("calibrated noise", noise_point, calibrated),
    Target("verify, events", partial(events_point, most=3), confirmed),
    Target("verify, certificates", certificate_point, forged_certificate),
    *(
        Target(f"verify, {name}", partial(law_point, laws=laws), recomputed_law, 1.0 + 1e-9)
        for name, laws in LAWS_OF_SCORES.items()
    ),
    Target("objective, exact pairs", pair_point, partial(exact_pair, by_verify=False)),
    Target("objective, exact pairs by verify", pair_point, partial(exact_pair, by_verify=True)),
    Target("fits, exact densities", partial(fit_point, kinds=ALL_FITS), exact_fit, 1.0 + 1e-4),
    Target("fits, coupled", partial(fit_point, kinds=tuple(COUPLED)), coupled_fit),
)
