"""From summaries to a picture and to the tables of docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean

from benches.tables import Row

OPENING, CLOSING = "<!-- bench-table -->", "<!-- /bench-table -->"
OBJECTIVE = ("<!-- objective-table -->", "<!-- /objective-table -->")
DESCENT = ("<!-- descent-table -->", "<!-- /descent-table -->")


def cells_of(table: Sequence[Row]) -> list[Row]:
    """The solver summary without its last rows, which are the means over cells."""
    return [row for row in table if row["C"]]


def plot(table: Sequence[Row], path: Path) -> None:
    """Bars of the speed ratio of every cell, with the geometric mean."""
    # Imported here: only this step needs it, and it is an optional dependency.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cells = cells_of(table)
    labels = [f"{row['data']}\nC = {row['C']}" for row in cells]
    figure, axes = pyplot.subplots(figsize=(1.1 * len(cells) + 2.0, 4.0), layout="constrained")
    places = range(len(cells))
    for column, shift, label in (
        ("ratio", -0.2, "certified r <= 0.01 Delta, replace_one"),
        ("ratio_default", 0.2, "certified r <= 0.001 Delta, add_remove (default)"),
    ):
        heights = [float(row[column]) for row in cells]
        axes.bar([place + shift for place in places], heights, width=0.4, label=label)
    mean = next(row for row in table if row["data"] == "geometric mean")
    axes.axhline(float(mean["ratio"]), linestyle="--", color="grey", label="geometric mean")
    axes.set_xticks(list(places), labels)
    axes.set_ylabel("time of LIBLINEAR (tol 1e-6) / ours")
    axes.set_ylim(bottom=0.0)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def markdown(table: Sequence[Row], facts: Mapping[str, str]) -> str:
    """The table: one line a data set, one column a C."""
    cells = cells_of(table)
    C_values = list(dict.fromkeys(row["C"] for row in cells))
    lines = [
        "| | " + " | ".join(f"C = {C}" for C in C_values) + " |",
        "|---|" + "---|" * len(C_values),
    ]
    for data in dict.fromkeys(row["data"] for row in cells):
        ratios = {row["C"]: _cell(row) for row in cells if row["data"] == data}
        lines.append(f"| {data} | " + " | ".join(ratios.get(C, "") for C in C_values) + " |")
    mean, least = (
        next(row for row in table if row["data"] == label)
        for label in ("geometric mean", "minimum")
    )
    lines += [
        "",
        f"Geometric mean {_times(mean['ratio_default'])}, minimum "
        f"{_times(least['ratio_default'])}: LIBLINEAR at `tol=1e-6`, ours certified to 0.001 of "
        "the sensitivity of the model to one record (the default). At 0.01 of that of exchanging "
        f"one: {_times(mean['ratio'])} and {_times(least['ratio'])}. "
        f"{facts['cpu']}, {facts['solver threads']} thread of ours, 1 of theirs; "
        "[how it was measured](benches/README.md).",
    ]
    return "\n".join(lines)


def _cell(row: Row) -> str:
    """Ratio and times of one cell."""
    ours, theirs = float(row["ours_default_ms"]), float(row["liblinear_ms"])
    return f"**{_times(row['ratio_default'])}** ({ours:.0f} ms against {theirs:.0f} ms)"


def _times(ratio: str) -> str:
    """A ratio with two digits."""
    return f"{float(ratio):.1f}\u00d7"


def objective_markdown(table: Sequence[Row], fits: Sequence[Row], facts: Mapping[str, str]) -> str:
    """The table of the smooth solver, with whole private fits below."""
    cells = [row for row in table if row["lambda"]]
    values = list(dict.fromkeys(row["lambda"] for row in cells))
    lines = [
        "| | " + " | ".join(f"λ = {value}" for value in values) + " |",
        "|---|" + "---|" * len(values),
    ]
    for data in dict.fromkeys(row["data"] for row in cells):
        shown = {row["lambda"]: _objective_cell(row) for row in cells if row["data"] == data}
        lines.append(f"| {data} | " + " | ".join(shown.get(v, "") for v in values) + " |")
    mean, least = (
        next(row for row in table if row["data"] == name) for name in ("geometric mean", "minimum")
    )
    lines += [
        "",
        f"Geometric mean {_times(mean['ratio'])}, minimum {_times(least['ratio'])}: until the "
        "gradient's norm is a millionth of what it is at 0, against the fastest other solver at "
        f"the loosest `tol` that gets there. {facts['cpu']}; "
        "[how it was measured](benches/README.md).",
    ]
    shown_fits = [row for row in fits if row["call"].startswith("fit")]
    if shown_fits:
        lines += ["", "| Whole private fit, calibration included | |", "|---|---|"]
        lines += [f"| {row['call']} | {float(row['ms']):.0f} ms |" for row in shown_fits]
    return "\n".join(lines)


def _objective_cell(row: Row) -> str:
    """Ratio and times of one cell."""
    ours, theirs = float(row["ours_ms"]), float(row["peer_ms"])
    name = row["peer_solver"]
    return f"**{_times(row['ratio'])}** ({ours:.0f} ms against {theirs:.0f} ms of {name})"


def descent_markdown(
    table: Sequence[Row], memory: Sequence[Row], fits: Sequence[Row], facts: Mapping[str, str]
) -> str:
    """The table of private steps, with memory and whole fits below."""
    lines = [
        "| ms a step | batch | ours (without noise) | numpy, float64 | JAX | Opacus |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_descent_line(row) for row in table]
    lines += [
        "",
        f"{_descent_notes(table)} {facts['cpu']}; [how it was measured](benches/README.md).",
    ]
    own = [row for row in memory if row["library"] == "ours"]
    if own:
        shown = " and ".join(
            f"{float(r['steps_mb']):.0f} MB at {r['batch']}" for r in (own[0], own[-1])
        )
        lines[-1] += f" Memory of a run beyond the rows, by batch: {shown}."
    if fits:
        lines += [
            "",
            "| `PrivateLinearSVC` at its defaults, ε = 1, δ = 1e-5 | | test accuracy |",
            "|---|---|---|",
        ]
        lines += [
            f"| {row['data']} {row['n_samples']} x {row['n_features']}, {row['dtype']}, "
            f"{row['n_threads']} threads | {float(row['seconds']):.1f} s "
            f"| {float(row['test_accuracy']):.3f} |"
            for row in fits
        ]
    return "\n".join(lines)


def _descent_line(row: Row) -> str:
    """One shape and batch."""
    size = f"{row['data']} {row['n_samples']} x {row['n_features']} x {row['n_classes']}"
    batch = "all" if row["batch"] == row["n_samples"] else row["batch"]
    cells = [f"**{float(row['ours_ms']):.3g}** ({float(row['plain_ms']):.3g})"]
    for name in ("numpy", "jax", "opacus"):
        ratio = row[f"{name}_ratio"]
        cells.append(
            f"{float(row[f'{name}_ms']):.3g}, {_times(ratio)}" if ratio else "not measured"
        )
    return f"| {size}, {row['storage']} | {batch} | " + " | ".join(cells) + " |"


def _descent_notes(table: Sequence[Row]) -> str:
    """Geometric means of all ratios, the less flattering ones too."""
    means = {}
    for name in ("numpy", "jax", "jax_loop", "opacus", "opacus_bare"):
        ratios = [float(row[f"{name}_ratio"]) for row in table if row[f"{name}_ratio"]]
        means[name] = _times(str(geometric_mean(ratios))) if ratios else "not measured"
    return (
        f"Geometric means: numpy {means['numpy']}, a jitted step of JAX {means['jax']} (with many "
        f"steps compiled into one loop {means['jax_loop']}), Opacus as documented "
        f"{means['opacus']} (without its data loader {means['opacus_bare']}). Ours draws exact "
        "noise from a cryptographic source and sums exactly; theirs do neither. Ours and numpy's "
        "are times of one thread; JAX and Opacus take the better of one and two, and so do we in "
        "the ratios to them."
    )


def update(page: Path, content: str, markers: tuple[str, str] = (OPENING, CLOSING)) -> None:
    """Replace what stands between the page's markers."""
    text, (opening, closing) = page.read_text(encoding="utf-8"), markers
    if text.count(opening) != 1 or text.count(closing) != 1:
        raise SystemExit(f"{page.name}: expected {opening} and {closing}, once each")
    head, rest = text.split(opening)
    tail = rest.split(closing)[1]
    page.write_text(f"{head}{opening}\n{content}\n{closing}{tail}", encoding="utf-8")
