"""Init: ask what is to be copied, write the pipeline file, check it.

Nothing is written before all questions are answered, and the file appears whole or not at all.
What a flag says is never asked; a wrong flag ends the command, a wrong answer is asked again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from airflow_cdc_provider.cli.commands.checking import check
from airflow_cdc_provider.cli.commands.opening import Options, confirm
from airflow_cdc_provider.cli.completion import completing
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, CdcError, RefusedError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.core.table_patterns import TablePattern, every_table_of, words_of
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.pipeline.file.draft import Draft
from airflow_cdc_provider.pipeline.file.loader import parse_pipeline
from airflow_cdc_provider.pipeline.file.model import Reference
from airflow_cdc_provider.pipeline.steps.choosing import (
    Choice,
    Offered,
    Routing,
    SourceTables,
    choose,
    offered_tables,
    read_routes,
    route,
)
from airflow_cdc_provider.systems.registry import look_at, rights_at
from airflow_cdc_provider.views.display import Screen

Answer = TypeVar("Answer")
_MODES = ("continuous", "bounded")
_VERIFY = ("after_snapshot", "always", "never")
_FOLDERS = (
    "; `init` writes files for servers only: a folder or bucket is written into the file by hand, "
    "as docs/quick_start_lake.md shows"
)


@dataclass(frozen=True, slots=True)
class _Server:
    """A server that has answered, and what names it in the file."""

    reference: Reference
    endpoint: Endpoint


def init(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `init`: write a new pipeline file from options and answers."""
    path = _asked(screen, options.file, "FILE", "file to write", _new_path, "pipeline.yaml")
    if path.exists():
        confirm(options, screen, f"{path} is there already. Overwrite it?")
    source = _server(options.source, Part.SOURCE, lookup, screen)
    sink = _server(options.sink, Part.SINK, lookup, screen)
    state = _state(options, lookup)
    choice = _tables(options, source, screen)
    routing = _routing(options, choice, screen)
    draft = Draft(
        name=str(_name_of(path)),
        source=source.reference,
        sink=sink.reference,
        tables=choice.patterns,
        exclude=[str(TablePattern.of(table)) for table in choice.keyless],
        mode=_one_of(options, screen, "mode", _MODES),
        verify=_one_of(options, screen, "verify", _VERIFY),
        route=routing.entries,
        state=state,
    )
    text = draft.text()
    parse_pipeline(text, path)
    _write(path, text)
    screen.say(f"written: {path}")
    _say_rights(Part.SOURCE, source, choice.databases, screen)
    _say_rights(Part.SINK, sink, routing.databases, screen)
    options.file = str(path)
    screen.step("check")
    return check(options, lookup, screen)


def _asked(
    screen: Screen,
    given: str | None,
    flag: str,
    question: str,
    read: Callable[[str], Answer],
    default: str = "",
) -> Answer:
    """Return an option's value, or ask until an answer is valid."""
    if given is not None:
        return _read(read, given, flag)
    if not screen.can_ask:
        raise _missing(flag)
    while True:
        try:
            return _read(read, screen.answer(question, default), flag)
        except EOFError:
            raise _missing(flag) from None
        except CdcError as error:
            screen.say(f"  {error.what}")
            if error.remedy:
                screen.say(f"  what to do: {error.remedy}")


def _read(read: Callable[[str], Answer], text: str, flag: str) -> Answer:
    """Parse an option; a wrong value is refused by the option's name."""
    try:
        return read(text)
    except WrongValueError as error:
        raise RefusedError(error.what, where=flag, risk=NOTHING_CHANGED, remedy=error.fix) from None


def _missing(flag: str) -> RefusedError:
    """Return the error for an option that is missing where no person can answer."""
    return RefusedError(
        f"{flag} is missing, and there is no terminal to ask on",
        where="init",
        risk=NOTHING_CHANGED,
        remedy=f"give {flag}, or run it on a terminal without --json",
    )


def _new_path(text: str) -> Path:
    """Check the path of a new pipeline file."""
    path = Path(text)
    if path.suffix not in {".yaml", ".yml"}:
        raise WrongValueError(f"{text!r} is no YAML file", "end its name with .yaml")
    if path.is_dir() or not path.parent.is_dir():
        raise WrongValueError(f"{text} cannot be written", "name a file in a folder that is there")
    _name_of(path)
    return path


def _name_of(path: Path) -> PipelineName:
    """Return the pipeline's name by its file's name."""
    try:
        return PipelineName(re.sub(r"\W", "_", path.stem, flags=re.ASCII))
    except ValueError as error:
        raise WrongValueError(
            f"the pipeline is named after its file: {error}", "begin the file's name with a letter"
        ) from None


def _server(given: str | None, part: Part, lookup: Lookup, screen: Screen) -> _Server:
    """Return the server that an option or answer names, once it has answered."""

    def connected(text: str) -> _Server:
        reference, dsn = _found(text, lookup, more=_FOLDERS if part is Part.SINK else "")
        server = _Server(reference, _endpoint(text, dsn))
        look = look_at(server.endpoint, part)
        for fact in look.facts:
            screen.say(f"  {fact}")
        return server

    question = f"{part} (Airflow connection, or environment variable with a DSN)"
    return _asked(screen, given, f"--{part}", question, connected)


