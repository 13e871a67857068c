"""A pipeline into a change log, and the table that a reader of the log makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.files.opening import open_files
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.servers.s3 import S3Server
from tests.systems.changelog.world import events_at

Row = dict[str, Any]


def rows_of(events: Iterable[Row]) -> list[Row]:
    """Return the rows that events make; each event fits what those before it have left."""
    rows: dict[str, Row] = {}
    for event in events:
        op, key = event["op"], str([*(event["key"] or {}).values()])
        if op == "t":
            rows.clear()
            continue
        assert (key in rows) == (op in "ud"), f"{op} of {key}"
        if op in "ud":
            held, before = rows.pop(key), event["before"]
            assert all(held[name] == before[name] for name in held.keys() & before.keys())
        if op in "rcu":
            rows[key] = event["after"]
    return [*rows.values()]


@dataclass(frozen=True)
class Logged:
    """The source of a shop, and the change log that it is copied to."""

    shop: Shop
    place: Folder

    @classmethod
    def of(cls, shop: Shop, *, form: str = "json") -> Logged:
        """Turn a shop's file into one whose sink is a change log."""
        return cls._made(shop, Folder(str(shop.path.parent / "changes"), form))

    @classmethod
    def in_bucket(cls, shop: Shop, server: S3Server, *, form: str = "json") -> Logged:
        """Turn a shop's file into one whose sink is a change log in a bucket."""
        shop.environment["CHANGES_S3"] = server.conn_uri
        place = server.folder(server.fresh_bucket(), "logs/shop", form)
        return cls._made(shop, place, "  dsn_env: CHANGES_S3\n")

    @classmethod
    def _made(cls, shop: Shop, place: Folder, more: str = "") -> Logged:
        to_server = f'  dsn_env: DR_DSN\n  route: {{"{shop.database}.*": "{shop.target}.*"}}\n'
        to_files = f"  type: changelog\n  path: {place.path}\n  format: {place.form}\n{more}"
        text = shop.path.read_text()
        assert to_server in text
        shop.path.write_text(text.replace(to_server, to_files))
        return cls(shop, place)

    def catch_up(self) -> Any:
        """Run the pipeline up to the end of the source's log."""
        return catch_up(self.shop)

    def events(self, table: str) -> list[Row]:
        """Return what the log holds of a table, in order."""
        folder = table_folder(TableId(self.shop.database, table))
        return events_at(open_files(self.place.store), folder)

    def operations(self, table: str) -> str:
        """Return the operations of a table's events, in order."""
        return "".join(event["op"] for event in self.events(table))

    def replayed(self, table: str, defaults: Mapping[str, Any] | None = None) -> list[Row]:
        """Return the rows that the log makes, in the columns that the source has now.

        `defaults` are the values that statements gave to rows without an event.
        """
        rows = rows_of(self.events(table))
        names = self.source_columns(table)
        given = dict.fromkeys(names) | dict(defaults or {})
        made = [{name: row.get(name, given[name]) for name in names} for row in rows]
        return sorted(made, key=lambda row: str(row[names[0]]))

    def source_columns(self, table: str) -> list[str]:
        """Return the source's columns now."""
        shop = self.shop
        found = shop.source.execute(f"SHOW COLUMNS FROM {table}", database=shop.database)
        return [str(row[0]) for row in found]

    def source_rows(self, table: str) -> list[Row]:
        """Return the source's rows now."""
        names = self.source_columns(table)
        chosen = ", ".join(f"`{name}`" for name in names)
        shop = self.shop
        found = shop.source.execute(f"SELECT {chosen} FROM {table}", database=shop.database)
        made = [dict(zip(names, row, strict=True)) for row in found]
        return sorted(made, key=lambda row: str(row[names[0]]))

    def is_equal(self, table: str, defaults: Mapping[str, Any] | None = None) -> bool:
        """Tell whether the replayed log is the source's table."""
        made, there = self.replayed(table, defaults), self.source_rows(table)
        texts = [[{name: str(row[name]) for name in row} for row in rows] for rows in (made, there)]
        assert texts[0] == texts[1]
        return True
