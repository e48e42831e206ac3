"""Classes that can be saved, their parameters and attributes, and the checks of a file."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, is_dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np

from dpsvm_fast import preprocessing as ours
from dpsvm_fast import validation as check
from dpsvm_fast.certificates.record import (
    LARGEST,
    NonNegative,
    Options,
    Positive,
    Range,
    exactly,
    kind_of,
)
from dpsvm_fast.data.encoder import checked_schema, read_columns
from dpsvm_fast.data.schema import OF_MODEL, TableSchema
from dpsvm_fast.estimators.inputs import NamedBounds, checked_bounds, public_classes
from dpsvm_fast.estimators.parameters import added, tests_of
from dpsvm_fast.exceptions import InvalidParameterError, ModelFormatError
from dpsvm_fast.losses import WEIGHT_LOSSES, Loss
from dpsvm_fast.mechanisms.pipeline import TRAINERS, UNLIFTED
from dpsvm_fast.mechanisms.rows import (
    KERNELS,
    MAX_COLUMNS,
    MAX_COMPONENTS,
    FourierFeatures,
    SplineMap,
)
from dpsvm_fast.persist.values import (
    LABEL_TYPES,
    labels_from,
    labels_to,
    numbers_from,
    numbers_to,
    plain_from,
    plain_to,
    refused,
    shown,
)
from dpsvm_fast.preprocessing import squares

# Kinds of fitted attributes: how each is written, and what a value from a file has to be.


MAX_CLASSES = 2**31
# Bounds that are the same for all features are saved as one number; an array of more than this
# would be much larger than the file that asks for it.
MAX_REPEATED = 1 << 22

# Attributes of the same object that have been read before.
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """Conversion of one parameter or fitted attribute to JSON and back.

    Parameters
    ----------
    write : callable
        Function from a value to JSON; refuses what cannot be saved.
    read : callable
        Function from place, JSON and preceding entries to the value.
    optional : bool
        Whether the entry may be missing.
    none : bool
        Whether the value may be None.
    default : object
        Value of a missing optional entry; it is not written.
    """

    write: Callable[[Any], Any]
    read: Callable[[str, Any, Facts], Any]
    optional: bool = False
    none: bool = False
    default: Any = None


Entries = dict[str, Entry]


def written(entries: Entries, source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of all entries of the source; leading underscores of names are dropped."""
    found = {}
    for name, one in entries.items():
        if name in source and (one.default is None or source[name] != one.default):
            absent = one.none and source[name] is None
            found[name.lstrip("_")] = None if absent else one.write(source[name])
    return found


def read_entries(entries: Entries, record: object, where: str) -> dict[str, Any]:
    """Read what :func:`written` returned; check each value against those before it."""
    given = record if isinstance(record, dict) else {}
    wanted = {
        name.lstrip("_"): (name, one)
        for name, one in entries.items()
        if not one.optional or name.lstrip("_") in given
    }
    found = refused(exactly, where, record, set(wanted))
    facts: dict[str, Any] = {}
    for short, (name, one) in wanted.items():
        absent = one.none and found[short] is None
        facts[name] = None if absent else one.read(f"{where}.{short}", found[short], facts)
    return facts


def numbers(
    *axes: str | Callable[[Facts], int] | None, above: float = -math.inf, **how: bool
) -> Entry:
    """Return an entry for an array of finite floats, all above ``above``.

    The length of an axis is another attribute, or follows from some; None allows any from 1.
    """

    def read(where: str, record: Any, facts: Facts) -> Any:
        lengths = [facts[axis] if isinstance(axis, str) else axis and axis(facts) for axis in axes]
        array = numbers_from(where, record, tuple(lengths))
        if not (array > above).all():
            raise ModelFormatError(f"{where}: expected numbers > {above:g}")
        return array

    return Entry(numbers_to, read, **how)


def plain(hint: Any, *, none: bool = False) -> Entry:
    """Return an entry for a number, word or flag with that annotation."""
    test = kind_of(hint).check
    return Entry(
        partial(test, ""), lambda where, record, _: refused(test, where, record), none=none
    )


