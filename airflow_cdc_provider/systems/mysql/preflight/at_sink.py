"""Preflight of the sink: may we write there, and are the tables that exist the right ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import (
    TableId,
    quote_identifier,
    quote_table,
    table_option,
)
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.shards import shards_of
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.collation_order import counterpart
from airflow_cdc_provider.systems.mysql.dialect.shaped_statement import added_column
from airflow_cdc_provider.systems.mysql.dialect.shared_tables import (
    disagreements,
    extension,
)
from airflow_cdc_provider.systems.mysql.dialect.stand_ins import (
    carried,
    has_expression_default,
    lacked_types,
    lacking_columns,
)
from airflow_cdc_provider.systems.mysql.dialect.table_ddl import sink_create_statement
from airflow_cdc_provider.systems.mysql.dialect.table_match import (
    Mismatch,
    MismatchKind,
    mismatches,
)
from airflow_cdc_provider.systems.mysql.dialect.type_text import type_text
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
from airflow_cdc_provider.systems.mysql.server.catalogue import firing_triggers
from airflow_cdc_provider.systems.mysql.server.connection import Role
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.mysql.server.own_values import values_of_others

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_REQUIRES_KEYS = "sql_require_primary_key"
_SMALL_PACKET = 16 << 20


@dataclass(frozen=True, slots=True)
class Sink:
    """The sink server as preflight sees it: connection, capabilities and its name in findings."""

    connection: ServerConnection
    capabilities: Capabilities
    subject: str
    is_node: bool = False
    """Of a topology: its tables may be ahead of the source's, by wider types."""


def sink_findings(
    sink: Sink, source: Capabilities, plans: Sequence[TablePlan]
) -> Iterator[Finding]:
    """Yield the findings about the sink server and the tables that rows are copied to."""
    yield from server_findings(sink, source)
    yield from _same_tables(sink, source, plans)
    targets = [plan.sink_table for plan in plans]
    yield from _clashing_names(sink, targets)
    found = read_schemas(sink.connection, targets, with_statement=False, role=Role.SINK)
    firing = firing_triggers(sink.connection, targets)
    yield from _shared(plans)
    for table, text in values_of_others(sink.connection, plans).items():
        yield Finding(
            Code.SINK_SHARED_TABLE,
            Level.BLOCK,
            str(table),
            f"in the sink's table that it shares {text}",
            "columns that take NULL, without a value of their own",
            "its rows would have values that nobody wrote",
            "ALTER TABLE ... MODIFY these columns at the sink without DEFAULT and ON UPDATE",
            only=str(table),
        )
    written = _written_columns(plans)
    for plan in plans:
        yield from _unique_texts(plan, sink.capabilities.flavour.value)
        there = found.get(plan.sink_table)
        yield from _stand_ins(plan, sink.capabilities, there)
        if there is None:
            yield from _creatable(sink, plan)
        else:
            yield from _existing(plan, there, firing, is_node=sink.is_node)
            # once a table, however many share it
            columns = written.pop(plan.sink_table, None)
            yield from () if columns is None else _extra_columns(there, columns)


def server_findings(sink: Sink, source: Capabilities) -> Iterator[Finding]:
    """Yield the findings about the sink's server that do not depend on tables."""
    there = sink.capabilities
    yield Finding(
        Code.SINK_SERVER, Level.INFO, sink.subject, f"{there.flavour} {there.version_text}"
    )
    if there.is_read_only:
        yield Finding(
            Code.SINK_READ_ONLY,
            Level.BLOCK,
            sink.subject,
            "the server is read-only",
            "a server that takes writes",
            "it may be a replica, or the wrong server",
            "SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF;",
        )
    if not there.allows_local_infile:
        yield Finding(
            Code.SINK_LOCAL_INFILE,
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
            Code.SINK_MAX_ALLOWED_PACKET,
            Level.WARN,
            sink.subject,
            f"max_allowed_packet = {there.max_allowed_packet}",
            f"max_allowed_packet = {wanted}",
            "a row that the source could take may be too large for one statement here",
            f"SET GLOBAL max_allowed_packet = {wanted};",
        )


