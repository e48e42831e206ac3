"""From summaries to a picture and to the tables of docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

from benches.config import ROUNDS_SECONDS, SEARCH_SECONDS
from benches.subjects import objective
from benches.tables import Row

OPENING, CLOSING = "<!-- bench-table -->", "<!-- /bench-table -->"
OBJECTIVE = ("<!-- objective-table -->", "<!-- /objective-table -->")
DESCENT = ("<!-- descent-table -->", "<!-- /descent-table -->")
# JAX's compiled loop beside ours, on one thread and on two.
LOOPS = ("jax_loop_1", "jax_loop_2")


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


def markdown(table: Sequence[Row]) -> str:
    """Speedup of the Crammer-Singer solver: one line per data set, one column per C."""
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
        f"{_times(least['ratio_default'])}. LIBLINEAR runs at `tol=1e-6`; our distance to the "
        "minimiser is certified to 0.001 of its sensitivity to one record (the default). At 0.01 "
        f"under `replace_one`: {_times(mean['ratio'])} and {_times(least['ratio'])}.",
    ]
    return "\n".join(lines)


def _cell(row: Row) -> str:
    """Ratio and times of one cell."""
    ours, theirs = float(row["ours_default_ms"]), float(row["liblinear_ms"])
    return f"**{_times(row['ratio_default'])}** ({ours:.0f} ms vs. {theirs:.0f} ms)"


def _times(ratio: str) -> str:
    """A ratio with two digits."""
    return f"{float(ratio):.1f}\u00d7"


def objective_markdown(table: Sequence[Row], fits: Sequence[Row]) -> str:
    """Speedup of the smooth solver, beside each peer too, with times of private fits below."""
    cells = [row for row in table if row["lambda"]]
    values = sorted({row["lambda"] for row in cells}, key=float)
    peers = [name for name in cells[0] if name.startswith(objective.MS)]
    libraries = list(dict.fromkeys(name[len(objective.MS) :].split(", ")[0] for name in peers))
    named = " and ".join(filter(None, [", ".join(libraries[:-1]), libraries[-1]]))
    lines = [
        f"Speedup on one thread over the fastest of {named}:",
        "",
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
        f"Geometric mean {_times(mean['ratio'])}, minimum {_times(least['ratio'])}; two threads "
        f"gain {_times(mean['two_threads'])} and {_times(least['two_threads'])}. Time until the "
        "gradient norm falls to 1e-6 of its value at W = 0; each peer runs at the loosest `tol` "
        f"that reaches it. A run of over {ROUNDS_SECONDS:g} s is not repeated; a peer without the "
        f"norm after {SEARCH_SECONDS:g} s of all runs is given up for this λ and smaller ones.",
        "",
        "| peer | geometric mean | minimum | cells measured |",
        "|---|---|---|---|",
    ]
    for name in peers:
        found = [float(row[name]) / float(row["ours_ms"]) for row in cells if row[name]]
        values = (geometric_mean(found), min(found)) if found else ()
        ratios = [_times(str(value)) for value in values] or ["", ""]
        lines.append(f"| {_peer(name)} | {' | '.join(ratios)} | {len(found)} of {len(cells)} |")
    shown_fits = [row for row in fits if row["call"].startswith("fit")]
    if shown_fits:
        lines += ["", "| Whole private fit, noise calibration included | |", "|---|---|"]
        lines += [f"| {row['call']} | {float(row['ms']):.0f} ms |" for row in shown_fits]
    return "\n".join(lines)


def _peer(column: str) -> str:
    """Library and solver."""
    return column.removeprefix(objective.MS).replace(", ", " ")


def _objective_cell(row: Row) -> str:
    """Ratio and times of one cell, bold where ours is faster."""
    ours = f"{float(row['ours_ms']):.0f} ms"
    if not row["peer"]:
        return f"{ours}; no peer reached the norm"
    theirs = f"{float(row['peer_ms']):.0f} ms, {_peer(row['peer'])}"
    return f"{_bold(row['ratio'])} ({ours} vs. {theirs})"


def descent_markdown(table: Sequence[Row], memory: Sequence[Row], fits: Sequence[Row]) -> str:
    """Times of private steps, with memory and whole fits below."""
    lines = [
        "| ms per step | batch | ours (no noise, no clipping) | numpy, float64 | JAX | Opacus "
        "| JAX's loop, 1 thread | 2 threads |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_descent_line(row) for row in table]
    lines += ["", _descent_notes(table)]
    own = [row for row in memory if row["library"] == "ours"]
    if own:
        shown = ", ".join(
            f"{float(r['steps_mb']):.0f} MB with batches of {r['batch']}" for r in (own[0], own[-1])
        )
        lines[-1] += f" Peak memory beyond the rows: {shown}."
    if fits:
        lines += [
            "",
            "| `PrivateLinearSVC`, default settings, ε = 1, δ = 1e-5 | | test accuracy |",
            "|---|---|---|",
        ]
        lines += [
            f"| {row['data']} {row['n_samples']} x {row['n_features']}, {row['dtype']}, "
            f"{row['n_threads']} thread{'s' * (row['n_threads'] != '1')} "
            f"| {float(row['seconds']):.1f} s "
            f"| {float(row['test_accuracy']):.3f} |"
            for row in fits
        ]
    return "\n".join(lines)


def _descent_line(row: Row) -> str:
    """One shape and batch."""
    size = f"{row['data']} {row['n_samples']} x {row['n_features']} x {row['n_classes']}"
    batch = "all" if row["batch"] == row["n_samples"] else row["batch"]
    cells = [f"{float(row['ours_ms']):.3g} ({float(row['plain_ms']):.3g})"]
    for name in ("numpy", "jax", "opacus"):
        ratio = row[f"{name}_ratio"]
        cells.append(f"{float(row[f'{name}_ms']):.3g}, {_bold(ratio)}" if ratio else "not measured")
    ratios = [row[f"{name}_ratio"] for name in LOOPS]
    cells += [_bold(ratio) if ratio else "" for ratio in ratios]
    return f"| {size}, {row['storage']} | {batch} | " + " | ".join(cells) + " |"


def _descent_notes(table: Sequence[Row]) -> str:
    """Geometric means and minima of all ratios, the less flattering ones too."""
    means = {}
    for name in ("numpy", "jax", *LOOPS, "opacus", "opacus_bare"):
        ratios = [float(row[f"{name}_ratio"]) for row in table if row[f"{name}_ratio"]]
        means[name] = (
            f"{_times(str(geometric_mean(ratios)))} (at least {_times(str(min(ratios)))})"
            if ratios
            else "not measured"
        )
    return (
        f"Geometric mean speedups: numpy {means['numpy']}; JAX {means['jax']}; JAX with many steps "
        f"compiled into one loop {means[LOOPS[0]]} on one thread, {means[LOOPS[1]]} on two; Opacus "
        f"{means['opacus']} as documented, {means['opacus_bare']} without its data loader. Bold: "
        "ours is faster. We draw exact noise from a cryptographic generator and sum exactly; the "
        "peers do neither. Ours and numpy run on one thread; JAX and Opacus, and ours in the "
        "ratios to them, on the faster of one and two, in the last columns on as many as they say."
    )


def _bold(ratio: str) -> str:
    """A ratio with two digits, bold where these say that ours is faster."""
    return f"**{_times(ratio)}**" if round(float(ratio), 1) > 1.0 else _times(ratio)


def update(page: Path, content: str, markers: tuple[str, str] = (OPENING, CLOSING)) -> None:
    """Replace what stands between the page's markers."""
    text, (opening, closing) = page.read_text(encoding="utf-8"), markers
    if text.count(opening) != 1 or text.count(closing) != 1:
        raise SystemExit(f"{page.name}: expected {opening} and {closing}, once each")
    head, rest = text.split(opening)
    tail = rest.split(closing)[1]
    page.write_text(f"{head}{opening}\n{content}\n{closing}{tail}", encoding="utf-8")
