"""`airflow cdc ...`: the same commands, with connections that Airflow keeps.

Airflow imports this module on every call of its command line, so nothing else of ours is
imported before a command runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand, lazy_load_command

from airflow_cdc_provider.cli.arguments import COMMANDS, Option

_STDOUT, _STDERR = 1, 2


def get_cdc_commands() -> list[GroupCommand]:
    """Return the command group `cdc` for Airflow's command line."""
    return [
        GroupCommand(
            name="cdc",
            help="Copy MySQL and MariaDB tables elsewhere and keep them in step",
            subcommands=[
                ActionCommand(
                    name=name,
                    help=text,
                    func=lazy_load_command(f"{__name__}.run_command"),
                    args=[_argument(option) for option in options],
                )
                for name, (text, options) in COMMANDS.items()
            ],
        )
    ]


def _argument(option: Option) -> Arg:
    """Return an option in the form of Airflow's command line."""
    return Arg(option.flags, **option.arguments())  # type: ignore[no-untyped-call]


def run_command(options: argparse.Namespace) -> None:
    """Run one `airflow cdc` command, whose name is in `subcommand`."""
    # Airflow asks its own database for connections only where this says so, as its own commands
    # do; elsewhere only those in the environment are found.
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
    # imported here and not above, as the module says
    from airflow_cdc_provider.cli.lookup import Lookup  # noqa: PLC0415
    from airflow_cdc_provider.cli.main import execute  # noqa: PLC0415 - see above
    from airflow_cdc_provider.hooks.dag_runs import begin_sync_run  # noqa: PLC0415
    from airflow_cdc_provider.hooks.dsn import AirflowDsns  # noqa: PLC0415
    from airflow_cdc_provider.hooks.steps import find_spark_master  # noqa: PLC0415

    lookup = Lookup(AirflowDsns(), find_spark_master, begin_sync_run, in_airflow=True)
    with _results_alone() as out:
        code = execute(options.subcommand, options, lookup, out=out)
    sys.exit(code)


@contextmanager
def _results_alone() -> Iterator[TextIO]:
    """Keep standard output for results; all other output goes to standard error.

    Airflow's loggers write to standard output, and some of them hold the stream itself. So it is
    the file below that changes: what is written to it goes to standard error.
    """
    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as out:
            yield out
    finally:
        sys.stdout.flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)
