"""Tables of docs/performance.md about noise, accounting, memory, secure sums and rows elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benches.papers.cells import grid
from benches.readme_tables import Summaries
from benches.tables import Row

# Summaries whose figures stand on the page, and what measures them.
COMMANDS = {
    "solver": "python benches/run.py solver",
    "crammer_singer_grid": "python -m benches.crammer_singer_grid",
    "objective": "python benches/run.py objective",
    "objective_fit": "python benches/run.py objective_fit",
    "descent": "python benches/run.py descent",
    "descent_memory": "python benches/run.py descent_memory",
    "linear_fit": "python benches/run.py linear_fit",
    "papers_kernel_timing": "python -m benches.papers kernel_timing",
    "transformers": "python benches/run.py transformers",
    "noise": "python benches/run.py noise",
    "accounting": "python benches/run.py accounting",
    "memory": "python benches/run.py memory",
    "crossing": "python benches/run.py crossing",
    "secure_sum": "python benches/secure_sum.py",
    "roofline": "python benches/run.py roofline",
}
SAMPLERS = {
    "gaussian_on_grid": "Gaussian, exact on a grid (used for releases)",
    "gaussian": "Gaussian, floating point",
    "gamma_ball": "Gamma radius",
}
CALLS = {
    "gaussian_sigma": "noise of the Gaussian mechanism",
    "subsampled noise multiplier": "noise multiplier of sampled steps",
    "subsampled epsilon": "ε of sampled steps",
}
LIBRARIES = ("dpsvm_fast._core", "dp-accounting")
PAPER_THREADS = 16
OURS = "dpsvm_fast"
# Candidates of the memory part, by what they are called.
MODELS = {
    "dpsvm_fast": "`OutputPerturbationSVC`",
    "dpsvm_fast objective": "`ObjectivePerturbationSVC`",
    "liblinear": "LIBLINEAR",
    "lbfgs": "`LogisticRegression`",
}


def noise(found: Summaries) -> str:
    """Million draws a second."""
    speeds = {
        (row["sampler"], row["library"], row["n_threads"]): _three(row["million_draws_per_s"])
        for row in found["noise"]
    }
    places = (("dpsvm_fast", "1"), ("dpsvm_fast", "2"), ("numpy", "1"))
    peer = "numpy, 1 thread (not cryptographic)"
    head = ("million draws per second", "1 thread", "2 threads", peer)
    rows = [
        (label, *(speeds.get((sampler, *place), "") for place in places))
        for sampler, label in SAMPLERS.items()
    ]
    return grid(head, rows)


def _three(number: str) -> str:
    """Three digits of a stored number."""
    return f"{float(number):.3g}"


def accounting(found: Summaries) -> str:
    """Times of one call beside dp-accounting's."""
    calls: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in found["accounting"]:
        place = tuple(row[name] for name in ("call", "n_steps", "epsilon", "delta"))
        calls.setdefault(place, {})[row["library"]] = row
    head = ("call", "steps", "ε", "δ", "ours", "dp-accounting", "relative difference")
    rows = []
    for (call, steps, epsilon, delta), own in calls.items():
        if all(name in own for name in LIBRARIES):
            ours, theirs = (own[name] for name in LIBRARIES)
            times = f"**{_time(ours['microseconds'])}**", _time(theirs["microseconds"])
            answer = f"{float(theirs['value_relative_to_ours']):+.0e}"
            rows.append((CALLS[call], steps, epsilon, delta, *times, answer))
    return grid(head, rows)


def _time(microseconds: str) -> str:
    """With a unit that suits."""
    value = float(microseconds)
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} µs"


def memory(found: Summaries) -> str:
    """Peak memory beyond X of whole fits on the largest set."""
    largest = max(found["memory"], key=lambda row: float(row["x_mb"]))["data"]
    own = [row for row in found["memory"] if row["data"] == largest]
    head = (f"fit on {largest}", "X stored as", "X", "beyond X", "promised")
    rows = [
        (
            MODELS[row["library"]] + (", `low_memory=True`" if row["low_memory"] == "True" else ""),
            row["storage"],
            f"{float(row['x_mb']):.0f} MB",
            f"{float(row['beyond_x_mb']):.0f} MB",
            f"{float(row['promised_mb']):.0f} MB" if row["library"].startswith(OURS) else "",
        )
        for row in own
    ]
    ours = [row for row in found["memory"] if row["library"].startswith(OURS)]
    kept = sum(row["kept"] == "True" for row in ours)
    promise = f"Promised: at most 1.5 X + 50 MB. Kept in {kept} of {len(ours)} measured cases."
    return f"{grid(head, rows)}\n\n{promise}"


def crossing(found: Summaries) -> str:
    """Calls that do almost nothing."""
    rows = ((row["call"], _time(row["microseconds"])) for row in found["crossing"])
    return grid(("call", ""), rows)


