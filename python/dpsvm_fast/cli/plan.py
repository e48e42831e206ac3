"""``dpsvm-fast plan``: noise, before any data are touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpsvm_fast.cli.files import PLOT_SUFFIXES, checked_plot, draw, reserved
from dpsvm_fast.cli.screen import (
    FILE,
    CommandError,
    OneOf,
    Real,
    Reals,
    Screen,
    Whole,
    example,
    option,
    pass_screen,
)

if TYPE_CHECKING:
    from dpsvm_fast.planning import NoisePlan


# The estimators that can be shown and planned without data.


LINEAR, KERNEL = "linear", "kernel"

CLASSES = {
    LINEAR: "PrivateLinearSVC",
    KERNEL: "PrivateKernelSVC",
    "objective": "ObjectivePerturbationSVC",
    "output": "OutputPerturbationSVC",
}


def estimator_class(model: str) -> Any:
    """Import the class of a model."""
    from dpsvm_fast import estimators

    return getattr(estimators, CLASSES[model])


def model_option(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--model``."""
    default = "linear, the default, or kernel" if KERNEL in names else "linear, the default"
    return option(
        "--model",
        OneOf(names),
        (
            f"The whole private pipeline ({default}), or an estimator with "
            "noise inside its objective or on its output, the weights."
        ),
    )


MOST_FEATURES, MOST_CLASSES, MOST_ROWS = 10**9, 10**6, 2**20

KERNELS = ("auto", "rbf", "laplacian", "linear")

ADJACENCIES = ("add_remove", "replace_one")


@click.command(
    "plan",
    epilog=example(
        "dpsvm-fast plan --epsilon 0.5,1 --delta 1e-5 --features 64 --classes 10",
        "dpsvm-fast plan --epsilon 0.5,1 --delta 1e-5 --schema people.toml",
    ),
)
@option(
    "--epsilon",
    Reals(0.0),
    "Privacy budget; several side by side with commas, or repeated.",
    multiple=True,
    required=True,
)
@option(
    "--delta",
    Real(0.0, includes_low=True),
    "Privacy budget, below 1 / number of rows; 0 for pure privacy.",
    required=True,
)
@option(
    "--schema",
    FILE,
    "TOML or JSON: takes the numbers of features and classes from what is declared there.",
)
@option("--features", Whole(1, MOST_FEATURES), "Number of features.")
@option("--classes", Whole(2, MOST_CLASSES), "Number of classes.")
@option("--samples", Whole(1), "Number of training rows, if it is public.")
@option(
    "--rows-per-person",
    Whole(1, MOST_ROWS),
    "Also say what the noise, made for one row, is worth for a person with so many.",
)
@model_option(LINEAR, KERNEL, "objective", "output")
@option(
    "--kernel",
    OneOf(KERNELS),
    "Kernel of --model kernel; alone: what its rule would choose.",
    is_flag=False,
    flag_value="auto",
)
@option(
    "--adjacency",
    OneOf(ADJACENCIES),
    "Neighbouring data: a row more or fewer, or a row exchanged.",
    default=ADJACENCIES[0],
)
@option("--C", "C", Real(0.0), "Factor of the losses; automatic when left out.")
@option("--data-norm", Real(0.0), "Bound of the rows' L2 norm.", default=1.0, show_default=False)
@option("--plot", FILE, f"Draw the plan ({', '.join(PLOT_SUFFIXES)}).")
@pass_screen
def plan_command(
    screen: Screen,
    *,
    epsilon: Sequence[Sequence[float]],
    model: str | None,
    kernel: str | None,
    samples: int | None,
    plot: Path | None,
    schema: Path | None,
    **settings: Any,
) -> None:
    """Say what noise to expect, before any data are touched and any budget is spent.

    Everything it needs is public: how many features and classes there are, and the budget. A
    category of a schema is a feature.
    """
    settings |= _shape(schema, settings["features"], settings["classes"])
    chosen = model or (LINEAR if kernel is None else KERNEL)
    _check_settings(chosen, kernel, settings)
    checked_plot("--plot", plot)
    epsilons = dict.fromkeys(each for several in epsilon for each in several)
    with reserved(plot, force=True) as drafts:
        plans = [_planned(chosen, each, kernel, samples, settings) for each in epsilons]
        if plot is not None and any(plan.decision is None for plan in plans):
            raise CommandError("--plot needs --samples: the number of rows decides the noise")
        for draft in drafts:
            draw(draft, lambda ax: _display(plans, ax))
    record: dict[str, Any] = {"plans": [plan.to_dict() for plan in plans]}
    screen.result(record | ({} if plot is None else {"plot": str(plot)}))
    if len(plans) == 1:
        title, _, facts = str(plans[0]).partition("\n")
        screen.say(title, style="bold")
        screen.say(facts)
    else:
        _side_by_side(screen, plans)
    if plot is not None:
        screen.say(f"\nPlot: {plot}")
    if samples is not None and settings["delta"] * samples >= 1.0:
        screen.note(
            f"warning: --delta: {settings['delta']:g} is not below one over {samples} rows: to "
            "publish a row as it is would be allowed; choose far less"
        )


def _shape(schema: Path | None, features: int | None, classes: int | None) -> dict[str, int]:
    """How many features and classes there are, by options or by a schema.

    Raises
    ------
    CommandError
        Neither says it, or they differ.
    SchemaError
        The file is no schema.
    """
    width, labels = (None, None) if schema is None else _declared(schema)
    return {
        "features": _one_size("--features", features, width, schema),
        "classes": _one_size("--classes", classes, labels, schema),
    }


