"""The commands and their options, for both command lines."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_cdc_provider import __version__


class Once(argparse.Action):
    """An argparse action that refuses a second value for an option."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        """Store the value, or fail if the option was given before."""
        given = f"_{self.dest}_is_given"
        if getattr(namespace, given, False):
            parser.error(f"argument {option_string}: it takes one value and is given twice")
        setattr(namespace, given, True)
        setattr(namespace, self.dest, values)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command, for argparse."""

    flags: tuple[str, ...]
    help: str
    choices: tuple[str, ...] | None = None
    default: object = None
    kind: type | None = None
    """None is a flag."""
    to: str = ""
    """The attribute it is kept in, if not that of its flag."""
    many: bool = False
    """It may be given more than once; a list, or None."""
    optional: bool = False
    """A place that may be left out."""

    def arguments(self) -> Mapping[str, object]:
        """Return the keyword arguments of `add_argument`."""
        if self.kind is None:
            return {"help": self.help, "action": "store_true"}
        common: dict[str, object] = {"help": self.help, "type": self.kind}
        if self.to:
            common["dest"] = self.to
        if self.choices is not None:
            common["choices"] = self.choices
        if not self.flags[0].startswith("-"):
            return {**common, "nargs": "?"} if self.optional else common
        if self.many:
            return {**common, "action": "append"}
        return {**common, "action": Once, "default": self.default}


