"""The form of a new pipeline: what it asks of servers, by connections. It keeps nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.connection import Connection  # noqa: TID251 - the API server's own tables
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.hooks.new_pipeline import check_of, file_of, rights_of, tables_of
from airflow_cdc_provider.pipeline.connection_fields import conn_type_of, parts_of_type
from airflow_cdc_provider.pipeline.file.field_types import ConnectionId
from airflow_cdc_provider.web.guards import (
    looks,
    may_add_connections,
    readable_connections,
    readable_dags,
    require_readable,
)
from airflow_cdc_provider.web.known import KnownPipeline, KnownPipelines

Form = dict[str, Any]
_MOST_TABLES = 10_000
_MOST_ROUTES = 1000
_KNOWN = KnownPipelines()

ConnId = Annotated[ConnectionId, Field(min_length=1, max_length=250)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Source(BaseModel):
    """The request's body: the connection of the source whose tables are listed."""

    model_config = ConfigDict(extra="forbid")
    source: ConnId


class Account(BaseModel):
    """The request's body: the account whose grants are wanted."""

    model_config = ConfigDict(extra="forbid")
    conn_id: ConnId
    part: Literal["source", "sink"]
    databases: Annotated[list[Name], Field(max_length=_MOST_TABLES)]


class Draft(BaseModel):
    """The request's body: a person's answers in the form of a new pipeline."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(max_length=200)]
    source: ConnId
    sink: ConnId
    state: ConnId | None = None
    tables: Annotated[list[Name], Field(min_length=1, max_length=_MOST_TABLES)]
    exclude: Annotated[list[Name], Field(max_length=_MOST_TABLES)] = []
    route: Annotated[dict[Name, Name], Field(max_length=_MOST_ROUTES)] = {}
    mode: Literal["continuous", "bounded"]
    verify: Literal["after_snapshot", "always", "never"]

    @property
    def conn_ids(self) -> list[str]:
        """Return the ids of the connections in the form."""
        return [each for each in (self.source, self.sink, self.state) if each]

    def answers(self) -> Form:
        """Return the answers as plain values."""
        return {**self.model_dump(), "state": self.state or ""}


def add_routes(router: APIRouter) -> None:
    """Add the routes of the new-pipeline form; those that query servers need a permission."""
    router.get("/new")(choices)
    for name, route in (
        ("tables", tables),
        ("file", file),
        ("rights", rights),
        ("check", check),
    ):
        router.post(f"/new/{name}", dependencies=looks(f"cdc_new_pipeline_{name}"))(route)


def choices(session: SessionDep, user: GetUserDep) -> Form:
    """Return whether a user may fill in the form, and the connections to choose from."""
    if not may_add_connections(user):
        return {"may_look": False, "connections": []}
    readable = readable_connections(user)
    query = select(Connection.conn_id, Connection.conn_type).order_by(Connection.conn_id)
    found = [_choice(*row) for row in session.execute(query) if row.conn_id in readable]
    return {"may_look": True, "connections": [each for each in found if each["parts"]]}


def tables(asked: Source, user: GetUserDep) -> Form:
    """Return a source's tables with their sizes, and why some cannot be copied."""
    require_readable(user, asked.source)
    return tables_of(asked.source)


def file(asked: Draft, user: GetUserDep) -> Form:
    """Return the drafted pipeline file, for a person to commit."""
    require_readable(user, *asked.conn_ids)
    return file_of(asked.answers())


def rights(asked: Account, user: GetUserDep) -> Form:
    """Return the GRANT statements that an account needs."""
    require_readable(user, asked.conn_id)
    return rights_of(asked.conn_id, Part(asked.part), asked.databases)


def check(asked: Draft, user: GetUserDep, session: SessionDep) -> Form:
    """Return what `check` finds in the drafted pipeline file."""
    require_readable(user, *asked.conn_ids)
    readable = readable_dags(user)
    taken = (_shown(known, readable) for known in _KNOWN.of_name(session, asked.name))
    return check_of(asked.answers(), tuple(dict.fromkeys(taken)))


def _shown(known: KnownPipeline, readable: Collection[str]) -> str:
    """Describe a pipeline by its DAG and file, as far as a user may know of them."""
    if known.dag_id not in readable:
        return "a DAG that is not yours to read runs one"
    file = f", from {known.file}" if known.file else ""
    return f"the DAG {known.dag_id} runs one{file}"


def _choice(conn_id: str, conn_type: str | None) -> Form:
    """Return a connection as a choice of the form."""
    kind = conn_type_of(conn_type or "")
    return {"conn_id": conn_id, "conn_type": kind, "parts": list(parts_of_type(kind))}