def _found(text: str, lookup: Lookup, *, more: str = "") -> tuple[Reference, str]:
    """Find a DSN in the environment, else in a connection of that name.

    `more` is added to what to do where there is none.
    """
    for key in ("dsn_env", "conn_id"):
        with suppress(ValidationError):
            reference = Reference.model_validate({key: text})
            if dsn := lookup.dsn_of(reference):
                return reference, dsn
    raise WrongValueError(
        f"there is no environment variable and no connection {text!r}",
        "export NAME='mysql://user:password@host:3306/', or add the connection to Airflow" + more,
    )


def _state(options: Options, lookup: Lookup) -> Reference | None:
    """Return the reference of the state store, None for the default."""
    given: str | None = options.state
    if given is None:
        return None
    return _read(lambda text: _found(text, lookup)[0], given, "--state")


def _endpoint(name: str, dsn: str) -> Endpoint:
    """Parse a DSN."""
    try:
        return Endpoint.parse(dsn)
    except ValueError as error:
        raise WrongValueError(f"{name}: {error}", "correct the DSN") from None


def _tables(options: Options, source: _Server, screen: Screen) -> Choice:
    """Show the source's tables, and return those that are chosen."""
    offered = offered_tables(source.endpoint)
    if options.table is None and screen.can_ask:
        _list(offered.tables, screen)
    given = None if options.table is None else "\n".join(options.table)

    def read(text: str) -> Choice:
        # a pattern given by a flag may have spaces
        words = text.split("\n") if given is not None else words_of(text)
        return choose([word for word in words if word], offered)

    with completing(_completions(offered)):
        choice = _asked(screen, given, "--table", "tables (as 1,3-5 or shop.*)", read)
    for table in choice.keyless:
        screen.say(
            f"left out: {table} has no primary key, and no unique key over NOT NULL columns; taken "
            "out of source.exclude it is copied as well, at a cost"
        )
    screen.say(f"tables: {', '.join(str(one.table) for one in choice.picked)}")
    return choice


def _routing(options: Options, choice: Choice, screen: Screen) -> Routing:
    """Return where the tables go at the sink; without a route each keeps its name."""
    given: list[str] | None = options.route
    if given is None and (options.yes or not screen.can_ask):
        given = []
    if given is not None:
        words = given
        return _read(lambda _: route(read_routes(words), choice), "", "--route")

    def read(text: str) -> Routing:
        return route(read_routes(words_of(text)), choice)

    question = "where they go at the sink (as shop.*=dr_shop.*; empty: under the same names)"
    words = [
        *(f"{name}=" for name in dict.fromkeys(every_table_of(one.table) for one in choice.picked)),
        *(f"{TablePattern.of(one.table)}=" for one in choice.picked),
    ]
    with completing(words):
        return _asked(screen, None, "--route", question, read)


def _completions(offered: SourceTables) -> list[str]:
    """Return what Tab completes to: tables that can be copied, and all of a database."""
    tables = [one.table for one in offered.with_key]
    databases = dict.fromkeys(map(every_table_of, tables))
    return [*databases, *(str(TablePattern.of(table)) for table in tables)]


def _list(offered: tuple[Offered, ...], screen: Screen) -> None:
    """Show the source's tables as a numbered list."""
    for number, one in enumerate(offered, start=1):
        size = f"about {one.estimated_rows:,} rows, {one.estimated_bytes / 1e6:,.1f} MB"
        mark, why = (f"{number}", "") if one.has_key else ("-", "; left out: no primary key")
        screen.say(f"{mark:>5}  {one.table}  {size}{why}")


def _one_of(options: Options, screen: Screen, name: str, values: tuple[str, ...]) -> str:
    """Return a setting that has a few values, the first by default."""
    given: str | None = getattr(options, name)
    if given is None and (options.yes or not screen.can_ask):
        return values[0]

    def read(text: str) -> str:
        if text not in values:
            raise WrongValueError(f"{text!r} is no {name}", f"write {' or '.join(values)}")
        return text

    return _asked(screen, given, f"--{name}", f"{name} ({', '.join(values)})", read, values[0])


def _write(path: Path, text: str) -> None:
    """Write the file in one step, by a temporary file."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise RefusedError(
            f"the file cannot be written: {error.strerror}",
            where=str(path),
            risk=NOTHING_CHANGED,
            remedy="name a file in a folder that may be written to",
        ) from None
    finally:
        part.unlink(missing_ok=True)


def _say_rights(part: Part, server: _Server, databases: Sequence[str], screen: Screen) -> None:
    """Show the GRANT statements that an account needs."""
    screen.say(f"-- at the {part}: all that the account needs")
    for statement in rights_at(server.endpoint, part, databases):
        screen.say(statement)