def _names(where: str, record: Any, facts: Facts) -> Any:
    """Read one name for each feature, as scikit-learn stores them."""
    if not isinstance(record, list) or not all(isinstance(name, str) for name in record):
        raise ModelFormatError(f"{where}: expected a list of names")
    n_features = facts["n_features_in_"]
    if len(record) != n_features:
        raise ModelFormatError(f"{where}: got {len(record)} names, expected {n_features}")
    return np.array(record, dtype=object)


def _bounds_to(bounds: Any) -> list[Any]:
    """Write lower and upper bounds, each as one number if all are equal."""
    return [
        float(side.flat[0])
        if 0 < side.size <= MAX_REPEATED and (side == side.flat[0]).all()
        else numbers_to(side)
        for side in bounds
    ]


def _bounds_from(where: str, record: Any, facts: Facts) -> Any:
    """Read two arrays of shape (n_features,), with low < high."""
    if not isinstance(record, list) or len(record) != 2:
        raise ModelFormatError(f"{where}: expected two sides")
    d, sides = facts["n_features_in_"], []
    for side in record:
        if isinstance(side, dict):
            sides.append(numbers_from(where, side, (d,)))
            continue
        number = FINITE.read(where, side, facts)
        if d > MAX_REPEATED:
            raise ModelFormatError(f"{where}: expected an array for that number of features")
        sides.append(np.full(d, number))
    return refused(checked_bounds, "bounds", tuple(sides), where=f"{where}: ")


def _fourier_from(where: str, record: Any, facts: Facts) -> FourierFeatures:
    """Read the random features, which must fit the model."""
    features: FourierFeatures = refused(FourierFeatures.read, record, where=f"{where}: ")
    if features.n_features != _mapped(facts):
        raise ModelFormatError(f"{where}: expected as many features as the model has")
    return features


def _splines_from(where: str, record: Any, facts: Facts) -> SplineMap:
    """Read the functions of the columns, which must fit the model."""
    splines: SplineMap = refused(SplineMap.read, record, where=f"{where}: ")
    if len(splines.knots) != facts["n_features_in_"]:
        raise ModelFormatError(f"{where}: expected knots of each column")
    return splines


def _noises_from(where: str, record: Any, facts: Facts) -> dict[str, float]:
    """Read Gaussian parameters by name of the release."""
    if not isinstance(record, dict) or not set(record) <= set(RELEASES):
        raise ModelFormatError(f"{where}: expected numbers for some of {RELEASES}")
    return {name: POSITIVE.read(f"{where}.{name}", mu, facts) for name, mu in record.items()}


RELEASES = ("centre", "count", "classes", "whitening", "training")

MAX = 2**63 - 1

POSITIVE = plain(Positive)

FINITE = plain(Annotated[float, Range(-LARGEST, LARGEST)])

N_FEATURES = plain(Annotated[int, Range(1, MAX_COLUMNS)])

FEATURE_NAMES = Entry(lambda names: [str(name) for name in names], _names, optional=True)

LABELS = Entry(labels_to, lambda where, record, _: labels_from(where, record))

FLAG = plain(bool)

BOUNDS = Entry(_bounds_to, _bounds_from, none=True)

# The loss of a fit determines whether scores give probabilities.
LOSS_FIELDS: Entries = {
    "name": plain(Annotated[str, Options(*WEIGHT_LOSSES)]),
    "n_classes": plain(Annotated[int, Range(2, MAX_CLASSES)]),
    "smoothing": POSITIVE,
    "margin": plain(NonNegative),
    "per_class": FLAG,
}

LOSS = Entry(
    lambda loss: written(LOSS_FIELDS, vars(loss)),
    lambda where, record, _: Loss(**read_entries(LOSS_FIELDS, record, where)),
)

FOURIER = Entry(FourierFeatures.to_dict, _fourier_from, none=True)

SPLINES = Entry(SplineMap.to_dict, _splines_from, optional=True, none=True)

PARAMETERS_OF_NOISE = Entry(
    lambda noises: {name: float(mu) for name, mu in noises.items()}, _noises_from
)


# Parameters of constructors: how each is written, and what a value from a file has to be.


# Settings of a process, a machine or a run, not of a model. The seed of private noise would let
# whoever reads the file subtract the noise.
NOT_SAVED = ("ledger", "n_threads", "n_jobs", "random_state")


