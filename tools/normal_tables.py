"""Prints the polynomial pieces of the normal tail.

Run `python tools/normal_tables.py > rust/core/src/numeric/normal_tables.rs`.

R(x) = Phi(-x)/phi(x) is the Mills ratio of the standard normal law and S(x) = 1 - x R(x).
Every piece is the interpolant in Chebyshev points, computed to 60 digits and written in powers of
t in [-1, 1]; the program stops when a piece misses the function by more than MAX_ERROR.
"""

from __future__ import annotations

from mpmath import mp, mpf

mp.dps = 60
TERMS = 12
MAX_ERROR = mpf(2) ** -57
NODES = 12


def mills(x: mpf) -> mpf:
    return mp.sqrt(mp.pi / 2) * mp.exp(x * x / 2) * mp.erfc(x / mp.sqrt(2))


def complement(x: mpf) -> mpf:
    return 1 - x * mills(x)


def piece(f, low: mpf, high: mpf) -> list[mpf]:
    """Coefficients in powers of t of the interpolant of f on [low, high]."""
    centre, half = (low + high) / 2, (high - low) / 2
    points = [mp.cos(mp.pi * (2 * k + 1) / (2 * TERMS)) for k in range(TERMS)]
    system = mp.matrix([[t**j for j in range(TERMS)] for t in points])
    solved = mp.lu_solve(system, mp.matrix([f(centre + half * t) for t in points]))
    for k in range(101):
        t = mpf(k - 50) / 50
        exact = f(centre + half * t)
        if k % 7 == 0 or k in (1, 99):
            value = sum(c * t**j for j, c in enumerate(solved))
            if abs(value - exact) > MAX_ERROR * exact:
                raise SystemExit(f"[{low}, {high}]: {mp.nstr(abs(value / exact - 1), 3)}")
    return list(solved)


def pieces() -> tuple[list[tuple[mpf, mpf]], list[tuple[mpf, mpf]]]:
    """Eighths on [-1/2, 1), then eight pieces an octave on [1, 16)."""
    near = [(mpf(k) / 8, mpf(k + 1) / 8) for k in range(-4, 8)]
    far = [
        (mpf(2) ** e * (1 + mpf(m) / 8), mpf(2) ** e * (1 + mpf(m + 1) / 8))
        for e in range(4)
        for m in range(8)
    ]
    return near, far


def legendre() -> list[tuple[mpf, mpf]]:
    """Positive nodes of the Gauss-Legendre rule and their weights, halved: they add to 1/2."""
    out = []
    for k in range(NODES // 2):
        x = mp.findroot(
            lambda t: mp.legendre(NODES, t), mp.cos(mp.pi * (k + mpf(3) / 4) / (NODES + mpf(1) / 2))
        )
        slope = NODES * (mp.legendre(NODES - 1, x)) / (1 - x * x)
        out.append((x, 1 / ((1 - x * x) * slope**2)))
    return out


def show(value: mpf) -> str:
    return repr(float(value))


def table(name: str, text: str, rows: list[list[mpf]]) -> None:
    print(f"\n/// {text}\n#[rustfmt::skip]")
    print(f"pub(super) static {name}: [[f64; {len(rows[0])}]; {len(rows)}] = [")
    for row in rows:
        lines = [", ".join(map(show, row[k : k + 4])) for k in range(0, len(row), 4)]
        print("    [" + ",\n     ".join(lines) + "],")
    print("];")


def main() -> None:
    near, far = pieces()
    print("//! Written by `tools/normal_tables.py`; do not edit.")
    print("#![allow(clippy::unreadable_literal, clippy::excessive_precision)]")
    table("MILLS", "Mills ratio on [-1/2, 1).", [piece(mills, a, b) for a, b in near])
    table(
        "COMPLEMENT",
        "`S(x) = 1 - x R(x)` on [-1/2, 16).",
        [piece(complement, a, b) for a, b in near + far],
    )
    table(
        "LEGENDRE",
        "Positive Gauss-Legendre nodes on [-1, 1] with half their weights.",
        [list(pair) for pair in legendre()],
    )


if __name__ == "__main__":
    main()