FILE = Option(("file",), "the pipeline's YAML file", kind=str)
FILES = Option(("file",), "the pipeline's YAML file, or a folder: all of its pipelines", kind=str)
JSON = Option(("--json",), "write one JSON value to standard output")
MASTER = Option(("--master",), "Spark's master; local[*] without one", kind=str)
UNTIL = Option(
    ("--until",),
    "caught-up: end when all that was committed before is in the sink; without it the pipeline "
    "runs in the mode of its file",
    choices=("caught-up",),
    kind=str,
)
LOGS = Option(("--log-folder",), "where the logs of Spark jobs go", kind=str)
WATCH = Option(("--watch",), "keep showing it until interrupted")
TABLES = Option(
    ("--table",), "only this table, as database.table; may be given again", kind=str, many=True
)
SETTLE = Option(
    ("--settle-s",),
    "seconds a running stream gets, each time, to pass rows that differ",
    kind=float,
    default=120.0,
)
WAIT = Option(("--wait-s",), "seconds to wait for the owner to do so", kind=float, default=60.0)
AT = Option(
    ("--at",),
    "a place of the log: FILE:OFFSET, a GTID, or the GTIDs that a reader has; without it the "
    "stream's position, or the log's end",
    kind=str,
)
PLACE = Option(
    ("--at",),
    "the place that the stream refuses to pass, as the refusal names it: a GTID, or FILE:OFFSET",
    kind=str,
)
REASON = Option(("--reason",), "why; it is kept with the pipeline's events", kind=str)
SOURCE = Option(("--source",), "the history of the source that answers now")
EVENTS = Option(("--events",), "how many events to show", kind=int, default=20)
VALUES = Option(
    ("--values",), "show values, too: of changed rows, of rows that differ, or of conflicts"
)
CHANGED = Option(("--changed",), "leave out tables that were found equal and did not change since")
SAMPLE = Option(
    ("--sample",),
    "compare about so many percent of each table's splits, chosen by chance, instead of all rows",
    kind=float,
    default=100.0,
)
SEED = Option(("--seed",), "choose the same sample again; its log line has the number", kind=int)
YES = Option(("--yes",), "do it without asking")
TABLE = Option(
    ("--table",),
    "this table, as database.table; may be given again; all tables without one",
    kind=str,
    many=True,
)
STOPPED = Option(
    ("--table",),
    "only this table, as database.table, while all others flow on; may be given again",
    kind=str,
    many=True,
)
_KEY = (
    "parts of a key are separated by commas, later ones may be left out; dates and times as text, "
    "in UTC; bytes as 0x.."
)
FROM_KEY = Option(("--from-key",), f"the first key that is read again; {_KEY}", kind=str)
TO_KEY = Option(
    ("--to-key",),
    f"the key up to which is read; it is not read itself; {_KEY}",
    kind=str,
)
WHERE = Option(
    ("--where",),
    "only rows that meet this condition, at the source or at the sink: SQL on the table's columns",
    kind=str,
)
COLUMN = Option(("--column",), "the column whose values are in the interval", kind=str)
BACKFILLED = Option(("--table",), "the table, as database.table", kind=str)
_VALUE = "a number, a date, or a time with a date; TIMESTAMP in UTC"
FROM = Option(
    ("--from",),
    f"the first value that is read again: {_VALUE}; all up to --to without it",
    kind=str,
    to="start",
)
TO = Option(
    ("--to",),
    f"the value up to which is read; it is not read itself: {_VALUE}; all from --from on without",
    kind=str,
    to="end",
)
SEEDED_FROM = Option(
    ("--seeded-from",),
    "the file of the opposite edge, at the first start of a way back: its rows are there already",
    kind=str,
)
DRY_RUN = Option(("--dry-run",), "show how many rows it is about; ask for nothing")
WAIT_FOR = Option(("--wait",), "wait until it is done; where nobody is at work, do what waits here")
DROP_TARGET = Option(("--drop-target",), "drop the table at the sink as well, with its rows")
ID = Option(
    ("--id",),
    "the request's id; the same id with the same arguments is the same request",
    kind=str,
    default="",
)
REPAIR = Option(
    ("--repair",), "have the rows that differ read again; with --wait, compare them once more"
)
NEW_FILE = Option(("file",), "the YAML file that is written", kind=str, optional=True)
_SERVER = "an Airflow connection, or an environment variable that holds a DSN"
NEW_SOURCE = Option(("--source",), f"the server to copy from: {_SERVER}", kind=str)
NEW_SINK = Option(("--sink",), f"the server to copy to: {_SERVER}", kind=str)
PICKED = Option(
    ("--table",),
    "tables to copy, as database.table, where * is any characters; may be given again",
    kind=str,
    many=True,
)
ROUTED = Option(
    ("--route",),
    "where tables go at the sink, as SOURCE=SINK: 'shop.*=dr_shop.*'; may be given again; tables "
    "keep their names without one",
    kind=str,
    many=True,
)
NEW_STATE = Option(
    ("--state",), f"what remembers progress, if not a SQLite file: {_SERVER}", kind=str
)
MODE = Option(
    ("--mode",),
    "continuous: the stream goes on and on, as without it; bounded: a run catches up and ends",
    choices=("continuous", "bounded"),
    kind=str,
)
VERIFIED = Option(
    ("--verify",),
    "when runs of the DAG compare all rows; after_snapshot without it",
    choices=("after_snapshot", "always", "never"),
    kind=str,
)
OVERWRITE = Option(("--yes",), "take defaults without asking, and overwrite the file")
ACTION = Option(
    ("action",),
    "check: refuse edges by which changes would be lost or go round; show: draw them",
    choices=("check", "show"),
    kind=str,
)
FOLDER = Option(("folder",), "the folder with the files of all edges", kind=str)
SVG = Option(("--svg",), "show: write a picture to this file, too", kind=str)
_LIMIT = "none takes the limit away"
ROWS_PER_S = Option(("--rows-per-second",), f"rows read a second; {_LIMIT}", kind=str)
MB_PER_S = Option(("--mb-per-second",), f"megabytes read a second; {_LIMIT}", kind=str)
MOST_THREADS = Option(
    ("--max-threads-running",),
    f"running threads at the source above which no split is begun; {_LIMIT}",
    kind=str,
)
CRITICAL_THREADS = Option(
    ("--critical-threads-running",),
    f"running threads at the source from which on the snapshot or request ends; {_LIMIT}",
    kind=str,
)
MOST_LAG = Option(
    ("--max-replica-lag",),
    f"how far a replica of the file may be behind, as 10s; {_LIMIT}",
    kind=str,
)
NO_THROTTLE = Option(("--off",), "no limit at all")
FROM_FILE = Option(("--from-file",), "the limits of the file again, as it is now")
SINCE = Option(("--since",), "only those since this time, as 2026-11-26T14:00 in UTC", kind=str)
MOST = Option(("--most",), "how many to list, the last ones; 100 without it", kind=int, default=100)
REQUEST = Option(("id",), "the request's id, as `requests` shows it", kind=str)

