"""Preflight of the sink: may we write there, and are the tables that exist the right ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_ddl import sink_create_statement
from airflow_cdc_provider.core.table_schema import Column, TableSchema
from airflow_cdc_provider.mysql.capabilities import Capabilities
from airflow_cdc_provider.mysql.catalogue import triggers
from airflow_cdc_provider.mysql.connection import Role
from airflow_cdc_provider.mysql.findings import Finding, Level
from airflow_cdc_provider.mysql.introspection import read_schemas

if TYPE_CHECKING:
    from airflow_cdc_provider.mysql.connection import ServerConnection

_SMALL_PACKET = 16 << 20


@dataclass(frozen=True, slots=True)
class Sink:
    """What preflight knows of the sink server."""

    connection: ServerConnection
    capabilities: Capabilities
    subject: str


def sink_findings(
    sink: Sink, source: Capabilities, plans: Sequence[TablePlan]
) -> Iterator[Finding]:
    """Yield what is to be said about the sink and the tables rows go to."""
    yield from _server(sink, source)
    yield from _same_tables(sink, source, plans)
    targets = [plan.sink_table for plan in plans]
    yield from _clashing_names(sink, targets)
    found = read_schemas(sink.connection, targets, with_statement=False, role=Role.SINK)
    firing = triggers(sink.connection, targets, role=Role.SINK)
    for plan in plans:
        there = found.get(plan.sink_table)
        if there is None:
            yield from _creatable(sink, plan)
        else:
            yield from _existing(plan, there, firing)


def _server(sink: Sink, source: Capabilities) -> Iterator[Finding]:
    there = sink.capabilities
    yield Finding("sink.server", Level.INFO, sink.subject, f"{there.flavour} {there.version_text}")
    if there.is_read_only:
        yield Finding(
            "sink.read_only",
            Level.BLOCK,
            sink.subject,
            "the server is read-only",
            "a server that takes writes",
            "it may be a replica, or the wrong server",
            "SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF;",
        )
    if not there.allows_local_infile:
        yield Finding(
            "sink.local_infile",
            Level.INFO,
            sink.subject,
            "local_infile = OFF",
            "local_infile = ON",
            "snapshots load about twice as fast with LOAD DATA LOCAL; without it rows are inserted",
            "SET GLOBAL local_infile = ON;",
        )
    wanted = max(_SMALL_PACKET, source.max_allowed_packet)
    if there.max_allowed_packet < wanted:
        yield Finding(
            "sink.max_allowed_packet",
            Level.WARN,
            sink.subject,
            f"max_allowed_packet = {there.max_allowed_packet}",
            f"max_allowed_packet = {wanted}",
            "a row that the source could take may be too large for one statement here",
            f"SET GLOBAL max_allowed_packet = {wanted};",
        )


def _same_tables(sink: Sink, source: Capabilities, plans: Sequence[TablePlan]) -> Iterator[Finding]:
    if sink.capabilities.server_uuid != source.server_uuid:
        return
    captured = {plan.schema.table for plan in plans}
    for plan in plans:
        if plan.sink_table in captured:
            yield Finding(
                "sink.same_table",
                Level.BLOCK,
                str(plan.sink_table),
                "source and sink are one server, and the rows would go to a table that is copied",
                "a table of its own",
                "the copy would be read as a change and copied again",
                "give it a route to another database in sink.route",
            )


def _clashing_names(sink: Sink, targets: Sequence[TableId]) -> Iterator[Finding]:
    if not sink.capabilities.names_fold_case:
        return
    folded = Counter(str(target).casefold() for target in targets)
    for target in targets:
        if folded[str(target).casefold()] > 1:
            yield Finding(
                "sink.name_case",
                Level.BLOCK,
                str(target),
                "another table goes to a name that differs by case alone",
                "names that differ otherwise",
                "this sink does not tell them apart (lower_case_table_names)",
                "give one of them another name in sink.route",
            )


def _creatable(sink: Sink, plan: TablePlan) -> Iterator[Finding]:
    if not plan.schema.create_statement:
        return
    flavour = sink.capabilities.flavour.value
    try:
        sink_create_statement(plan.schema, plan.sink_table, sink_flavour=flavour)
    except CdcError as error:
        yield Finding(
            "sink.create_table",
            Level.BLOCK,
            str(plan.sink_table),
            error.what,
            f"a definition that {flavour} has too",
            error.risk,
            error.remedy,
        )


def _existing(
    plan: TablePlan, there: TableSchema, firing: Mapping[TableId, tuple[str, ...]]
) -> Iterator[Finding]:
    subject = str(plan.sink_table)
    here = plan.schema
    if there.primary_key != here.primary_key:
        yield Finding(
            "sink.primary_key",
            Level.BLOCK,
            subject,
            f"PRIMARY KEY ({', '.join(there.primary_key)})",
            f"PRIMARY KEY ({', '.join(here.primary_key)})",
            "rows are written and removed by the source's key",
            f"ALTER TABLE {quote_table(plan.sink_table)} DROP PRIMARY KEY, ADD PRIMARY KEY "
            f"({', '.join(map(quote_identifier, here.primary_key))});",
        )
    if there.engine != "InnoDB":
        yield Finding(
            "sink.engine",
            Level.BLOCK,
            subject,
            f"ENGINE = {there.engine}",
            "ENGINE = InnoDB",
            "rows and progress are committed in one transaction",
            f"ALTER TABLE {quote_table(plan.sink_table)} ENGINE = InnoDB;",
        )
    for name in firing.get(plan.sink_table, ()):
        yield Finding(
            "sink.trigger",
            Level.BLOCK,
            subject,
            f"trigger {name}",
            "no triggers",
            "what the source's triggers did is copied already; these would change rows again",
            f"DROP TRIGGER {quote_identifier(plan.sink_table.database)}.{quote_identifier(name)};",
        )
    yield from _columns(plan, there)
    yield from _unique_keys(plan, there)


def _columns(plan: TablePlan, there: TableSchema) -> Iterator[Finding]:
    subject = str(plan.sink_table)
    theirs = {column.name.casefold(): column for column in there.columns}
    for column in plan.schema.copied_columns:
        other = theirs.pop(column.name.casefold(), None)
        if other is None or other.generated:
            yield Finding(
                "sink.column",
                Level.BLOCK,
                subject,
                f"column {column.name} is {'generated' if other else 'missing'}",
                "the source's columns",
                "its values would have no place",
                f"add the column {column.name} as the source defines it, or drop the table and "
                "let it be created",
            )
            continue
        yield from _column_type(plan, column, other)
    generated = {column.name.casefold() for column in plan.schema.columns if column.generated}
    extra = [column for name, column in theirs.items() if name not in generated]
    for column in extra:
        if column.generated:
            continue
        yield Finding(
            "sink.extra_column",
            Level.INFO if column.nullable else Level.WARN,
            subject,
            f"column {column.name} is not in the source",
            why="it gets its default; without one, rows are refused",
        )


def _column_type(plan: TablePlan, here: Column, there: Column) -> Iterator[Finding]:
    same_type = (here.type.name, here.type.unsigned) == (there.type.name, there.type.unsigned)
    json = {"json", "longtext"}
    if not same_type and not {here.type.name, there.type.name} <= json:
        yield Finding(
            "sink.column_type",
            Level.WARN,
            str(plan.sink_table),
            f"column {here.name} is {_shown(there)}",
            _shown(here),
            "a value that does not fit is refused, and one that fits may be written differently",
            f"change the column {here.name} to the source's type",
        )
    is_key = here.name in plan.schema.primary_key
    if is_key and here.type.collation != there.type.collation:
        yield Finding(
            "sink.key_collation",
            Level.BLOCK,
            str(plan.sink_table),
            f"key column {here.name} has the collation {there.type.collation}",
            f"{here.type.collation}",
            "another order or equality of keys could merge two rows, or remove rows of a "
            "neighbouring split",
            f"give the column {here.name} the collation {here.type.collation}",
        )


def _shown(column: Column) -> str:
    return column.type.name + (" unsigned" if column.type.unsigned else "")


def _unique_keys(plan: TablePlan, there: TableSchema) -> Iterator[Finding]:
    known = {frozenset(key.columns) for key in plan.schema.unique_keys}
    for key in there.unique_keys:
        if frozenset(key.columns) in known:
            continue
        yield Finding(
            "sink.unique_key",
            Level.BLOCK,
            str(plan.sink_table),
            f"unique key {key.name} ({', '.join(key.columns)}) is not in the source",
            "the source's unique keys, which are added after the consistent point",
            "a row the source took would be refused, or take another row's place",
            f"ALTER TABLE {quote_table(plan.sink_table)} DROP INDEX {quote_identifier(key.name)};",
        )