def _same_tables(sink: Sink, source: Capabilities, plans: Sequence[TablePlan]) -> Iterator[Finding]:
    """Yield a finding for each sink table that is itself a captured table of the same server."""
    if sink.capabilities.server_uuid != source.server_uuid:
        return
    captured = {plan.schema.table for plan in plans}
    for plan in plans:
        if plan.sink_table in captured:
            yield Finding(
                Code.SINK_SAME_TABLE,
                Level.BLOCK,
                str(plan.sink_table),
                "source and sink are one server, and the rows would go to a table that is copied",
                "a table of its own",
                "the copy would be read as a change and copied again",
                "give it a route to another database in sink.route",
            )


def _clashing_names(sink: Sink, targets: Sequence[TableId]) -> Iterator[Finding]:
    """Yield a finding for each sink table whose name differs from another's by case alone."""
    if not sink.capabilities.names_fold_case:
        return
    names = dict.fromkeys(targets)  # several may share one
    folded = Counter(str(target).casefold() for target in names)
    for target in names:
        if folded[str(target).casefold()] > 1:
            yield Finding(
                Code.SINK_NAME_CASE,
                Level.BLOCK,
                str(target),
                "another table goes to a name that differs by case alone",
                "names that differ otherwise",
                "this sink does not tell them apart (lower_case_table_names)",
                "give one of them another name in sink.route",
            )


def _creatable(sink: Sink, plan: TablePlan) -> Iterator[Finding]:
    """Yield a finding if the sink cannot have the table's definition."""
    if not plan.target.create_statement:
        return
    capabilities = sink.capabilities
    flavour = capabilities.flavour.value
    numbers_rows = capabilities.is_on("sql_generate_invisible_primary_key")
    if capabilities.is_on(_REQUIRES_KEYS) and not (plan.target.has_key or numbers_rows):
        yield Finding(
            Code.SINK_CREATE_TABLE,
            Level.BLOCK,
            str(plan.sink_table),
            f"the source's table has no key, and the sink has {_REQUIRES_KEYS} = ON",
            f"{_REQUIRES_KEYS} = OFF, or a table that is there",
            "the sink refuses to make a table without a key",
            f"SET GLOBAL {_REQUIRES_KEYS} = OFF; or SET GLOBAL sql_generate_invisible_primary_key "
            "= ON; or create the table yourself, with a column beside the source's that is its "
            "AUTO_INCREMENT PRIMARY KEY",
            only=str(plan.schema.table),
        )
        return
    try:
        plan = carried(plan, _lacked(plan, sink.capabilities))
    except CdcError:
        return  # it has a finding of its own
    try:
        sink_create_statement(plan.written, plan.sink_table, sink_flavour=flavour)
    except CdcError as error:
        yield Finding(
            Code.SINK_CREATE_TABLE,
            Level.BLOCK,
            str(plan.sink_table),
            error.what,
            f"a definition that {flavour} has too",
            error.risk,
            error.remedy,
        )


def _lacked(plan: TablePlan, there: Capabilities) -> Collection[str]:
    """Return the types of the source's family that the sink's server lacks."""
    return lacked_types(plan.schema.flavour, is_mariadb=there.is_mariadb, version=there.version)


def _stand_ins(
    plan: TablePlan, server: Capabilities, there: TableSchema | None
) -> Iterator[Finding]:
    """Yield a finding about the columns whose types the sink lacks, and what they are there.

    `there` is the sink's table, None if it is still to be made.
    """
    lacked = _lacked(plan, server)
    columns = lacking_columns(plan.target, lacked)
    if not columns:
        return
    subject = str(plan.sink_table)
    try:
        carried(plan, lacked)
    except CdcError as error:
        yield Finding(
            Code.SINK_CREATE_TABLE,
            Level.BLOCK,
            subject,
            error.what,
            f"a definition that {server.flavour.value} has too",
            error.risk,
            error.remedy,
            only=str(plan.schema.table),
        )
        return
    own = {column.name: column.type for column in plan.target.columns}
    kinds = {} if there is None else {c.name.casefold(): c.type for c in there.columns}
    became = (
        f"{name}, {type_text(own[name])} at the source, is "
        f"{type_text(kinds.get(name.casefold(), kind))}"
        + (
            ", without its default"
            if not kinds and has_expression_default(plan.target, name)
            else ""
        )
        for name, kind in columns.items()
    )
    yield Finding(
        Code.SINK_STAND_IN,
        Level.INFO,
        subject,
        "; ".join(became),
        why=f"{server.flavour.value} {server.version_text} lacks these types; texts are as the "
        "source's server prints them, and compared byte by byte",
        fix="name another type under columns.type, or create the sink's table yourself",
    )


