"""``dpsvm-fast demo``: private models of real digits."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import click

from dpsvm_fast._demo import DEMO_PLOT, MECHANISMS, PIPELINE, demonstrate
from dpsvm_fast.cli._screen import Screen, pass_screen
from dpsvm_fast.cli._types import FILE, OneOf, Whole

__all__ = ["command"]


@click.command("demo")
@click.option("--mechanism", type=OneOf([PIPELINE, *MECHANISMS]), default=PIPELINE)
@click.option("--output", type=FILE, default=Path(DEMO_PLOT))
@click.option("--certificate", type=FILE)
@click.option("--repeats", type=Whole(1), default=10)
@click.option("--seed", type=int)
@click.option("--no-plot", is_flag=True)
@pass_screen
def command(screen: Screen, **options: Any) -> None:
    """Train on real digits at five values of epsilon."""
    demonstrate(argparse.Namespace(**options))
