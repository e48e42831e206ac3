"""``dpsvm-fast audit``: the audit table."""

from __future__ import annotations

import argparse
from typing import Any

import click

from dpsvm_fast.audit import _command
from dpsvm_fast.cli._screen import Screen, pass_screen
from dpsvm_fast.cli._types import Real, Whole

__all__ = ["command"]


@click.command("audit")
@click.option("--seconds", type=Real(0.0), default=10.0)
@click.option("--trials", type=Whole(1))
@click.option("--epsilon", type=Real(0.0), multiple=True, default=(1.0, 4.0))
@click.option("--mechanism")
@click.option("--threads", type=Whole(1))
@pass_screen
def command(screen: Screen, **options: Any) -> int:
    """Try to refute what every mechanism claims."""
    return _command.run(argparse.Namespace(json=screen.json, **options))
