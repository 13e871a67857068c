"""Adding foreign keys to tables that are being written to.

A server that checks the rows itself copies the whole table while nobody may write to it, and the
stream waits that long. So the rows are looked at by a query first, which holds up nobody, and the
key is then added unchecked, which takes the server no time. What the query finds missing is looked
at again a few times: between the commits of several writers a row may be there before the one it
refers to.

Rows that refer to none do not keep the key out. A source has them wherever rows were loaded with
`foreign_key_checks = 0`, and there, too, the key stands beside them. They are told, and whether the
source has them is what `verify` proves.

Unchecked, a server also takes a key that refers to columns without an index. Where they are no
unique key, the server is left to check, and to say what it thinks of it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.identifiers import TableId, quote_identifier, quote_table
from airflow_cdc_provider.systems.mysql.dialect.sql import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_cdc_provider.core.records import TablePlan
    from airflow_cdc_provider.systems.mysql.dialect.table_ddl import DeferredKey, Reference
    from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

log = logging.getLogger(__name__)

_SHOWN = 3
_LOOKS = 4
_BETWEEN_LOOKS_S = 1.0


def add_foreign_key(session: SinkSession, plan: TablePlan, key: DeferredKey) -> str | None:
    """Add a foreign key to a sink table; return a remark on rows that break it, None if none do."""
    reference = key.reference
    is_checked = reference is not None and _is_unique(session, reference)
    remark: str | None = None
    if reference is not None and is_checked:
        began = time.monotonic()
        remark = _orphans(session, plan, key, reference)
        seconds = time.monotonic() - began
        log.info(
            "foreign key looked at: table=%s key=%s s=%.1f", plan.sink_table, key.name, seconds
        )
    session.execute(f"SET SESSION foreign_key_checks = {int(not is_checked)}")
    try:
        session.execute(key.statement)
    finally:
        if not session.is_lost:
            session.execute("SET SESSION foreign_key_checks = 0")
    return remark


def orphans_query(child: TableId, key: Sequence[str], reference: Reference) -> str:
    """Return the query for some child rows whose foreign key, without NULLs, refers to no row."""
    pairs = [
        (f"child.{quote_identifier(column)}", f"parent.{quote_identifier(referenced)}")
        for column, referenced in zip(reference.columns, reference.referenced, strict=True)
    ]
    shown = [f"child.{quote_identifier(name)}" for name in (*key, *reference.columns)]
    return (
        f"SELECT {', '.join(shown)} FROM {quote_table(child)} AS child "
        f"LEFT JOIN {quote_table(reference.table)} AS parent "
        f"ON {' AND '.join(f'{parent} = {column}' for column, parent in pairs)} "
        f"WHERE {' AND '.join(f'{column} IS NOT NULL' for column, _ in pairs)} "
        f"AND {pairs[0][1]} IS NULL LIMIT {_SHOWN}"
    )


def _orphans(
    session: SinkSession, plan: TablePlan, key: DeferredKey, reference: Reference
) -> str | None:
    """Query a few times for rows that break a foreign key; return a remark on them or None."""
    names = (*plan.target.primary_key, *reference.columns)
    query = orphans_query(plan.sink_table, plan.target.primary_key, reference)
    found: list[tuple[Any, ...]] = []
    for look in range(_LOOKS):
        time.sleep(_BETWEEN_LOOKS_S * bool(look))
        found = session.rows(query)
        if not found:
            return None
    rows = "; ".join(_shown(names, row) for row in found)
    return (
        f"rows of {plan.sink_table} break its foreign key {key.name}, which was added all the "
        f"same: they refer to none of {reference.table}: {rows}"
        f"{' and maybe more' if len(found) == _SHOWN else ''}; if the source has them too, the "
        "sink is as it is: `verify` tells, and `resync` reads a table again"
    )


def _shown(names: Sequence[str], row: Sequence[object]) -> str:
    """Return a row as text, a name and a value each."""
    parts = dict(zip(names, row, strict=True))
    return ", ".join(f"{name}={value!r}" for name, value in parts.items())


def _is_unique(session: SinkSession, reference: Reference) -> bool:
    """Tell whether the columns referred to are a unique key, in their order."""
    rows = session.rows(
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics "
        f"WHERE table_schema = {literal(reference.table.database)} "
        f"AND table_name = {literal(reference.table.table)} AND non_unique = 0 "
        "ORDER BY index_name, seq_in_index"
    )
    indexes: dict[str, list[object]] = {}
    for index, column, prefix in rows:
        whole = column is not None and prefix is None
        indexes.setdefault(str(index), []).append(str(column).lower() if whole else None)
    return [name.lower() for name in reference.referenced] in indexes.values()
