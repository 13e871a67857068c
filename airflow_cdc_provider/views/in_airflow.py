"""The way in Airflow of what errors and findings name by a command or one of its options.

What they say is the same wherever they are read, and speaks of commands. Whoever reads it in a
task's log or on the page has DAGs, forms and buttons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_cdc_provider.core.identifiers import table_option

BUTTONS = ("pause", "resume", "restart", "throttle")
"""Of a pipeline, on the CDC page; single tables have a button of their own."""
REQUEST_BUTTONS = ("approve", "cancel")
DAGS = {"run": "sync", "resync": "resync", "backfill": "backfill", "verify": "verify"}
ACTIONS = ("pause", "resume", "restart", "add", "remove", "reset", "drop", "throttle")
"""What `CdcControlOperator` does."""
LOOKS = ("check", "plan", "status", "requests", "log", "conflicts")
DECISIONS = ("accept", "skip")
"""What a person decides against a refusal, by a command alone."""
FIELDS = {
    "--from-key": "from_key",
    "--to-key": "to_key",
    "--where": "where",
    "--from": "from",
    "--to": "to",
    "--table": "tables",
}
"""Options, and the fields that runs and tasks have for them."""
SEED = "--seeded-from"
_PIPELINE = "<pipeline>"
"""In the place of a pipeline's name where that is not known."""
_OF_TABLES = frozenset({"pause", "resume", "add", "remove", "reset"})
_KNOWN = frozenset((*BUTTONS, *REQUEST_BUTTONS, *DAGS, *ACTIONS, *LOOKS, *DECISIONS))
_COMMAND = re.compile(r"`([a-z]+)(?: [^`]*)?`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_TABLE = re.compile(r"""--table ('[^']*'(?:"'"'[^']*')*|[^\s.'`]+\.[^\s:,;`]+)""")
"""A name that a shell would not take as it is comes in quotes."""


def way_in_airflow(
    remedy: str, *others: str, file: str = "FILE", table: str = "", pipeline: str = ""
) -> str:
    """Return what to do in Airflow for commands in a remedy; empty if it names none.

    Options are also looked for in `others`, the rest of what an error says. `table` is the one that
    it is all about, where the remedy may leave that out. DAGs are named after `pipeline` if given.
    """
    text = " ".join((remedy, *others))
    commands = _COMMAND.findall(_TABLE.sub("--table", remedy))
    named = dict.fromkeys(name for name in commands if name in _KNOWN)
    about_tables = "--table" in remedy or bool(table and _OF_TABLES.intersection(named))
    found = [f"--table {each}" for each in dict.fromkeys(_TABLE.findall(remedy))]
    if not found and table and about_tables:
        found = [table_option(table)]
    tables = "".join(f" {each}" for each in found)
    ways = [
        f"`{name}`: {_way(name, about_tables=about_tables, arguments=f'{file}{tables}')}"
        for name in named
        if name != "run" or SEED not in text
    ]
    told = "; ".join([*ways, *_fields(text, has_command=bool(named))])
    return told.replace(_PIPELINE, pipeline) if pipeline else told


def _way(name: str, *, about_tables: bool, arguments: str) -> str:
    """Return what to do in Airflow for one command."""
    command = f"`airflow cdc {name} {arguments}`"
    if name in REQUEST_BUTTONS:
        return f"the button {name.capitalize()} of the request, on the CDC page"
    if name in BUTTONS and not about_tables:
        return f"the button {name.capitalize()} on the CDC page"
    if name in _OF_TABLES and about_tables:
        return (
            f"Change… beside the table on the CDC page, the DAG `{_PIPELINE}__tables`, or {command}"
        )
    if name == "run":
        return f"trigger the DAG `{_PIPELINE}__sync`"
    if name in DAGS:
        return f"trigger the DAG `{_PIPELINE}__{DAGS[name]}`; where there is none, {command}"
    if name in ACTIONS:
        return f'a task `CdcControlOperator(action="{name}", ...)`, or {command}'
    return command


def _fields(text: str, *, has_command: bool) -> Iterator[str]:
    """Yield the form's field for each option of a command in a text."""
    for option in dict.fromkeys(_OPTION.findall(text)):
        if option in FIELDS and not (has_command and option == "--table"):
            yield f"`{option}`: the field `{FIELDS[option]}` of the run or the task"
        elif option == SEED:
            yield (
                f"`{option}`: trigger the DAG `{_PIPELINE}__seed`, which finds the file itself, "
                f"and then the DAG `{_PIPELINE}__sync`"
            )
