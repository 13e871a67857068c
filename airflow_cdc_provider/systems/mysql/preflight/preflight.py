"""Preflight: everything that stands in the way of a correct copy, all at once, before it starts.

It fails closed: what cannot be looked at for lack of a privilege is itself a finding. Nothing is
changed on either server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.columns.source_port import PreflightQuestion, SourceLook
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import (
    NOTHING_STARTED,
    CdcError,
    RefusedError,
    RetryableError,
    SchemaMovedError,
)
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import (
    LEDGER_DATABASE,
    TableId,
    quote_identifier,
    quote_table,
)
from airflow_cdc_provider.core.named_keys import NamedKeys
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.options import MySqlOptions
from airflow_cdc_provider.systems.mysql.preflight.at_sink import Sink, sink_findings
from airflow_cdc_provider.systems.mysql.preflight.both_sides import (
    Clock,
    clock_findings,
    copied_bytes,
    disk_findings,
    read_clock,
    reference_findings,
    retention_findings,
)
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.definitions import definition_findings
from airflow_cdc_provider.systems.mysql.preflight.foreign_keys import (
    ForeignKey,
    foreign_keys,
    keys_in,
)
from airflow_cdc_provider.systems.mysql.preflight.hidden_tables import hidden_findings
from airflow_cdc_provider.systems.mysql.preflight.log_settings import (
    log_findings,
    statement_findings,
)
from airflow_cdc_provider.systems.mysql.preflight.looks import (
    Look,
    QueryDenied,
    grant_everywhere,
    look,
)
from airflow_cdc_provider.systems.mysql.preflight.reader_ids import ReaderIds, reader_id_findings
from airflow_cdc_provider.systems.mysql.preflight.rights import (
    LOG_STATUS,
    SINK_PRIVILEGES,
    TO_LOOK_AT_LOG_STATUS,
    TO_READ_ROWS,
    TO_READ_THE_LOG,
    TO_SEE_TRIGGERS,
)
from airflow_cdc_provider.systems.mysql.preflight.source_tables import (
    left_out_findings,
    migration_findings,
    partition_findings,
    table_findings,
)
from airflow_cdc_provider.systems.mysql.server.capabilities import (
    Capabilities,
    WatermarkMode,
    read_capabilities,
)
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect, query
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.mysql.server.privileges import Grants, read_grants
from airflow_cdc_provider.systems.mysql.source.watermarks import may_read_log_status

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_STATEMENT = "query"
"""The fact of a change that says what made it."""
_NOT_AS_LISTED = {1054, 1146}
"""No such column, no such table."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What preflight read from the source, for comparison with a sink of the same protocol."""

    host: str
    port: int
    capabilities: Capabilities
    clock: Clock
    foreign_keys: tuple[ForeignKey, ...]
    bytes: int
    """Of the tables that are copied, as estimated."""


def source_look(
    source: Endpoint, question: PreflightQuestion, *, purpose: str = "preflight"
) -> SourceLook:
    """Return the findings and facts of a source and its tables; `purpose` is named in errors."""
    plans, subject = question.plans, str(source)
    found: list[Finding] = [
        *left_out_findings(question.picked),
        *partition_findings(question.picked),
        *migration_findings(plan.schema.table for plan in plans),
    ]
    with closing(connect(source, purpose=purpose)) as connection:
        capabilities = read_capabilities(connection)
        keys = _foreign_keys(connection, plans)
        found += log_findings(
            connection, capabilities, subject, is_snapshot_done=question.is_snapshot_done
        )
        if _STATEMENT in question.facts:
            found += statement_findings(capabilities, subject)
        found += _source(connection, capabilities, subject, question, keys)
        found += hidden_findings(read_grants(connection), capabilities, subject, question.patterns)
        readers = ReaderIds(MySqlOptions.of(question.options).server_ids, is_new=question.is_new)
        found += reader_id_findings(connection, capabilities, subject, readers)
        found += _room(connection, capabilities, subject, question.readers)
        size = copied_bytes(connection, plans)
        found += retention_findings(capabilities, subject, size)
        clock = read_clock(connection)
    facts = SourceFacts(source.host, source.port, capabilities, clock, keys, size)
    return SourceLook(tuple(found), facts)


