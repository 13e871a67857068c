"""What anyone may ask about single tables, through the state store alone: no server is asked."""

from __future__ import annotations

from collections.abc import Collection

from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import Wanted
from airflow_cdc_provider.core.owners import is_gone
from airflow_cdc_provider.core.requests import Request, RequestKind, Scope, new_id
from airflow_cdc_provider.state.store import SqlStateStore

_HEEDED_BY_STREAMS = frozenset({RequestKind.PAUSE, RequestKind.RESUME})
"""The stream itself does these, as it begins: a stream that runs begins again for them."""


def ask_about_tables(
    store: SqlStateStore,
    name: PipelineName,
    kind: RequestKind,
    tables: Collection[TableId],
    *,
    by: str,
) -> Request:
    """Store a request about tables; a running stream begins again if it must carry it out."""
    verb = kind.value.partition(" ")[0]
    scope = Scope(tuple(sorted(set(tables))))
    asked = Request(name, new_id(verb), kind, scope, by, asked_us=store.now_us())
    request = store.ask(asked)
    if kind in _HEEDED_BY_STREAMS:
        state = store.ensure(name)
        is_owned = state.lease_until_us > store.now_us() and not is_gone(state.owner)
        if is_owned and state.wanted is Wanted.RUN:
            store.want(name, Wanted.RESTART)
    return request
