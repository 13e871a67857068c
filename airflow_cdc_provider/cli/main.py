"""Run one command and turn how it went into an exit code.

An error of ours is printed as what, where, what is at risk and what to do, never as a stack
trace, and without any password of the DSNs in use. Anything else is a mistake in the product and
keeps its trace.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TextIO

from airflow_cdc_provider.cli import commands
from airflow_cdc_provider.cli.arguments import parser
from airflow_cdc_provider.cli.commands import Lookup
from airflow_cdc_provider.core.errors import CdcError, RefusedError
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns, EnvironmentMasters
from airflow_cdc_provider.views.display import Screen


class ExitCode(IntEnum):
    """What a command's exit code says."""

    FINE = 0
    DIFFERENT = 1
    REFUSED = 2
    FAILED = 3
    INTERRUPTED = 130


Command = Callable[[argparse.Namespace, Lookup, Screen], bool]
"""Returns False where the data differ."""

COMMANDS: dict[str, Command] = {
    "check": commands.check,
    "plan": commands.plan,
    "run": commands.run,
    "status": commands.status,
    "verify": commands.verify,
    "pause": commands.pause,
    "resume": commands.resume,
    "restart": commands.restart,
    "drop": commands.drop,
}


def main(arguments: Sequence[str] | None = None) -> ExitCode:
    """Run the command that the arguments name."""
    options = parser().parse_args(arguments)
    lookup = Lookup(EnvironmentDsns(os.environ), EnvironmentMasters(os.environ))
    return execute(options.command, options, lookup)


def execute(
    command: str, options: argparse.Namespace, lookup: Lookup, *, out: TextIO | None = None
) -> ExitCode:
    """Run one command with its parsed options; JSON goes to `out`, standard output if None."""
    out = out or sys.stdout
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a stop is a stop
    screen = Screen(as_json=options.json, out=out)
    try:
        fine = COMMANDS[command](options, lookup, screen)
    except CdcError as error:
        if not screen.has_result:  # the findings of a check have been shown in full
            _explain(error, json_to=out if options.json else None)
        return ExitCode.REFUSED if isinstance(error, RefusedError) else ExitCode.FAILED
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run again to go on from what is committed\n")
        return ExitCode.INTERRUPTED
    finally:
        screen.close()
    return ExitCode.FINE if fine else ExitCode.DIFFERENT


def _explain(error: CdcError, *, json_to: TextIO | None) -> None:
    if json_to is not None:
        form = {
            "error": {
                "code": error.code,
                "what": error.what,
                "where": error.where,
                "risk": error.risk,
                "remedy": error.remedy,
            }
        }
        json_to.write(json.dumps(form, indent=2) + "\n")
    lines = [f"{error.code} {error.what}"]
    for label, text in (
        ("where", error.where),
        ("at risk", error.risk),
        ("what to do", error.remedy),
    ):
        if text:
            lines.append(f"  {label}: {text}")
    sys.stderr.write("\n".join(lines) + "\n")