def sink_look(
    sink: Endpoint, plans: Sequence[TablePlan], source: object, *, is_node: bool = False
) -> tuple[Finding, ...]:
    """Return the findings about a sink, given what was read from the source.

    `is_node`: it is one of a topology.
    """
    if not isinstance(source, SourceFacts):
        raise RefusedError(
            "preflight does not know this kind of source beside a MySQL or MariaDB sink",
            where=str(sink),
            risk=NOTHING_STARTED,
            remedy="copy from MySQL or MariaDB, or into another kind of sink",
        )
    with closing(connect(sink, purpose="preflight", role=Role.SINK)) as connection:
        capabilities = read_capabilities(connection, role=Role.SINK)
        there = Sink(connection, capabilities, str(sink), is_node)
        clock = read_clock(connection, role=Role.SINK)
        return (
            *clock_findings(there, clock, source.clock),
            *sink_findings(there, source.capabilities, plans),
            *sink_privileges(there, [plan.sink_table for plan in plans]),
            *reference_findings(there, source.foreign_keys, plans),
            *disk_findings(there, source.bytes),
        )


def _source(
    connection: ServerConnection,
    capabilities: Capabilities,
    subject: str,
    question: PreflightQuestion,
    keys: Sequence[ForeignKey],
) -> Iterator[Finding]:
    """Yield the findings about the source's tables, their definitions and privileges."""
    plans = question.plans
    schemas = [plan.schema for plan in plans]
    estimates = {plan.schema.table: plan.estimated_rows for plan in plans}
    yield from table_findings(capabilities, schemas, keys, estimates, question)
    yield from definition_findings(connection, schemas, needs_defaults=question.needs_defaults)
    yield from _source_privileges(connection, capabilities, subject, plans)


def _source_privileges(
    connection: ServerConnection,
    capabilities: Capabilities,
    subject: str,
    plans: Sequence[TablePlan],
) -> Iterator[Finding]:
    """Yield findings for privileges that the source's account lacks."""
    grants = read_grants(connection)
    if not grants.holds(TO_READ_THE_LOG):
        yield Finding(
            Code.SOURCE_REPLICATION_SLAVE,
            Level.BLOCK,
            subject,
            f"the account {grants.account} lacks {TO_READ_THE_LOG}",
            TO_READ_THE_LOG,
            "the log cannot be read",
            grant_everywhere(TO_READ_THE_LOG, grants.account),
        )
    by_status = WatermarkMode.LOG_STATUS in capabilities.watermark_modes
    if by_status and not may_read_log_status(connection):
        yield Finding(
            Code.SOURCE_BACKUP_ADMIN,
            Level.WARN,
            subject,
            f"the account may not read {LOG_STATUS}",
            f"{TO_LOOK_AT_LOG_STATUS}, and {TO_READ_ROWS} on {LOG_STATUS}",
            "low watermarks are the start of the current log file instead of performance_schema."
            "log_status, so more log is replayed",
            f"{grant_everywhere(TO_LOOK_AT_LOG_STATUS, grants.account)} "
            f"GRANT {TO_READ_ROWS} ON {LOG_STATUS} TO {grants.account};",
        )
    for plan in plans:
        yield from _readable(connection, plan, grants)


def _readable(connection: ServerConnection, plan: TablePlan, grants: Grants) -> Iterator[Finding]:
    """Yield a finding if the account may not SELECT all columns of a table, by trying it."""
    names = [quote_identifier(column.name) for column in plan.schema.copied_columns]
    columns = ", ".join(["t.*", *(f"t.{name}" for name in names)])
    sql = f"SELECT {columns} FROM {quote_table(plan.schema.table)} t LIMIT 0"
    subject = str(plan.schema.table)
    try:
        tried = _tried(connection, sql, plan.schema)
    except RetryableError:
        raise
    except CdcError as error:
        yield Finding(Code.SOURCE_SELECT, Level.BLOCK, subject, error.what, "", "", error.remedy)
        return
    if isinstance(tried, QueryDenied):
        database = quote_identifier(plan.schema.table.database)
        yield Finding(
            Code.SOURCE_SELECT,
            Level.BLOCK,
            subject,
            "the account may not read all of its columns",
            "SELECT",
            "the table cannot be copied",
            f"GRANT SELECT ON {database}.* TO {grants.account};",
        )


