"""``dpsvm-fast plan``: noise, before any data are touched."""

from __future__ import annotations

import argparse
from typing import Any

import click

from dpsvm_fast._demo import MECHANISMS, PIPELINE
from dpsvm_fast.cli._old import KERNELS, _plan
from dpsvm_fast.cli._screen import Screen, pass_screen
from dpsvm_fast.cli._types import OneOf, Real, Whole

__all__ = ["command"]


@click.command("plan")
@click.option("--mechanism", type=OneOf([PIPELINE, *MECHANISMS]), default=PIPELINE)
@click.option("--epsilon", type=Real(0.0), required=True)
@click.option("--delta", type=Real(0.0, includes_low=True), required=True)
@click.option("--features", type=Whole(1), required=True)
@click.option("--classes", type=Whole(2), required=True)
@click.option("--samples", type=Whole(1))
@click.option("--C", "C", type=Real(0.0))
@click.option("--adjacency", type=OneOf(["add_remove", "replace_one"]), default="add_remove")
@click.option("--kernel", is_flag=False, flag_value="auto", type=OneOf(KERNELS))
@click.option("--data-norm", type=Real(0.0), default=1.0)
@pass_screen
def command(screen: Screen, **options: Any) -> int:
    """Say what noise to expect, before any data are touched."""
    return _plan(argparse.Namespace(**options))
