"""The section of a catalog that is a server: of lakes whose tables others find there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.sections.base import Reference, Section, reference_or_none
from airflow_cdc_provider.systems.sections.field_types import ConnectionId, EnvironmentName

_PROPERTIES: Mapping[str, frozenset[str]] = {
    "sql": frozenset(),
    "rest": frozenset(
        {
            "oauth2-server-uri",
            "prefix",
            "rest.signing-name",
            "rest.signing-region",
            "rest.sigv4-enabled",
            "scope",
            "view-endpoints-supported",
            "warehouse",
        }
    ),
    "glue": frozenset({"glue.endpoint", "glue.id", "glue.region", "glue.skip-archive"}),
}
"""What each may be told more, by the names of Iceberg's own libraries; nothing of it is secret."""


class CatalogSection(Section):
    """A catalog that is a server."""

    type: Literal["sql", "rest", "glue"] = Field(
        description="`sql`: a database of PostgreSQL, MySQL or MariaDB; `rest`: a server of "
        "Iceberg's REST protocol; `glue`: AWS Glue."
    )
    conn_id: ConnectionId | None = Field(
        default=None,
        description="Airflow connection with the database, or with the REST server: host is its "
        "URL, login and password are the client's id and secret, a password alone is a token.",
        examples=["lake_catalog"],
    )
    dsn_env: EnvironmentName | None = Field(
        default=None,
        description="Environment variable with the same, in the form of Airflow's connection URIs: "
        "`postgresql://user:password@host/database`, `https://id:secret@host/path`.",
        examples=["LAKE_CATALOG"],
    )
    name: str = Field(
        default="lake",
        min_length=1,
        max_length=255,
        description="Of SQL: the name of the catalog in its database, which may have several. Of "
        "REST: what Trino calls it, for `view`.",
    )
    properties: dict[str, str] = Field(
        default_factory=dict,
        description="Further settings by Iceberg's own names, such as `warehouse` of a REST server "
        "and `glue.region`. No secrets.",
        examples=[{"warehouse": "analytics"}],
    )

    view: str = Field(
        default="",
        max_length=255,
        description="Of REST: the name of a view of each table's current rows beside it, with "
        "`{table}` where the table's name goes; [none](iceberg_catalogs.md#views-of-current-rows) "
        "if it is left out.",
        examples=["{table}_current"],
    )

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        """Require the reference that its type needs, and settings that it has."""
        if (self.type == "glue") != (self.reference is None):
            raise WrongValueError(*self._wrong_reference())
        self._require_a_view_of_its_own()
        known = _PROPERTIES[self.type]
        if unknown := sorted(self.properties.keys() - known):
            wanted = f"known are {', '.join(sorted(known))}" if known else "there are none"
            raise WrongValueError(
                f"{', '.join(unknown)} is no setting of a catalog of type {self.type}",
                f"leave it out; {wanted}. A secret goes into the connection",
            )
        return self

    def _require_a_view_of_its_own(self) -> None:
        """Refuse views that the catalog does not have, and names that are no view's alone."""
        if not self.view:
            return
        if self.type != "rest":
            raise WrongValueError(
                f"a catalog of type {self.type} has no views that others read",
                "leave view out, and read by the query that `show` prints",
            )
        around = self.view.split("{table}")
        if len(around) != 2 or not any(around) or {"{", "}"} & {*"".join(around)}:
            raise WrongValueError(
                f"{self.view!r} does not name a view of each table",
                "write a name that is not the table's, with {table} once, as in {table}_current",
            )

    def _wrong_reference(self) -> tuple[str, str]:
        """Return problem and fix for a reference too many or too few."""
        if self.type == "glue":
            return "Glue is entered with the key of the store", "leave conn_id and dsn_env out"
        return (
            f"a catalog of type {self.type} is a server, and neither conn_id nor dsn_env names it",
            "write conn_id: <Airflow connection>, or dsn_env: <environment variable>",
        )

    @property
    def reference(self) -> Reference | None:
        """Return the reference to the server; None for Glue."""
        return reference_or_none(self.conn_id, self.dsn_env)

    def access(self, dsn: str) -> CatalogAccess:
        """Return the catalog with the DSN that its reference stands for; empty for Glue."""
        properties = tuple(sorted(self.properties.items()))
        return CatalogAccess(self.type, self.name, dsn, properties, self.view)