def _unique_texts(plan: TablePlan, flavour: str) -> Iterator[Finding]:
    """Yield findings for unique keys over texts whose collation the sink's family lacks."""
    schema = plan.target.as_copied
    types = {column.name: column.type for column in schema.columns}
    for key in schema.unique_keys:
        for name in key.columns:
            found = types.get(name)
            if found is None or found.collation is None or found.key_kind is not KeyKind.TEXT:
                continue
            if counterpart(found.collation, plan.target.flavour, flavour) is None:
                yield Finding(
                    Code.SINK_UNIQUE_COLLATION,
                    Level.WARN,
                    str(plan.sink_table),
                    f"unique key {key.name} has the column {name} with the collation "
                    f"{found.collation}, whose equality {flavour} does not have",
                    "a collation both have, such as utf8mb4_bin or utf8mb4_unicode_ci",
                    "two texts that the source tells apart may be one at the sink: the run then "
                    "stops with CDC-SNK-003, or when it adds the key behind the snapshot",
                    "give the column such a collation at the source; or create the sink's table "
                    "yourself, without this key",
                )


def _existing(
    plan: TablePlan,
    there: TableSchema,
    firing: Mapping[TableId, tuple[str, ...]],
    *,
    is_node: bool,
) -> Iterator[Finding]:
    """Yield the findings about an existing sink table: mismatches, triggers, extra columns."""
    subject = str(plan.sink_table)
    for mismatch in _mismatches(plan, there, is_node=is_node):
        code, why = _OF_MISMATCH[mismatch.kind]
        yield Finding(
            code,
            Level.BLOCK,
            subject,
            mismatch.text,
            mismatch.wanted,
            why,
            _fix(plan, mismatch),
            only=str(plan.schema.table),
        )
    for name in firing.get(plan.sink_table, ()):
        yield Finding(
            Code.SINK_TRIGGER,
            Level.BLOCK,
            subject,
            f"trigger {name}",
            "no triggers but those that leave our rows alone",
            "what the source's triggers did is copied already; these would change rows again",
            f"DROP TRIGGER {quote_identifier(plan.sink_table.database)}.{quote_identifier(name)}; "
            "or create it anew with all it does in IF @airflow_cdc IS NULL THEN ... END IF, which "
            "is so in all sessions but ours",
            only=str(plan.schema.table),
        )


def _written_columns(plans: Sequence[TablePlan]) -> dict[TableId, set[str]]:
    """Return the columns, in lower case, that are written to each sink table by any plan."""
    written: dict[TableId, set[str]] = {}
    for plan in plans:
        names = {column.name.lower() for column in plan.target.as_copied.columns}
        written.setdefault(plan.sink_table, set()).update(names)
    return written


