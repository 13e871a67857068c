"""`airflow cdc ...` offers the same commands as `python -m airflow_cdc_provider`."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest
from airflow.cli.cli_config import ActionCommand

from airflow_cdc_provider import __version__
from airflow_cdc_provider.cli.airflow_commands import get_cdc_commands
from airflow_cdc_provider.cli.arguments import COMMANDS, parser


def airflow_parser() -> argparse.ArgumentParser:
    """Build the parser the way Airflow does."""
    top = argparse.ArgumentParser()
    (group,) = get_cdc_commands()
    commands = top.add_subparsers(dest="subcommand")
    for command in group.subcommands:
        assert isinstance(command, ActionCommand)
        built = commands.add_parser(command.name, help=command.help)
        for argument in command.args:
            argument.add_to_parser(built)
    return top


def test_every_command_takes_the_same_options() -> None:
    ours, airflows = parser(), airflow_parser()
    for name in COMMANDS:
        places = [option for option in COMMANDS[name][1] if not option.flags[0].startswith("-")]
        values = (p.choices[0] if p.choices else f"the {p.flags[0]}" for p in places)
        arguments = [name, *values, "--json"]
        mine, theirs = vars(ours.parse_args(arguments)), vars(airflows.parse_args(arguments))
        assert mine.pop("command") == theirs.pop("subcommand") == name
        assert mine == theirs


def test_an_option_may_be_given_again_where_that_is_said() -> None:
    words = ["resync", "shop.yaml", "--table", "shop.a", "--table", "shop.b"]
    for built in (parser(), airflow_parser()):
        assert built.parse_args(words).table == ["shop.a", "shop.b"]


def test_a_command_line_of_airflow_imports_nothing_of_the_rooms_below() -> None:
    program = (
        "import sys, airflow_cdc_provider.cli.airflow_commands;"
        "print(sorted({m.split('.')[1] for m in sys.modules"
        " if m.startswith('airflow_cdc_provider.')}))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = out.stdout.splitlines()[-1]
    assert loaded in {"['cli']", "['cli', 'get_provider_info']"}, out.stderr


def test_the_version_is_shown_in_the_place_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["--version"])
    assert (ended.value.code, capsys.readouterr().out.strip()) == (0, __version__)
