"""Run one command and turn how it went into an exit code.

An error of ours is printed as what, where, what is at risk and what to do, never as a stack
trace, and without any password of the DSNs in use. Anything else is a mistake in the product and
keeps its trace.

Libraries cost more time than a small command's own work, so nothing is imported before the options
are read, and then only what the command needs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

from airflow_cdc_provider.cli.arguments import parser
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import (
    CdcError,
    NotStoppedYetError,
    PauseTakenBackError,
    RefusedError,
)

if TYPE_CHECKING:
    from airflow_cdc_provider.views.display import Screen


class ExitCode(IntEnum):
    """The exit code of a command."""

    FINE = 0
    DIFFERENT = 1
    REFUSED = 2
    FAILED = 3
    NOT_YET = 4
    TAKEN_BACK = 5
    INTERRUPTED = 130


Command = Callable[[argparse.Namespace, Lookup, "Screen"], bool]
"""Returns False where the data differ."""

MODULES: Mapping[str, str] = {
    "init": "starting",
    "check": "checking",
    "plan": "planning",
    "run": "running",
    "status": "status",
    "verify": "verifying",
    "log": "log",
    "resync": "resync",
    "backfill": "resync",
    "requests": "request_list",
    "conflicts": "conflicts",
    "approve": "approving",
    "cancel": "request_list",
    "add": "tables",
    "remove": "tables",
    "show": "showing",
    "topology": "topology",
    "throttle": "throttling",
    "pause": "pausing",
    "start": "pausing",
    "resume": "pausing",
    "restart": "pausing",
    "reset": "reset_drop",
    "skip": "overriding",
    "accept": "overriding",
    "drop": "reset_drop",
}
"""Where each command is, in `cli.commands`."""


def main(arguments: Sequence[str] | None = None) -> ExitCode:
    """Run the command that the arguments name, and return its exit code."""
    options = parser().parse_args(arguments)
    # imported here and not above, as the module says
    from airflow_cdc_provider.pipeline.connections import (  # noqa: PLC0415
        EnvironmentDsns,
        EnvironmentMasters,
    )

    lookup = Lookup(EnvironmentDsns(os.environ), EnvironmentMasters(os.environ))
    return execute(options.command, options, lookup)


def execute(
    command: str, options: argparse.Namespace, lookup: Lookup, *, out: TextIO | None = None
) -> ExitCode:
    """Run one command with parsed options; its result goes to `out` or standard output."""
    from airflow_cdc_provider.views.display import Screen  # noqa: PLC0415 - as the module says

    out = out or sys.stdout
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a stop is a stop
    screen = Screen(as_json=options.json, out=out)
    try:
        fine = _command(command)(options, lookup, screen)
    except CdcError as error:
        if not screen.has_result:  # the findings of a check have been shown in full
            _explain(error, json_to=out if options.json else None)
        return _code_of(error)
    except BrokenPipeError:  # whoever reads, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        return ExitCode.FAILED
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run again to go on from what is committed\n")
        return ExitCode.INTERRUPTED
    finally:
        screen.close()
    return ExitCode.FINE if fine else ExitCode.DIFFERENT


def _code_of(error: CdcError) -> ExitCode:
    """Return the exit code of a command that ends with an error."""
    codes = (
        (RefusedError, ExitCode.REFUSED),
        (NotStoppedYetError, ExitCode.NOT_YET),
        (PauseTakenBackError, ExitCode.TAKEN_BACK),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), ExitCode.FAILED)


def _command(name: str) -> Command:
    """Import a command by name."""
    module = import_module(f"airflow_cdc_provider.cli.commands.{MODULES[name]}")
    command: Command = getattr(module, name)
    return command


def _explain(error: CdcError, *, json_to: TextIO | None) -> None:
    """Show an error: as text, and as JSON if wanted."""
    if json_to is not None:
        json_to.write(json.dumps({"error": error.to_json()}, indent=2) + "\n")
    lines = [f"{error.code} {error.what}"]
    for label, text in (
        ("where", error.where),
        ("at risk", error.risk),
        ("what to do", error.remedy),
    ):
        if text:
            lines.append(f"  {label}: {text}")
    sys.stderr.write("\n".join(lines) + "\n")