def secure_sum(found: Summaries) -> str:
    """Sums over parties in one process."""
    rows = (
        (
            row["parties"],
            f"{int(row['length']):,}",
            f"{float(row['seconds']):.2g} s",
            f"{float(row['mb_up']):.2g} MB",
            f"{float(row['mb_down']):.2g} MB",
        )
        for row in found["secure_sum"]
    )
    head = ("parties", "values per party", "total time", "sent by parties", "sent to parties")
    return grid(head, rows)


def larger(found: Summaries) -> str:
    """What was measured on rows larger than memory."""
    rows = ((row["what"], row["value"]) for row in found["larger_than_memory"])
    return grid(("", ""), rows)


def command_line(found: Summaries) -> str:
    """From a file to a model, beside pandas and scikit-learn without privacy."""
    peer = "over the fastest peer on the same file"
    head = ("", "seconds", "processor seconds", "peak MiB", "accuracy", peer)
    names = ("seconds", "cpu_seconds", "peak_mib")
    rows = [
        (
            f"`{row['candidate']}`" if row["candidate"].startswith("dpsvm") else row["candidate"],
            *(f"{float(row[name]):.0f}" for name in names),
            f"{float(row['accuracy']):.3f}",
            f"{float(row['times_fastest_peer']):.2f}\u00d7",
        )
        for row in found["command_line"]
    ]
    return grid(head, rows)


def stages(found: Summaries) -> str:
    """Where the seconds of ours go."""
    first, *names = found["command_line_stages"][0]
    rows = [
        (f"`{row[first]}`", *(f"{float(row[name]):.1f}" for name in names))
        for row in found["command_line_stages"]
    ]
    return grid(("", "seconds, profiled", *names[1:]), rows)


def roofline(found: Summaries) -> str:
    """What the hot loops reach of what the machine can do, on each number of threads measured."""
    loops: dict[str, dict[str, Row]] = {}
    for row in found["roofline"]:
        loops.setdefault(row["loop"], {})[row["n_threads"]] = row
    threads = sorted({row["n_threads"] for row in found["roofline"]})
    head = ("", "flops per row", "bytes per row", "GFLOP/s", "GB/s")
    rows = []
    for loop, own in loops.items():
        one = own["1"]
        work = tuple(f"{float(one[n]):,.0f}" for n in ("flops", "bytes"))
        speeds = tuple(
            _three(one[name]) if float(one[name]) else "" for name in ("gflops", "gb_per_s")
        )
        shares = (f"{float(own[n]['share']):.0%}" for n in threads)
        rows.append((loop, *(work if one["rows"] != "1" else ("", "")), *speeds, *shares))
    reached = (f"reached, {n} thread{'s' * (n != '1')}" for n in threads)
    return f"{grid((*head, *reached), rows)}\n\n{_on_paper(found['roofline'])}"


def _on_paper(rows: Sequence[Row]) -> str:
    """What more threads could gain, if they share the memory that those measured have."""
    most = max(rows, key=lambda row: int(row["n_threads"]))["n_threads"]
    # Of the machine's loops a call is one row.
    own = [row for row in rows if row["rows"] == "1" and row["n_threads"] == most]
    memory = max(float(row["gb_per_s"]) for row in own)
    gains = {
        row["loop"]: memory / float(row["gb_per_s"])
        for row in rows
        if row["rows"] != "1" and row["n_threads"] == "1"
    }
    first = sorted((gain, loop) for loop, gain in gains.items() if gain < PAPER_THREADS)
    bound = "; ".join(f"{loop} {gain:.1f}\u00d7" for gain, loop in first)
    rest = "; ".join(loop for loop, gain in gains.items() if gain >= PAPER_THREADS)
    return (
        f"On paper, {PAPER_THREADS} threads: arithmetic grows with them, and all share the "
        f"{memory:.3g} GB/s measured on {most}. Over one thread the memory then allows at most, "
        f"the first to reach its limit first: {bound}. {PAPER_THREADS}\u00d7: {rest}."
    )


def machine(facts: Mapping[str, Mapping[str, str]]) -> str:
    """Which machine and versions each summary names, one row for those that agree."""
    together: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, own in facts.items():
        together.setdefault(tuple(own.items()), []).append(name)
    rows = [(_described(dict(own)), _commands(names)) for own, names in together.items()]
    return grid(("Machine, build, versions", "Measured by"), rows)


def _described(facts: Mapping[str, str]) -> str:
    """The head of a file in a line."""
    return "; ".join(f"{name} {value}" for name, value in facts.items())


def _commands(names: Sequence[str]) -> str:
    """What to type."""
    return "<br>".join(f"`{COMMANDS[name]}`" for name in names)