def _tried(
    connection: ServerConnection, sql: str, schema: TableSchema
) -> Look[Sequence[Sequence[Any]]]:
    """Try a query on a table; `SchemaMovedError` if its definition has just changed."""
    try:
        return look(lambda: query(connection, sql))
    except CdcError as error:
        if error.server_error not in _NOT_AS_LISTED:
            raise
    if _is_another(connection, schema):
        raise _being_changed(connection, schema.table)
    # it was away for a moment, as between two RENAMEs
    return look(lambda: query(connection, sql))


def _is_another(connection: ServerConnection, before: TableSchema) -> bool:
    """Tell whether a table is gone, or has another definition than before."""
    keys = NamedKeys.as_read(before)
    found = read_schemas(connection, [before.table], with_statement=False, keys=keys)
    now = found.get(before.table)
    return now is None or now.fingerprint != before.fingerprint


def _being_changed(connection: ServerConnection, table: TableId) -> SchemaMovedError:
    """Return the error for a table that is being changed during preflight."""
    return SchemaMovedError(
        f"{table} is being changed right now: it is not as the catalogue had it a moment ago",
        f"preflight of {connection.host}:{connection.port}",
        NOTHING_STARTED,
        "try again when its change is done",
    ).about(table)


def _foreign_keys(
    connection: ServerConnection, plans: Sequence[TablePlan]
) -> tuple[ForeignKey, ...]:
    """Return the foreign keys of the plans' tables; unknown definitions are queried."""
    known = [plan.schema for plan in plans if plan.schema.create_statement]
    others = [plan.schema.table for plan in plans if not plan.schema.create_statement]
    keys = [key for schema in known for key in keys_in(schema.table, schema.create_statement)]
    return (*keys, *foreign_keys(connection, others))


def sink_privileges(sink: Sink, targets: Sequence[TableId]) -> Iterator[Finding]:
    """Yield findings for privileges that the account lacks on the sink's tables and the ledger."""
    grants = read_grants(sink.connection, role=Role.SINK)
    hides = not sink.capabilities.is_mariadb
    wanted = (*SINK_PRIVILEGES, *((TO_SEE_TRIGGERS,) if hides else ()))
    lacking = grants.missing_on(wanted, targets)
    ledger = {p for p in SINK_PRIVILEGES if not grants.holds(p, LEDGER_DATABASE)}
    if ledger:
        lacking[LEDGER_DATABASE] = ledger
    for database, privileges in sorted(lacking.items()):
        names = ", ".join(p for p in wanted if p in privileges)
        yield Finding(
            Code.SINK_PRIVILEGES,
            Level.BLOCK,
            sink.subject,
            f"the account {grants.account} lacks {names} on {database}",
            ", ".join(SINK_PRIVILEGES if database == LEDGER_DATABASE else wanted),
            "progress is kept there, beside the rows"
            if database == LEDGER_DATABASE
            else "tables are created and rows written there, and triggers would change them",
            f"GRANT {names} ON {quote_identifier(database)}.* TO {grants.account};",
        )


def _room(
    connection: ServerConnection, capabilities: Capabilities, subject: str, wanted: int
) -> Iterator[Finding]:
    """Yield a finding if the source has too few free connections for the readers."""
    limit = int(capabilities.setting("max_connections", default="0"))
    used = int(query(connection, "SHOW GLOBAL STATUS LIKE 'Threads_connected'")[0][1])
    # each reader has one connection for rows and one for the log
    if limit and limit - used < 2 * wanted + 2:
        yield Finding(
            Code.SOURCE_MAX_CONNECTIONS,
            Level.WARN,
            subject,
            f"{used} of {limit} connections are in use",
            f"{2 * wanted + 2} free ones",
            "readers may be turned away, and so may other clients",
            "lower snapshot.max_connections, or raise max_connections of the server",
        )
