"""Preflight of an edge of a topology: what only matters where both ends are written to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.table_schema import TypeKind
from airflow_cdc_provider.systems.mysql.preflight.codes import Code
from airflow_cdc_provider.systems.mysql.preflight.own_log import OwnLogCode
from airflow_cdc_provider.systems.mysql.preflight.replicated import replicated_findings
from airflow_cdc_provider.systems.mysql.server.connection import Role, connect, query

if TYPE_CHECKING:
    from airflow_cdc_provider.core.endpoint import Endpoint
    from airflow_cdc_provider.core.records import TablePlan
    from airflow_cdc_provider.systems.mysql.preflight.preflight import SourceFacts
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection


def of_two_nodes(finding: Finding) -> Finding:
    """Return a finding about a sink's table with a fix that both nodes can live with."""
    if finding.code is Code.SINK_UNIQUE_KEY:
        fix = "give the source's table the same unique key, or drop it at both nodes"
        return replace(finding, fix=fix)
    if finding.code is Code.SINK_STAND_IN:
        return replace(
            finding,
            level=Level.BLOCK,
            wanted="types that both nodes have",
            why="the nodes of a topology hold the same types: an edge back could not bring values "
            "of a type that stands in for another",
            fix="leave the table out of the topology, or give these columns another type",
        )
    return finding


def edge_findings(
    sink: Endpoint, plans: Sequence[TablePlan], source: SourceFacts | None
) -> Iterator[Finding]:
    """Yield the findings about two nodes that are both written to.

    `source` is what is known of the other node, if it is a server of the same protocol.
    """
    with closing(connect(sink, purpose="preflight", role=Role.SINK)) as connection:
        if source is not None:
            yield from replicated_findings(connection, sink, source)
        yield from _same_numbers(connection, plans, str(sink))
        yield from _documents(connection, plans)


def _same_numbers(
    connection: ServerConnection, plans: Sequence[TablePlan], subject: str
) -> Iterator[Finding]:
    """Yield a finding if both nodes may give out the same number to new rows."""
    counted = [
        str(plan.sink_table)
        for plan in plans
        if any(column.auto_increment for column in plan.target.columns)
    ]
    if not counted:
        return
    ((step, offset),) = query(
        connection,
        "SELECT @@GLOBAL.auto_increment_increment, @@GLOBAL.auto_increment_offset",
        role=Role.SINK,
    )
    if int(step) > 1:
        return
    more = f" and {len(counted) - 3} more" if len(counted) > 3 else ""
    yield Finding(
        OwnLogCode.NUMBERS,
        Level.WARN,
        subject,
        f"auto_increment_increment = {step}, offset = {offset}; AUTO_INCREMENT in "
        f"{', '.join(counted[:3])}{more}",
        "a step of at least the number of nodes, and another offset at each",
        "rows that are inserted at two nodes get the same number, and one overwrites the other",
        "auto_increment_increment = 2 and auto_increment_offset = 1 or 2 (for two nodes) in each "
        "server's option file, and by SET GLOBAL; sessions that are open keep the former ones",
    )


def _documents(connection: ServerConnection, plans: Sequence[TablePlan]) -> Iterator[Finding]:
    """Yield a finding for each table with JSON of which one node keeps the text."""
    ((version,),) = query(connection, "SELECT VERSION()", role=Role.SINK)
    is_text_there = "mariadb" in str(version).lower()
    for plan in plans:
        names = [
            column.name
            for column in plan.schema.copied_columns
            if column.type.kind is TypeKind.JSON and column.type.is_json_text != is_text_there
        ]
        if names:
            yield Finding(
                OwnLogCode.JSON,
                Level.WARN,
                str(plan.schema.table),
                f"{', '.join(names)}: JSON of MySQL at one node, text at the other",
                "documents that MySQL prints as they were written, or LONGTEXT at both nodes",
                "MariaDB keeps the text of a document, MySQL its values; when the row changes at "
                "MySQL, the text at MariaDB becomes MySQL's, without names that were there twice "
                "and digits that a DOUBLE does not hold",
                "nothing if the values that MySQL keeps are what matters; else make these columns "
                "LONGTEXT at both nodes",
            )