def parameter(
    name: str,
    test: Callable[[str, Any], Any],
    write: Callable[[str, Any], Any] = plain_to,
    read: Callable[[str, Any], Any] = plain_from,
    default: Any = None,
) -> Entry:
    """Return an entry for a constructor parameter; None stays None.

    Parameters
    ----------
    name : str
    test : callable
        Check of name and value, as in the class; returns the checked value.
    write, read : callable
        Functions from name and checked value to JSON, and from name and JSON to the value.
    default : object
        Value of a parameter that older files lack.
    """

    def to_json(value: Any) -> Any:
        checked = test(name, value)
        return None if checked is None else write(name, checked)

    def from_json(where: str, record: Any, _: Facts) -> Any:
        inside = where.rpartition(".")[0]
        try:
            value = None if record is None else read(name, record)
            test(name, value)
        except ModelFormatError as error:
            raise ModelFormatError(f"{inside}.{error}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ModelFormatError(f"{inside}: {error}") from None
        return value

    return Entry(to_json, from_json, optional=default is not None, default=default)


def _sides_to(name: str, bounds: Any) -> Any:
    """Write bounds as the user gave them: numbers and words are kept."""
    if isinstance(bounds, str):
        return bounds
    if isinstance(bounds, NamedBounds):
        pairs = zip(*(side.tolist() for side in bounds), strict=True)
        return {name: list(pair) for name, pair in zip(bounds.names, pairs, strict=True)}
    return [float(side) if side.ndim == 0 else numbers_to(side) for side in bounds]


def _sides_from(name: str, record: Any) -> Any:
    """Read a tuple of numbers or arrays, or pairs by name."""
    if isinstance(record, dict):
        return {name: tuple(pair) for name, pair in record.items()}
    if not isinstance(record, list):
        return record
    return tuple(
        numbers_from(name, side, (None,)) if isinstance(side, dict) else side for side in record
    )


# How parameters are written and read whose values are not plain, by their names.
SPECIAL: dict[str, dict[str, Any]] = {
    "bounds": {"write": _sides_to, "read": _sides_from},
    "centre": {
        "write": lambda _, point: numbers_to(point),
        "read": lambda name, record: numbers_from(name, record, (None,)),
    },
    "classes": {"write": lambda _, labels: labels.tolist()},
}


def declared_parameters(kind: type) -> Entries:
    """Return entries for the parameters of an estimator that declares their checks."""
    younger = added(kind)
    return {
        name: parameter(name, test, default=younger.get(name), **SPECIAL.get(name, {}))
        for name, test in tests_of(kind).items()
        if name not in NOT_SAVED
    }


# Parameters of scikit-learn's classes. A fit on a row checks them; here is what a fit on rows would
# learn, and what would cost more than a file.


def _any(name: str, value: Any) -> Any:
    """Accept any value; it is checked where it is used."""
    return value


def _not_learned(name: str, value: Any) -> Any:
    """Accept declared values only, not values that a fit finds in rows."""
    if isinstance(value, str):
        raise InvalidParameterError(f"{name}: got {value!r}, expected public values")
    return value


def _only(accepted: Any, name: str, value: Any) -> Any:
    """Return a check that accepts one value."""
    if type(value) is not type(accepted) or value != accepted:
        raise InvalidParameterError.of(name, got=shown(value), accepted=repr(accepted))
    return value


def _checked_float_type(name: str, value: Any) -> Any:
    """Accept one of two float types; return its name."""
    if value not in FLOATS.values():
        raise InvalidParameterError(f"{name}: expected numpy.float64 or numpy.float32")
    return np.dtype(value).name


def _checked_degree(name: str, value: Any) -> Any:
    """Accept a degree, or a smallest and a largest degree."""
    for one in value if isinstance(value, tuple) else (value,):
        check.check_integer(name, one, 0, MAX_DEGREES)
    return value


FLOATS = {"float64": np.float64, "float32": np.float32}
MAX_DEGREES = 1000

# Parameters that no file changes: with other values a fit learns from rows, or a file decides
# what is run or read when the model is used.
FIXED = {
    "strategy": "constant",
    "keep_empty_features": True,
    "add_indicator": False,
    "transformer_weights": None,
    "input": "content",
    "encoding": "utf-8",
    "preprocessor": None,
    "tokenizer": None,
    "token_pattern": r"(?u)\b\w\w+\b",
}
# A parameter that may be NaN, for which JSON has no form.
NUMBERED = {
    "write": lambda name, one: (
        {"number": "NaN"} if isinstance(one, float) and math.isnan(one) else plain_to(name, one)
    ),
    "read": lambda name, one: math.nan if isinstance(one, dict) else plain_from(name, one),
}
# scikit-learn's parameters that are not plain, or for which a fit accepts more: accepted values
# in a file, how they are written and how they are read.
SCIKIT: dict[str, dict[str, Any]] = {
    "categories": {
        "test": _not_learned,
        "write": lambda name, sets: [
            plain_to(name, np.asarray(one, dtype=object).tolist()) for one in sets
        ],
    },
    "drop": {"write": lambda name, one: plain_to(name, one if isinstance(one, str) else list(one))},
    "knots": {
        "test": _not_learned,
        "write": lambda _, knots: numbers_to(np.asarray(knots, dtype=np.float64)),
        "read": lambda name, record: numbers_from(name, record, (None, None)),
    },
    "dtype": {
        "test": _checked_float_type,
        "write": lambda _, name: name,
        "read": lambda _, name: FLOATS.get(name, name),
    },
    "degree": {"test": _checked_degree},
    "verbose": {"test": check.check_bool},
    "verbose_feature_names_out": {"test": check.check_bool},
    **dict.fromkeys(("missing_values", "unknown_value", "encoded_missing_value"), NUMBERED),
    **{name: {"test": partial(_only, value)} for name, value in FIXED.items()},
}


def table_schema(record: Any, where: str = "") -> TableSchema:
    """Read a table schema from its plain values."""
    return refused(partial(TableSchema.from_dict, origin=OF_MODEL), record, where=where)


SCHEMA = parameter(
    "schema",
    lambda _, schema: checked_schema(schema),
    lambda _, schema: schema.to_dict(),
    lambda _, record: table_schema(record),
)


def _spec_class() -> Any:
    """Import the specification of federated training, which few models need."""
    from dpsvm_fast.federated.spec import FederatedSpec

    return FederatedSpec


SPECIFICATION = parameter(
    "spec",
    lambda name, spec: check.check_type(name, spec, (_spec_class(), type(None)), "a FederatedSpec"),
    lambda _, spec: spec.to_dict(),
    lambda _, record: _spec_class().from_dict(record),
)


# The classes that can be saved, with the parameters and attributes of each.
#
# A file names a class by a word of this table, and nothing but the modules of the table is ever
# imported. What is not listed here is not saved: no ledger, no seed of private noise, no number of
# threads.


@dataclass(frozen=True)
class SavedClass:
    """Saved fields of the objects of a class.

    Parameters
    ----------
    module, name : str
        Location of the class. It is imported only when needed, because scikit-learn's modules are
        slow to import.
    attributes : dict of Entry
        Fitted attributes in the order in which they are read: later ones are checked against
        earlier ones.
    named : str
        Saved parameters of a scikit-learn class, separated by spaces; others must have their
        defaults.
    special : dict of Entry
        Parameters in addition to those that the class declares.
    private : bool
        Whether a fit spends budget and has a certificate.
    fits : bool
        Whether the class has fitted attributes.
    derived : callable or None
        Function that returns attributes that follow from the others and are not saved.
    rows : callable or None
        For a class whose fit uses no values of the rows: function that returns, from parameters and
        attributes, rows on which a fit restores the object and checks its parameters.
    """

    module: str
    name: str
    attributes: Entries = field(default_factory=dict)
    _: KW_ONLY
    named: str = ""
    special: Entries = field(default_factory=dict)
    private: bool = False
    fits: bool = True
    derived: Callable[[Facts], dict[str, Any]] | None = None
    rows: Callable[[Any, Facts], Any] | None = None

    @cached_property
    def kind(self) -> type:
        """Class to save."""
        found: type = getattr(importlib.import_module(self.module), self.name)
        return found

    @cached_property
    def parameters(self) -> Entries:
        """Entries of the constructor parameters."""
        declared = declared_parameters(self.kind) if is_dataclass(self.kind) else {}
        named = {name: {"test": _any, **SCIKIT.get(name, {})} for name in self.named.split()}
        return (
            declared | {name: parameter(name, **how) for name, how in named.items()} | self.special
        )

    def refit(self, model: Any, facts: dict[str, Any], where: str) -> None:
        """Restore an object by a fit that learns nothing, which checks the parameters."""
        if self.rows is None:
            return
        try:
            model.fit_transform(self.rows(model, facts))
            width = getattr(model, "n_features_in_", None)
            if facts.get("n_features_in_", width) != width:
                raise ValueError("the parameters are for another number of features")
            if "categories_" in facts:
                facts["categories_"] = [
                    np.array(values, dtype=kind)
                    for values, kind in zip(model.categories, facts["categories_"], strict=True)
                ]
        except (TypeError, ValueError) as error:
            raise ModelFormatError(f"{where}: {error}") from None


def _classes(facts: Facts) -> int:
    """Return the number of classes."""
    return len(facts["classes_"])


def _rows(facts: Facts) -> int:
    """Return the number of rows of the weights: one for two classes."""
    return 1 if _classes(facts) == 2 else _classes(facts)


def _columns(facts: Facts) -> int:
    """Return the number of columns of the weights: features, or random features."""
    features = facts.get("features_")
    return _functions(facts) if features is None else 2 * features.n_components


def _functions(facts: Facts) -> int:
    """Return the number of features, or of functions that take their place."""
    splines = facts.get("splines_")
    n_features: int = facts["n_features_in_"]
    return n_features if splines is None else sum(splines.sizes)


def _mapped(facts: Facts) -> int:
    """Return the number of entries of a mapped row."""
    return _functions(facts) + int(facts.get("lift_", 0.0) > 0.0)


def _lifted(facts: Facts) -> int:
    """Return the number of entries of a row with its constant."""
    n_features: int = facts["n_features_in_"]
    return n_features + 1


def _ellipsoids_of_a_class(facts: Facts) -> int:
    """Return the number of ellipsoids of each class."""
    return int(facts["ellipsoids_"].shape[1])


# An axis with an entry for each feature.
WIDTH = "n_features_in_"

FEATURES: Entries = {"n_features_in_": N_FEATURES, "feature_names_in_": FEATURE_NAMES}

WEIGHTS: Entries = {
    "coef_": numbers(_rows, _columns),
    "intercept_": numbers(_rows),
    "_fitted_loss": LOSS,
}

LINEAR: Entries = FEATURES | {"classes_": LABELS} | WEIGHTS

MAPPED: Entries = {
    "lift_coef_": numbers(_rows, none=True),
    "n_samples_": plain(Positive, none=True),
    "centre_": numbers(_mapped, none=True),
    "whitened_": FLAG,
    "whitening_": numbers(_mapped, _mapped, none=True),
    "mu_": PARAMETERS_OF_NOISE,
    "max_grad_norm_": plain(Positive, none=True),
    "n_steps_": plain(Annotated[int, Range(1, MAX)], none=True),
    "learning_rate_": plain(Positive, none=True),
    "c_": plain(Positive, none=True),
    "lambda_": plain(NonNegative, none=True),
    "bounds_": BOUNDS,
    "mechanism_": plain(Annotated[str, Options(*TRAINERS)]),
    "temperature_": POSITIVE,
}
LIFT: Entries = {"lift_": plain(NonNegative)}
# The features that weights belong to come before them.
LIFTED: Entries = {
    "splines_": SPLINES,
    "kernel_": plain(Annotated[str, Options(*KERNELS, *UNLIFTED)]),
    "gamma_": plain(Positive, none=True),
    "n_components_": plain(Annotated[int, Range(1, MAX_COMPONENTS)], none=True),
    "q_": replace(FINITE, none=True),
    "features_": FOURIER,
    "data_norm_": plain(Positive, none=True),
}

ELLIPSOIDS: Entries = {
    "ellipsoids_": numbers(_classes, None, _lifted, _lifted),
    "means_": numbers(_classes, _ellipsoids_of_a_class, WIDTH),
    "offsets_": numbers(_classes, _ellipsoids_of_a_class),
    "lambda_": POSITIVE,
    "data_norm_": POSITIVE,
    "_fitted_loss": LOSS,
}


FEDERATED: Entries = LINEAR | {
    "components_": numbers(None, WIDTH, optional=True),
    "n_survivors_": plain(Annotated[int, Range(1, MAX)]),
    "n_records_": plain(Annotated[int, Range(1, MAX)], none=True),
}

COMPONENTS: Entries = {
    "n_components_": plain(Annotated[int, Range(1, MAX)]),
    "components_": numbers("n_components_", WIDTH),
    "eigenvalues_": numbers("n_components_"),
    "explained_variance_ratio_": numbers("n_components_"),
    "scales_": numbers("n_components_", above=0.0),
    "centre_": numbers(WIDTH),
}

SCALES: Entries = {
    "mean_": numbers(WIDTH),
    "scale_": numbers(WIDTH, above=0.0, none=True),
    "n_samples_seen_": POSITIVE,
    "bounds_": replace(BOUNDS, none=False),
}


def _dtype_from(where: str, record: Any, facts: Facts) -> np.dtype[Any]:
    """Read the dtype of an array of numbers or objects."""
    if record not in ("object", *LABEL_TYPES) or record == "str":
        raise ModelFormatError(f"{where}: got {shown(record)}, expected the type of an array")
    found: np.dtype[Any] = np.dtype(record)
    return found


def _row_of_categories(model: Any, _: Facts) -> Any:
    """Return a row that an encoder of declared categories accepts."""
    return np.array([[one[0] for one in model.categories]], dtype=object)


def _row_of_type(_: Any, facts: Facts) -> Any:
    """Return a row with the dtype of the fit."""
    kind = facts["_fit_dtype"]
    value = "text" if kind.kind == "O" else 0
    return np.full((1, facts["n_features_in_"]), value, dtype=kind)


LABELLED: Entries = FEATURES | {"classes_": LABELS}

NORM: Entries = {"data_norm_": POSITIVE}
# A file must not require much more memory than its own size.
FEW: Entries = FEATURES | {"n_features_in_": plain(Annotated[int, Range(1, MAX_REPEATED)])}

CODED: Entries = FEW | {
    "categories_": Entry(
        lambda arrays: [array.dtype.name for array in arrays],
        lambda where, record, facts: [_dtype_from(where, one, facts) for one in record],
    )
}
SEARCHED: Entries = {
    **{name: replace(attribute, optional=True) for name, attribute in LABELLED.items()},
    "best_params_": Entry(
        partial(plain_to, "best_params_"), lambda where, record, _: plain_from(where, record)
    ),
    "best_index_": plain(Annotated[int, Range(-1, MAX)]),
    "best_score_": replace(FINITE, optional=True),
}
OURS, MAPS, SCIKIT_MAPS = "dpsvm_fast.estimators", ours.__name__, "sklearn.preprocessing"

_EVERY = (
    SavedClass(OURS, "OutputPerturbationSVC", LINEAR, private=True),
    SavedClass(OURS, "ObjectivePerturbationSVC", LINEAR, private=True),
    SavedClass(OURS, "GradientPerturbationSVC", LINEAR, private=True),
    SavedClass(OURS, "PrivateLinearSVC", LINEAR | LIFT | MAPPED, private=True),
    SavedClass(OURS, "PrivateKernelSVC", LABELLED | LIFT | LIFTED | WEIGHTS | MAPPED, private=True),
    SavedClass(
        OURS,
        "PrivateGaussianMarginClassifier",
        LABELLED | ELLIPSOIDS,
        private=True,
        # The blocks that a fit cuts out.
        derived=lambda f: {"precisions_": np.ascontiguousarray(f["ellipsoids_"][..., :-1, :-1])},
    ),
    SavedClass(
        "dpsvm_fast.federated.classifier",
        "FederatedLinearSVC",
        FEDERATED,
        special={"spec": SPECIFICATION},
        private=True,
    ),
    SavedClass(
        MAPS,
        "PrivateCenter",
        FEATURES | {"mean_": numbers(WIDTH), "n_samples_": POSITIVE} | NORM,
        private=True,
    ),
    SavedClass(
        MAPS,
        "PrivateWhitener",
        FEATURES | {"whitening_": numbers(WIDTH, WIDTH)} | NORM,
        private=True,
    ),
    SavedClass(MAPS, "PrivatePCA", FEATURES | COMPONENTS | NORM, private=True),
    SavedClass(
        MAPS,
        "PrivateStandardScaler",
        FEATURES | SCALES | NORM,
        private=True,
        derived=lambda f: {"var_": None if f["scale_"] is None else squares(f["scale_"])},
    ),
    # Transformers that learn nothing.
    SavedClass(
        MAPS,
        "RandomFourierFeatures",
        FEATURES | {"_features": replace(FOURIER, none=False)},
        # The frequencies are public, and so is their seed.
        special={"random_state": parameter("random_state", check.check_random_state)},
        derived=lambda f: {"seed_": f["_features"].seed, "structure_": f["_features"].structure},
    ),
    SavedClass(MAPS, "PublicScaler", FEATURES, fits=False),
    SavedClass(MAPS, "PublicImageFeatures", FEATURES, fits=False),
    SavedClass(MAPS, "PublicSplines", FEATURES, fits=False),
    SavedClass(
        "dpsvm_fast.data.encoder",
        "SchemaEncoder",
        {"schema_": Entry(TableSchema.to_dict, lambda where, record, _: table_schema(record))},
        special={"schema": SCHEMA},
        fits=False,
        derived=lambda facts: read_columns(facts["schema_"]),
    ),
    SavedClass(
        SCIKIT_MAPS,
        "Normalizer",
        FEATURES,
        named="copy norm",
        fits=False,
        rows=lambda _, facts: np.zeros((1, facts.get("n_features_in_", 1))),
    ),
    SavedClass(
        "sklearn.feature_extraction.text",
        "HashingVectorizer",
        named="lowercase binary alternate_sign decode_error strip_accents analyzer norm n_features "
        "ngram_range stop_words dtype input encoding preprocessor tokenizer token_pattern",
        fits=False,
        rows=lambda _, __: ["a row"],
    ),
    # Steps of scikit-learn whose fit takes nothing from the rows; they are fitted anew.
    SavedClass(
        SCIKIT_MAPS,
        "OneHotEncoder",
        CODED,
        named="categories drop sparse_output dtype handle_unknown",
        rows=_row_of_categories,
    ),
    SavedClass(
        SCIKIT_MAPS,
        "OrdinalEncoder",
        CODED,
        named="categories dtype handle_unknown unknown_value encoded_missing_value",
        rows=_row_of_categories,
    ),
    SavedClass(
        "sklearn.impute",
        "SimpleImputer",
        FEW | {"_fit_dtype": Entry(lambda kind: kind.name, _dtype_from)},
        named="missing_values strategy fill_value copy keep_empty_features add_indicator",
        rows=_row_of_type,
    ),
    SavedClass(
        SCIKIT_MAPS,
        "SplineTransformer",
        FEW,
        named="n_knots degree knots extrapolation include_bias order sparse_output",
        rows=lambda model, _: model.knots[:2],
    ),
    SavedClass(
        SCIKIT_MAPS,
        "PolynomialFeatures",
        FEW,
        named="degree interaction_only include_bias order",
        rows=lambda _, facts: np.zeros((1, facts["n_features_in_"])),
    ),
    # Classes composed of estimators, which are saved separately.
    SavedClass(
        "dpsvm_fast.model_selection",
        "PrivateGridSearch",
        SEARCHED,
        # They are checked where they are used.
        special={name: parameter(name, _any) for name in ("param_grid", "scoring", "class_weight")},
        private=True,
    ),
    SavedClass("sklearn.pipeline", "Pipeline", named="verbose"),
    SavedClass("dpsvm_fast.pipelines", "PrivatePipeline", named="verbose"),
    SavedClass(
        "sklearn.compose",
        "ColumnTransformer",
        FEATURES | {"sparse_output_": FLAG},
        named="sparse_threshold transformer_weights verbose verbose_feature_names_out",
    ),
    SavedClass(
        "dpsvm_fast.model_selection",
        "ConstantClassifier",
        special={"classes": parameter("classes", public_classes, **SPECIAL["classes"])},
        fits=False,
    ),
)
# By its word in the file.
SAVED_CLASSES = {saved.name: saved for saved in _EVERY}
