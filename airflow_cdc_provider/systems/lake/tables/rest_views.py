"""Views in a catalog of Iceberg's REST protocol: of each table's current rows, one that we keep.

PyIceberg makes views and does not change them; a view that is replaced keeps its identity, and its
readers never miss it. So both are asked for here, over the library's own session.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.rest import Capability, Endpoints, IdentifierKind, RestCatalog
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import NoSuchViewError
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from requests import HTTPError

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.systems.lake.current_views import CurrentView

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.typedef import Identifier
    from pyiceberg.view import View
    from pyiceberg.view.metadata import ViewVersion

PIPELINE = "cdc.pipeline"
_LAST_ADDED = -1
"""In the place of an id: of the schema or version that the same request adds."""
_CONFLICT = 409


def views_in(catalog: Catalog, pipeline: str) -> RestViews:
    """Return a pipeline's views in a catalog. `RefusedError` if it says that it has none."""
    if isinstance(catalog, RestCatalog):
        told = catalog._supported_endpoints  # noqa: SLF001 - told in no other way
        if Capability.V1_LOAD_VIEW in told:
            return RestViews(catalog, pipeline)
    raise RefusedError(
        "the catalog has no views, and sink.catalog.view asks for some",
        where=f"catalog {catalog.name}",
        risk="none: tables do not need them",
        remedy="leave view out; or, for a server that has views and does not say so, write "
        'view-endpoints-supported: "true" under sink.catalog.properties',
    )


class RestViews:
    """The views of one pipeline in a REST catalog."""

    def __init__(self, catalog: RestCatalog, pipeline: str) -> None:
        self._catalog, self._pipeline = catalog, pipeline

    def keep(self, view: CurrentView) -> None:
        """Make a view, or make it anew if it says something else.

        `RefusedError` for a name that others have. Who is overtaken leaves it as it is then.
        """
        name = (view.name.database, view.name.table)
        schema = assign_fresh_schema_ids(_schema(self._catalog, view))
        found = self._found(name)
        if found is None:
            self._create(name, schema, view)
            return
        if found.properties.get(PIPELINE) != self._pipeline:
            raise self._of_others(view, found.properties.get(PIPELINE, ""))
        if _says(found) != (dict(view.queries), _told(schema)):
            self._replace(name, found, schema, view)

    def _found(self, name: Identifier) -> View | None:
        """Return a view as it is now; None if there is none of the name."""
        try:
            found: View = self._catalog.load_view(name)
        except NoSuchViewError:
            return None
        return found

    def _create(self, name: Identifier, schema: Schema, view: CurrentView) -> None:
        """Make a view; a table may have its name."""
        path = self._catalog._split_identifier_for_path(name, IdentifierKind.VIEW)  # noqa: SLF001
        body = {
            "name": name[-1],
            "schema": _written(schema),
            "view-version": _version(1, 0, name, view.queries),
            "properties": {PIPELINE: self._pipeline},
        }
        url = self._catalog.url(Endpoints.create_view, namespace=path["namespace"])
        if self._sent(url, body) or self._found(name) is not None:
            return
        raise self._of_others(view, "")

    def _replace(self, name: Identifier, found: View, schema: Schema, view: CurrentView) -> None:
        """Give a view that is as it was loaded another version, or one that it had before.

        Servers refuse to add what is there already.
        """
        path = self._catalog._split_identifier_for_path(name, IdentifierKind.VIEW)  # noqa: SLF001
        updates: list[dict[str, Any]] = []
        known = [each for each in found.metadata.schemas if _told(each) == _told(schema)]
        schema_id = known[0].schema_id if known else _LAST_ADDED
        if not known:
            updates = [{"action": "add-schema", "schema": _written(schema)}]
        same = [
            each.version_id
            for each in found.versions
            if each.schema_id == schema_id and _queries(each) == dict(view.queries)
        ]
        if not same:
            number = max(each.version_id for each in found.versions) + 1
            version = _version(number, schema_id, name, view.queries)
            updates.append({"action": "add-view-version", "view-version": version})
        now = same[0] if same else _LAST_ADDED
        updates.append({"action": "set-current-view-version", "view-version-id": now})
        body = {
            "requirements": [{"type": "assert-view-uuid", "uuid": str(found.uuid())}],
            "updates": updates,
        }
        self._sent(self._catalog.url(Endpoints.load_view, **path), body)

    def _sent(self, url: str, body: Mapping[str, Any]) -> bool:
        """Send a request; False if it is refused for what others did. The library's errors."""
        response = self._catalog._session.post(url, json=body)  # noqa: SLF001 - has our account
        if response.status_code == _CONFLICT:
            return False
        try:
            response.raise_for_status()
        except HTTPError as error:
            _handle_non_200_response(error, {})
        return True

    def _of_others(self, view: CurrentView, pipeline: str) -> RefusedError:
        """Return the error for a name that is taken."""
        whose = f"a view of pipeline {pipeline}" if pipeline else "something of others"
        return RefusedError(
            f"the view {view.name} cannot be made: {whose} has its name in the catalog",
            where=f"catalog {self._catalog.name}, sink.catalog.view",
            risk="none: the table follows, and its view is missing",
            remedy="drop what has the name, or write another view under sink.catalog",
        )


def _schema(catalog: RestCatalog, view: CurrentView) -> Schema:
    """Return a view's columns in Iceberg's types."""
    return catalog._convert_schema_if_needed(view.columns)  # noqa: SLF001 - as for its tables


def _version(
    number: int, schema_id: int, name: Identifier, queries: Mapping[str, str]
) -> dict[str, Any]:
    """Return a version of a view, as the protocol writes it."""
    return {
        "version-id": number,
        "schema-id": schema_id,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "summary": {},
        "default-namespace": list(name[:-1]),
        "representations": [
            {"type": "sql", "sql": sql, "dialect": dialect} for dialect, sql in queries.items()
        ],
    }


def _written(schema: Schema) -> dict[str, Any]:
    """Return columns as the protocol writes them."""
    written: dict[str, Any] = schema.model_dump(mode="json", by_alias=True)
    return written


def _says(view: View) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return a view's queries by their dialects, and its columns with their types."""
    return _queries(view.current_version()), _told(view.schema())


def _queries(version: ViewVersion) -> dict[str, str]:
    """Return the queries of a view's version by their dialects."""
    return {each.root.dialect: each.root.sql for each in version.representations}


def _told(schema: Schema) -> list[tuple[str, str]]:
    """Return the names and types of columns as text."""
    return [(each.name, str(each.field_type)) for each in schema.fields]
