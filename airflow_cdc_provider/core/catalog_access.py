"""Which catalog knows the tables of a lake, and how to get into it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from airflow_cdc_provider.core.dsn import CATALOG_OPTION

_KIND, _NAME, _PROPERTIES = "catalog", "catalog_name", "catalog_properties"
_VIEW = "catalog_view"


@dataclass(frozen=True, slots=True)
class CatalogAccess:
    """A catalog that is a server; a lake without one has its catalog in its own folder."""

    kind: str
    """`sql`, `rest` or `glue`."""
    name: str
    """Of SQL: the catalog's name in its database, which may have several; of REST, in Trino."""
    dsn: str = field(default="", repr=False)
    """The database's DSN or the server's URL, with the account; empty for one that has neither."""
    properties: tuple[tuple[str, str], ...] = ()
    """Further settings, none of them secret, by the names that Iceberg's own libraries have."""
    view: str = ""
    """The name of a view of each table's current rows, with `{table}` in it; empty for none."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self | None:
        """Return what the options of a sink's URL say of a catalog; None if they say nothing."""
        if _KIND not in options:
            return None
        properties = json.loads(options[_PROPERTIES])
        return cls(
            options[_KIND],
            options[_NAME],
            options.get(CATALOG_OPTION, ""),
            tuple((str(name), str(value)) for name, value in properties),
            options.get(_VIEW, ""),
        )

    @property
    def options(self) -> Mapping[str, str]:
        """Return the options of a sink's URL that say it; as secret as the account."""
        told = {_KIND: self.kind, _NAME: self.name, _PROPERTIES: json.dumps(self.properties)}
        more = {CATALOG_OPTION: self.dsn, _VIEW: self.view}
        return {**told, **{name: value for name, value in more.items() if value}}
