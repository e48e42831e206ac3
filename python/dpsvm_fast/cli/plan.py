"""``dpsvm-fast plan``: noise of a budget, before any data are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpsvm_fast.cli import screen as ui
from dpsvm_fast.cli.files import PLOT_SUFFIXES, checked_plot, draw, reserved

if TYPE_CHECKING:
    from dpsvm_fast.planning import NoisePlan


# The estimators that the command line trains.


LINEAR, KERNEL = "linear", "kernel"

CLASSES = {
    LINEAR: "PrivateLinearSVC",
    KERNEL: "PrivateKernelSVC",
    "output": "OutputPerturbationSVC",
    "objective": "ObjectivePerturbationSVC",
    "gradient": "GradientPerturbationSVC",
    "gaussian": "PrivateGaussianMarginClassifier",
}
# Estimators that can be planned without data.
PLANNED = (LINEAR, KERNEL, "objective", "output")


# Advice where a model does not have a setting.
ADVICE = {
    "mechanism": "leave it out, or use --model linear or kernel",
    "kernel": "take --model kernel",
    "class_weight": "take --model linear",
    "max_weight": "take --model linear",
    "C": "leave it out: the model chooses it",
    "data_norm": "leave it out: the model chooses it",
}


def unfitted(model: str, delta: float, **settings: Any) -> Any:
    """Build an estimator from the settings that are not None.

    Raises
    ------
    CommandError
        The model does not have a setting.
    """
    from dpsvm_fast import estimators

    kind = getattr(estimators, CLASSES[model])
    known = kind().get_params(deep=False)
    given = {name: value for name, value in settings.items() if value is not None}
    for name in given:
        if name not in known:
            option = name.replace("_", "-")
            raise ui.CommandError(f"--{option}: does not apply to --model {model}; {ADVICE[name]}")
    if delta == 0.0 and model not in (LINEAR, KERNEL, "gradient"):
        given["noise"] = "gamma"
    return kind(delta=delta, **given)


def model_option(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--model``."""
    whole = "linear, kernel" if KERNEL in names else "linear"
    return ui.option(
        "--model",
        ui.OneOf(names),
        f"Pipeline ({whole}), or one mechanism.  [default: linear]",
    )


MAX_FEATURES, MAX_CLASSES, MAX_ROWS = 10**9, 10**6, 2**20

KERNELS = ("auto", "rbf", "laplacian", "linear")


