"""`airflow cdc ...`: the same commands, with connections that Airflow keeps.

Airflow imports this module on every call of its command line, so nothing else of ours is
imported before a command runs.
"""

from __future__ import annotations

import argparse
import sys

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand, lazy_load_command

from airflow_cdc_provider.cli.arguments import COMMANDS, Option


def get_cdc_commands() -> list[GroupCommand]:
    """Return the group that the provider adds to Airflow's command line."""
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
    return Arg(option.flags, **option.arguments())  # type: ignore[no-untyped-call]


def run_command(options: argparse.Namespace) -> None:
    """Run one command; Airflow's parser leaves its name in `subcommand`."""
    # imported here and not above, as the module says
    from airflow_cdc_provider.cli.commands import Lookup  # noqa: PLC0415
    from airflow_cdc_provider.cli.main import execute  # noqa: PLC0415 - see above
    from airflow_cdc_provider.hooks.dsn import AirflowDsns  # noqa: PLC0415
    from airflow_cdc_provider.hooks.steps import spark_master  # noqa: PLC0415

    sys.exit(execute(options.subcommand, options, Lookup(AirflowDsns(), spark_master)))