def _declared(path: Path) -> tuple[int | None, int | None]:
    """Numbers of features and classes in a schema; None for what it leaves open."""
    from dpsvm_fast.data import TableSchema

    schema = TableSchema.load(path)
    is_open = schema.all_other_columns is not None and schema.declared_width is None
    labels = None if schema.classes is None else len(schema.classes)
    return None if is_open else schema.n_features, labels


def _one_size(option: str, given: int | None, declared: int | None, schema: Path | None) -> int:
    """The number that was given, which is the declared one where there is one."""
    if given is None and declared is None:
        open_in = "" if schema is None else f", and {schema} leaves it open"
        hint = " N, or --schema FILE where it is declared" if schema is None else " N"
        raise CommandError(f"{option} is missing{open_in}; give {option}{hint}")
    if given is not None and declared is not None and given != declared:
        raise CommandError(
            f"{option}: got {given}, expected {declared}, as {schema} says, or left out"
        )
    size = declared if given is None else given
    assert size is not None
    return size


def _check_settings(model: str, kernel: str | None, settings: dict[str, Any]) -> None:
    """Refuse options that the model has no use for."""
    if kernel is not None and model != KERNEL:
        raise CommandError(f"--kernel: got {kernel!r}, expected none but with --model kernel")
    if model not in (LINEAR, KERNEL):
        return
    for named, name, default in (("--C", "C", None), ("--data-norm", "data_norm", 1.0)):
        if settings[name] != default:
            raise CommandError(
                f"{named}: got {settings[name]!r}, expected it left out with --model {model}, "
                "which chooses it"
            )


def _planned(
    model: str,
    epsilon: float,
    kernel: str | None,
    n_samples: int | None,
    settings: dict[str, Any],
) -> NoisePlan:
    """The plan of the estimator that a fit would make of these options."""
    from dpsvm_fast.planning import plan_noise

    own: dict[str, Any] = {}
    if model == KERNEL:
        own = {"kernel": kernel or "auto"}
    elif model != LINEAR:
        C = settings["C"]
        own = {"data_norm": settings["data_norm"], "C": "auto" if C is None else C}
        if settings["delta"] == 0.0:
            own["noise"] = "gamma"
    estimator = estimator_class(model)(
        epsilon=epsilon,
        delta=settings["delta"],
        adjacency=settings["adjacency"],
        classes=range(settings["classes"]),
        **own,
    )
    return plan_noise(
        estimator,
        settings["features"],
        n_samples=n_samples,
        rows_per_person=settings["rows_per_person"],
    )


def _display(plans: Sequence[NoisePlan], ax: Any) -> None:
    """Draw plans side by side."""
    from dpsvm_fast.plotting.displays import NoisePlanDisplay

    NoisePlanDisplay.from_plans(plans, ax=ax)


def _side_by_side(screen: Screen, plans: Sequence[NoisePlan]) -> None:
    """One column an epsilon."""
    first = plans[0]
    rows = f", about {first.n_samples} rows" if first.n_samples is not None else ""
    screen.say(
        f"{first.estimator}, loss {first.loss}: {first.n_features} features, {first.n_classes} "
        f"classes{rows}; delta = {first.delta:g} ({first.adjacency})\n",
        style="bold",
    )
    lines = [(name, [value(plan) for plan in plans]) for name, value in ROWS]
    screen.table(
        None,
        ["epsilon", *(f"{plan.epsilon:g}" for plan in plans)],
        [[name, *cells] for name, cells in lines if any(cells)],
    )
    if any(plan.decision is not None and plan.decision.drowned for plan in plans):
        screen.say("Drowned: so few rows cannot lead by what the noise takes; a larger epsilon is")
        screen.say("needed, or more rows. Not drowned promises no accuracy.")
    if first.decision is None:
        screen.say("The training depends on the number of rows: give --samples.")


def _whitened(plan: NoisePlan) -> str:
    """Whether, or from how many rows on."""
    if plan.whitening is None:
        return ""
    if plan.whitening.whitened is None:
        return f"from {plan.whitening.n_rows_needed} rows"
    return "yes" if plan.whitening.whitened else "no"


def _of(part: str, name: str) -> Any:
    """A cell with a number of a part of the plan; empty where the plan has no such part."""

    def cell(plan: NoisePlan) -> str:
        value = getattr(getattr(plan, part), name, None)
        return "" if value is None else f"{value:.4g}"

    return cell


def _drowned(plan: NoisePlan) -> str:
    """The verdict, where there is one."""
    if plan.decision is None or plan.decision.drowned is None:
        return ""
    return "yes" if plan.decision.drowned else "no"


def _of_person(plan: NoisePlan) -> str:
    """Epsilon of a person with several rows."""
    return "" if plan.epsilon_of_person is None else f"{plan.epsilon_of_person:.4g}"


ROWS: tuple[tuple[str, Any], ...] = (
    ("epsilon of a person with that many rows", _of_person),
    ("noise of a sum over the rows", _of("centre", "sum_deviation")),
    ("rows are whitened", _whitened),
    ("kernel", lambda plan: "" if plan.kernel is None else plan.kernel.kernel),
    ("steps", _of("descent", "n_steps")),
    ("noise of a step", _of("descent", "step_deviation")),
    ("noise inside the objective", _of("objective", "linear_deviation")),
    ("noise of a weight", _of("decision", "weight_deviation")),
    ("noise of a score", _of("decision", "score_deviation")),
    ("a lead that survives with 95 %", _of("decision", "lead")),
    ("the most that the rows can lead by", _of("decision", "largest_lead")),
    ("this over that", _of("decision", "room")),
    ("drowned", _drowned),
)