@click.command(
    "plan",
    epilog=ui.example(
        "dpsvm-fast plan --epsilon 0.5,1 --delta 1e-5 --features 64 --classes 10",
        "dpsvm-fast plan --epsilon 0.5,1 --delta 1e-5 --schema people.toml",
    ),
)
@ui.option(
    "--epsilon",
    ui.Reals(0.0),
    "Epsilon; comma-separated or repeated values are compared.",
    multiple=True,
    required=True,
)
@ui.delta_option(required=True)
@ui.option("--schema", ui.FILE, "Schema (TOML or JSON) with the numbers of features and classes.")
@ui.option("--features", ui.Integer(1, MAX_FEATURES), "Number of features.")
@ui.option("--classes", ui.Integer(2, MAX_CLASSES), "Number of classes.")
@ui.option("--samples", ui.Integer(1), "Number of training rows, or of persons, if it is public.")
@ui.option(
    "--unit",
    ui.OneOf(ui.UNITS),
    "Unit of privacy.  [default: person if the schema names a column, else row]",
)
@ui.option(
    "--rows-per-person",
    ui.Integer(1, MAX_ROWS),
    "Also show the epsilon of a person with N rows, if rows are protected.",
)
@model_option(*PLANNED)
@ui.option(
    "--kernel",
    ui.OneOf(KERNELS),
    "Kernel of --model kernel.  [default: chosen by a rule]",
    is_flag=False,
    flag_value="auto",
)
@ui.adjacency_option(default=ui.ADJACENCIES[0])
@ui.option("--C", "C", ui.Real(0.0), "Factor of the losses.  [default: automatic]")
@ui.option("--data-norm", ui.Real(0.0), "Bound on the L2 norm of the rows.")
@ui.option("--plot", ui.FILE, f"Draw the plan ({', '.join(PLOT_SUFFIXES)}).")
@ui.pass_screen
def plan_command(screen: ui.Screen, **options: Any) -> None:
    """Show the noise to expect, without reading data or spending budget.

    Needs only public numbers. Each category of a schema is a feature.
    """
    samples, plot = options["samples"], options["plot"]
    declared, owned = _declared(options["schema"])
    for name, number in declared.items():
        options[name] = _one_size(name, options, number)
    options["unit"] = options["unit"] or ui.UNITS[owned]
    if options["model"] is None:
        options["model"] = LINEAR if options["kernel"] is None else KERNEL
    if options["model"] == KERNEL and options["data_norm"] is not None:
        raise ui.CommandError("--data-norm: leave it out: --model kernel chooses it")
    checked_plot("--plot", plot)
    epsilons = dict.fromkeys(each for several in options["epsilon"] for each in several)
    with reserved(plot, force=True) as drafts:
        plans = [_planned(each, options) for each in epsilons]
        if plot is not None and any(plan.decision is None for plan in plans):
            raise ui.CommandError("--plot needs --samples: the number of rows decides the noise")
        for draft in drafts:
            from dpsvm_fast.plotting.displays import NoisePlanDisplay

            draw(draft, NoisePlanDisplay(plans=plans).plot)
    record: dict[str, Any] = {"plans": [plan.to_dict() for plan in plans]}
    screen.result(record | ({} if plot is None else {"plot": plot}))
    from dpsvm_fast.planning import described

    title, (head, *rows), notes = described(*plans)
    screen.say(f"{title}\n", style="bold")
    screen.table(head, rows)
    for line in notes:
        screen.say(line)
    if plot is not None:
        screen.say(f"\nPlot: {plot}")
    if samples is not None and options["delta"] * samples >= 1.0:
        ui.note(
            f"warning: --delta: {options['delta']:g} is not below 1 / {samples} rows, so "
            "publishing a whole row would be allowed; choose a far smaller delta"
        )


def _declared(path: Path | None) -> tuple[dict[str, int | None], bool]:
    """Return numbers of features and classes of a schema, and whether rows have owners.

    Raises
    ------
    SchemaError
        The file is not a schema.
    """
    if path is None:
        return {"features": None, "classes": None}, False
    from dpsvm_fast.data import TableSchema

    schema = TableSchema.load(path)
    is_open = schema.all_other_columns is not None and schema.declared_width is None
    labels = None if schema.classes is None else len(schema.classes)
    sizes = {"features": None if is_open else schema.n_features, "classes": labels}
    return sizes, schema.person is not None


def _one_size(name: str, options: dict[str, Any], declared: int | None) -> int:
    """Return the given number, which must equal the declared one, if any.

    Raises
    ------
    CommandError
        Both are missing, or they differ.
    """
    given, schema = options[name], options["schema"]
    if given is None and declared is None:
        open_in = "" if schema is None else f", and {schema} does not say"
        hint = ", or --schema FILE that declares it" if schema is None else ""
        raise ui.CommandError(f"--{name} is missing{open_in}; give --{name} N{hint}")
    if None not in (given, declared) and given != declared:
        raise ui.CommandError(
            f"--{name}: got {given}, expected {declared} as in {schema}; leave it out"
        )
    return given or declared or 0


def _planned(epsilon: float, options: dict[str, Any]) -> NoisePlan:
    """Return the plan of the estimator that a fit would build from these options."""
    from dpsvm_fast.planning import plan_noise

    names = ("model", "delta", "adjacency", "kernel", "C", "data_norm")
    settings = {name: options[name] for name in names}
    return plan_noise(
        unfitted(epsilon=epsilon, classes=range(options["classes"]), **settings),
        options["features"],
        n_samples=options["samples"],
        rows_per_person=options["rows_per_person"],
        unit=options["unit"],
    )