COMMANDS: Mapping[str, tuple[str, tuple[Option, ...]]] = {
    "init": (
        "ask what is to be copied, write the pipeline file, and check it",
        (
            NEW_FILE,
            JSON,
            NEW_SOURCE,
            NEW_SINK,
            PICKED,
            ROUTED,
            MODE,
            VERIFIED,
            NEW_STATE,
            OVERWRITE,
        ),
    ),
    "check": ("look at the file, the source and the sink; change nothing", (FILE, JSON)),
    "plan": ("show what run would do; change nothing", (FILE, JSON)),
    "run": (
        "do what is still to do: snapshot, hand-off, stream",
        (FILE, JSON, UNTIL, MASTER, LOGS, SEEDED_FROM),
    ),
    "status": ("show what is remembered of the pipeline", (FILE, JSON, WATCH)),
    "show": (
        "show pipelines in a line each: wanted and actual state, tables, requests, lag, problem",
        (FILES, JSON),
    ),
    "topology": (
        "look at the edges of two-way sync that the files of a folder are; change nothing",
        (ACTION, FOLDER, JSON, SVG),
    ),
    "verify": (
        "compare source and sink, both ways",
        (FILE, JSON, TABLES, CHANGED, SAMPLE, SEED, SETTLE, VALUES, REPAIR, YES, WAIT_FOR),
    ),
    "log": (
        "show what stands in the source's log around a position; change nothing",
        (FILE, JSON, AT, EVENTS, VALUES),
    ),
    "resync": (
        "read rows of a running pipeline again; their tables flow on",
        (FILE, JSON, TABLE, FROM_KEY, TO_KEY, WHERE, DRY_RUN, YES, WAIT_FOR, ID),
    ),
    "backfill": (
        "read the rows again whose column lies in an interval; their table flows on",
        (FILE, JSON, BACKFILLED, COLUMN, FROM, TO, DRY_RUN, YES, WAIT_FOR, ID),
    ),
    "requests": ("list what was asked of the pipeline", (FILE, JSON)),
    "conflicts": (
        "list rows that both nodes of an edge had changed, and whose change was kept",
        (FILE, JSON, SINCE, MOST, VALUES),
    ),
    "approve": (
        "let a request begin that is about more rows than the file allows unasked",
        (FILE, REQUEST, JSON),
    ),
    "cancel": ("give a request up; rows that were read again stay", (FILE, REQUEST, JSON)),
    "add": (
        "let the stream follow tables that the file picks now; only they are read",
        (FILE, JSON, TABLE, WAIT),
    ),
    "remove": (
        "let the stream give up tables that the file does not pick any more; their rows stay",
        (FILE, JSON, TABLE, DROP_TARGET, WAIT, YES),
    ),
    "throttle": (
        "show how fast rows may be read, or change it while the pipeline runs",
        (
            FILE,
            JSON,
            ROWS_PER_S,
            MB_PER_S,
            MOST_THREADS,
            CRITICAL_THREADS,
            MOST_LAG,
            NO_THROTTLE,
            FROM_FILE,
        ),
    ),
    "pause": (
        "ask the pipeline's owner to stop, or to leave single tables alone",
        (FILES, JSON, STOPPED, WAIT, YES),
    ),
    "start": (
        "begin a run of the pipeline's DAG in Airflow, unless one is under way",
        (FILES, JSON, YES),
    ),
    "resume": (
        "allow the pipeline to run again, in Airflow begin a run; or bring single tables back",
        (FILES, JSON, STOPPED, WAIT, YES),
    ),
    "restart": (
        "have the pipeline's owner begin again from its last commit; clear what failed",
        (FILES, JSON, WAIT, YES),
    ),
    "reset": (
        "plan from scratch: the next run reads all tables again, or those that are named",
        (FILES, JSON, TABLE, WAIT, YES),
    ),
    "skip": (
        "go past one place of the log that the stream refuses to pass; the tables that it may have "
        "changed are read again",
        (FILE, JSON, PLACE, REASON, YES),
    ),
    "accept": (
        "take the history of a source that lost a part of ours; the tables that it may concern are "
        "read again",
        (FILE, JSON, SOURCE, REASON, YES),
    ),
    "drop": ("forget the pipeline's state and ledger rows; tables stay", (FILES, JSON, YES)),
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of `python -m airflow_cdc_provider`."""
    top = argparse.ArgumentParser(
        prog="python -m airflow_cdc_provider",
        description="Copy MySQL and MariaDB tables elsewhere and keep them in step.",
        epilog="Exit codes: 0 fine, 1 the data differ, 2 refused by preflight or configuration, "
        "3 failed, 130 interrupted: run again to go on.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (text, options) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        for option in options:
            command.add_argument(*option.flags, **option.arguments())  # type: ignore[arg-type]
    return top
