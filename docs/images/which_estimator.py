"""Draw ``which_estimator.svg``: questions on the left, answers on the right, no colours.

python docs/images/which_estimator.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path

PICTURE = Path(__file__).with_suffix(".svg")
WIDTH, TOP, PITCH = 940, 16, 122
LEFT, QUESTION, RIGHT, ANSWER, HEIGHT = 16, 400, 516, 408, 86
LINE, FONT = 21, 16
BOLD = ' font-weight="bold"'

# A question, and what its yes leads to: a class, and what speaks for it.
STEPS = (
    (
        ("Do several data owners train together", "without sharing rows?"),
        (
            "federated.FederatedSpec",
            "dp_helmet: many parties, few rows each",
            "fed_dpdr: many features",
        ),
    ),
    (
        ("Do you need the minimiser of an objective,", "with scikit-learn's C?"),
        (
            "ObjectivePerturbationSVC",
            "certified minimiser of a smooth loss",
            "OutputPerturbationSVC for the hinge",
        ),
    ),
    (
        ("Do you need DP-SGD settings (steps, batches,", "Adam) or partial_fit?"),
        ("GradientPerturbationSVC", "DP-SGD and published methods"),
    ),
    (
        ("Do classes differ in spread rather than", "location, in few features?"),
        ("PrivateGaussianMarginClassifier", "one or more ellipsoids per class"),
    ),
    (
        ("Are class boundaries nonlinear, with", "hundreds of rows per class?"),
        ("PrivateKernelSVC", "stays linear if there are too few rows"),
    ),
)
LAST = (
    "PrivateLinearSVC",
    "the default: nothing to tune, dense or sparse rows, pure ε with delta=0",
)


def box(x: int, y: int, width: int, lines: tuple[str, ...], *, answer: bool) -> str:
    """A box with centred lines; an answer has a bold first line and a thick border."""
    stroke = 3 if answer else 1.2
    first = y + HEIGHT / 2 - (len(lines) - 1) * LINE / 2 + FONT * 0.35
    texts = "".join(
        f'<text x="{x + width / 2:g}" y="{first + number * LINE:g}" text-anchor="middle"'
        f"{BOLD if answer and number == 0 else ''}>{escape(line)}</text>\n"
        for number, line in enumerate(lines)
    )
    corner = 2 if answer else 14
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="{corner}" fill="white" '
        f'stroke="black" stroke-width="{stroke}"/>\n{texts}'
    )


def arrow(start: tuple[int, int], end: tuple[int, int], label: str) -> str:
    """A straight arrow with a word beside it."""
    (x, y), (to_x, to_y) = start, end
    across = y == to_y
    place = ((x + to_x) / 2 - 4, y - 8) if across else (x + 24, (y + to_y) / 2 + 5)
    return (
        f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="black" stroke-width="1.6" '
        f'marker-end="url(#head)"/>\n'
        f'<text x="{place[0]:g}" y="{place[1]:g}" text-anchor="middle" font-style="italic">'
        f"{label}</text>\n"
    )


def picture() -> str:
    """The whole picture as SVG."""
    height = 2 * TOP + len(STEPS) * PITCH + HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="{FONT}">\n'
        "<title>Which estimator</title>\n"
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 L10 5 L0 10 z"/></marker></defs>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
    ]
    for number, (question, answer) in enumerate(STEPS):
        y = TOP + number * PITCH
        middle, centre = y + HEIGHT // 2, LEFT + QUESTION // 2
        parts += [
            box(LEFT, y, QUESTION, question, answer=False),
            box(RIGHT, y, ANSWER, answer, answer=True),
            arrow((LEFT + QUESTION, middle), (RIGHT - 3, middle), "yes"),
            arrow((centre, y + HEIGHT), (centre, y + PITCH - 2), "no"),
        ]
    y = TOP + len(STEPS) * PITCH
    parts.append(box(LEFT, y, RIGHT + ANSWER - LEFT, LAST, answer=True))
    return "".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