def _extra_columns(there: TableSchema, written: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for each column of a sink table that no table of the source has."""
    for column in there.columns:
        if column.name.lower() in written or column.generated:
            continue
        yield Finding(
            Code.SINK_EXTRA_COLUMN,
            Level.INFO if column.nullable else Level.WARN,
            str(there.table),
            f"column {column.name} is not in the source",
            why="it gets its default; without one, rows are refused",
        )


def _mismatches(plan: TablePlan, there: TableSchema, *, is_node: bool) -> Iterable[Mismatch]:
    """Return why a sink table cannot hold a plan's rows; what it gets for a shard is no reason."""
    if plan.shard is None:
        return mismatches(plan.target, there, may_be_wider=is_node)
    return extension(plan.target, there).unfit


def _shared(plans: Sequence[TablePlan]) -> Iterator[Finding]:
    """Yield a finding for each table whose definition does not go into the table it shares."""
    for shards in shards_of(plans):
        for found in disagreements(shards):
            yield Finding(
                Code.SINK_SHARED_TABLE,
                Level.BLOCK,
                str(shards[0].sink_table),
                str(found),
                "definitions of which one holds the values of the other",
                "a value that does not fit is refused, and one that fits may be stored as another "
                "one",
                "make them alike, leave the column out by columns.exclude or rename it in the "
                "table's section of tables, or route one of them elsewhere",
                only=str(found.table),
            )


_OF_MISMATCH = {
    MismatchKind.ENGINE: (Code.SINK_ENGINE, "rows and progress are committed in one transaction"),
    MismatchKind.PRIMARY_KEY: (
        Code.SINK_PRIMARY_KEY,
        "rows are written and removed by the source's key",
    ),
    MismatchKind.COLUMN: (Code.SINK_COLUMN, "its values would have no place"),
    MismatchKind.COLUMN_TYPE: (
        Code.SINK_COLUMN_TYPE,
        "a value that does not fit is refused, and one that fits may be stored as another one",
    ),
    MismatchKind.COLUMN_NULL: (Code.SINK_COLUMN_NULL, "rows with NULL would be refused"),
    MismatchKind.COLUMN_CHARSET: (
        Code.SINK_COLUMN_CHARSET,
        "texts would be refused, or lose characters",
    ),
    MismatchKind.KEY_COLLATION: (
        Code.SINK_KEY_COLLATION,
        "another order or equality of keys could merge two rows, or remove rows of a neighbouring "
        "split",
    ),
    MismatchKind.UNIQUE_KEY: (
        Code.SINK_UNIQUE_KEY,
        "a row the source took would be refused, or take another row's place",
    ),
}
"""Code and reason of each. All block, because the run refuses such a table."""


_OF_ANY_TABLE = {MismatchKind.ENGINE, MismatchKind.UNIQUE_KEY}
"""What is mended in one way, whether the sink's table is shared or not."""


def _fix(plan: TablePlan, mismatch: Mismatch) -> str:
    """Return the statement or advice that mends a mismatch of a sink table."""
    table = f"ALTER TABLE {quote_table(plan.sink_table)}"
    if plan.shard is not None and mismatch.kind not in _OF_ANY_TABLE:
        return (
            "make the definition fit those of the tables that share the sink's, or leave the "
            "column out by columns.exclude or rename it in the table's section of tables; if no "
            "other table has rows there, rename the sink's table and let it be created"
        )
    match mismatch.kind:
        case MismatchKind.ENGINE:
            return f"{table} ENGINE = InnoDB;"
        case MismatchKind.PRIMARY_KEY:
            key = ", ".join(map(quote_identifier, plan.target.primary_key))
            dropped = "DROP PRIMARY KEY, " if mismatch.subject else ""
            if not key:
                return f"{table} DROP PRIMARY KEY; or drop the table and let it be created"
            return f"{table} {dropped}ADD PRIMARY KEY ({key});"
        case MismatchKind.UNIQUE_KEY:
            return f"{table} DROP INDEX {quote_identifier(mismatch.subject)};"
        case MismatchKind.COLUMN | MismatchKind.COLUMN_TYPE | MismatchKind.COLUMN_NULL if (
            mismatch.subject in plan.shape.marks
        ):
            is_there = mismatch.kind is not MismatchKind.COLUMN
            verb = "MODIFY" if is_there else "ADD"
            return f"{table} {verb} COLUMN {added_column(plan.target.column(mismatch.subject))};"
        case _:
            return (
                f"define the column {mismatch.subject} as the source does, or rename or drop the "
                "table and let it be created; if the source's table was changed since it was "
                f"copied, `reset {table_option(plan.schema.table)}` then: only that is read again"
            )
