"""Catalogs of Iceberg that are servers: a SQL database, Iceberg's REST protocol, AWS Glue.

Each commits by compare-and-swap: SQL on the place of the table's metadata, Glue on the version of
its table, a REST server on what the commit names. What a library would ask again by itself is off:
a second try of a commit that was made is refused, and the library then deletes files of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from requests.adapters import HTTPAdapter

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.dsn import parse_dsn
from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.databases.engines import open_engine, require_answer
from airflow_cdc_provider.systems.lake.packages import require_glue
from airflow_cdc_provider.systems.lake.tables.rest_views import views_in
from airflow_cdc_provider.systems.lake.tables.store_options import iceberg_options_of

if TYPE_CHECKING:
    from requests import PreparedRequest, Response, Session

_ANSWER_S = 60.0
"""How long a catalog has for an answer."""
_LOOK_S = 15.0
"""How long it has where it is only asked."""


def open_catalog(catalog: CatalogAccess, place: Store, *, is_new: bool) -> Catalog:
    """Open a catalog for tables at a place; `is_new`: a SQL catalog's own tables may be made.

    `RefusedError` for an account or package that cannot be used; else the library's own errors.
    """
    options = {**iceberg_options_of(place), **dict(catalog.properties)}
    match catalog.kind:
        case "sql":
            options |= {"warehouse": place.uri, "init_catalog_tables": str(is_new).lower()}
            return _Sql(catalog, options)
        case "rest":
            return _Rest(catalog.name, **options, **_rest_options(catalog))
        case "glue":
            require_glue()
            from pyiceberg.catalog.glue import GlueCatalog  # noqa: PLC0415 - an optional package

            # as a number: the library hands it on as it is
            return GlueCatalog(
                catalog.name,
                **options,
                **_glue_options(place, catalog),
                **{"glue.max-retries": 0},
            )
        case other:
            raise ValueError(f"there is no kind of catalog called {other!r}")


def ask(catalog: CatalogAccess, place: Store) -> None:
    """Ask a catalog for anything, so that it has to let one in; the library's error if not.

    Nothing is made there.
    """
    opened = open_catalog(catalog, place, is_new=False)
    if isinstance(opened, SqlCatalog):
        require_answer(opened.engine)
    else:
        opened.list_namespaces()
    if catalog.view:
        views_in(opened, "")


class _Sql(SqlCatalog):
    """A catalog in a SQL database that is reached as the state's is: verified, and not for ever."""

    def __init__(self, catalog: CatalogAccess, properties: Mapping[str, str]) -> None:
        MetastoreCatalog.__init__(self, catalog.name, **properties)
        self.engine = open_engine(catalog.dsn, _ANSWER_S, what="catalog", keeps=False)
        self._init_catalog()


class _Rest(RestCatalog):
    """A catalog that is asked over HTTP, and not for ever."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Impatient())
        return session


class _Impatient(HTTPAdapter):
    """Sends requests once, and waits so long for an answer."""

    def send(self, request: PreparedRequest, *args: Any, **named: Any) -> Response:
        """Send a request; `requests.Timeout` if no answer comes."""
        in_time = _LOOK_S if request.method in {"GET", "HEAD"} else _ANSWER_S
        named["timeout"] = named.get("timeout") or in_time
        return super().send(request, *args, **named)


def _rest_options(catalog: CatalogAccess) -> dict[str, str]:
    """Return where a REST catalog is, and its account or token, by the library's names."""
    dsn = parse_dsn(catalog.dsn)
    port = f":{dsn.port}" if dsn.port else ""
    path = dsn.path.strip("/")
    told = {"uri": f"{dsn.scheme}://{dsn.host}{port}{path and '/' + path}"}
    if dsn.user:
        told["credential"] = f"{dsn.user}:{dsn.password}"
    elif dsn.password:
        told["token"] = dsn.password
    return told


def _glue_options(place: Store, catalog: CatalogAccess) -> dict[str, str]:
    """Return Glue's key and region: those of the store, unless the properties say others."""
    access = place.access
    told = {
        "glue.access-key-id": access.key_id,
        "glue.secret-access-key": access.secret,
        "glue.session-token": access.token,
        "glue.region": access.region,
    }
    named = dict(catalog.properties)
    return {name: value for name, value in told.items() if value and name not in named}
