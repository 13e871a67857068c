"""A pipeline into a lake, and the current rows that a reader's query makes of its tables."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.current_rows import current_rows
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.systems.lake.reading import table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_cdc_provider.core.verify_report import VerifyReport

FORMS = ("iceberg", "delta", "iceberg_mirror", "delta_mirror")
"""Of tables that hold each change, and of those that hold the current rows."""


@dataclass(frozen=True)
class Lake:
    """The source of a shop, and the lake that it is copied to."""

    shop: Shop
    folder: Path
    form: str
    is_mirror: bool = False
    """Its tables hold the current rows."""

    @classmethod
    def of(cls, shop: Shop, form: str) -> Lake:
        """Turn a shop's file into one whose sink is a lake.

        `form` is that of its tables, with a word behind it if they hold the current rows.
        """
        form, _, mode = form.partition("_")
        folder = shop.path.parent / "lake"
        to_server = f'  dsn_env: DR_DSN\n  route: {{"{shop.database}.*": "{shop.target}.*"}}\n'
        to_lake = f"  type: {form}\n  path: {folder}\n  commit_seconds: 1\n"
        to_lake += f"  mode: {mode}\n" if mode else ""
        text = shop.path.read_text()
        assert to_server in text
        shop.path.write_text(text.replace(to_server, to_lake))
        return cls(shop, folder, form, is_mirror=bool(mode))

    def catch_up(self) -> Any:
        """Run the pipeline up to the end of the source's log."""
        return catch_up(self.shop)

    def logged(self, *statements: str) -> None:
        """Run statements at the source in one session, zero dates and all."""
        with closing(self.shop.source.connect(database=self.shop.database)) as connection:
            cursor = connection.cursor()
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
            for statement in statements:
                cursor.execute(statement)

    def unlogged(self, *statements: str) -> None:
        """Run statements at the source that its log does not have."""
        self.logged("SET sql_log_bin = 0", *statements)

    def changes(self, table: str) -> pa.Table:
        """Return all rows of a table, as the format's own library reads them, in their order."""
        rows = table_of(self.form, self.folder, f"{self.shop.database}.{table}")
        return rows.sort_by("_order")

    def operations(self, table: str) -> str:
        """Return the operations of a table's rows, in order."""
        return "".join(self.changes(table).column("_op").to_pylist())

    def either(self, changes: str, rows: str) -> str:
        """Return what is expected of tables that hold each change, or the current rows."""
        return rows if self.is_mirror else changes

    def current(self, table: str) -> list[tuple[str, ...]]:
        """Return a table's current rows by the query that `show` prints, as texts."""
        return _texts(row.values() for row in self.current_rows(table))

    def current_rows(self, table: str) -> list[dict[str, Any]]:
        """Return a table's current rows by the query that `show` prints, each by its columns."""
        named = f"{self.shop.database}.{table}"
        query = current_rows(self.shop.run())[named]
        with duckdb.connect() as connection:
            connection.register("changes", self.changes(table))
            in_catalog = f'"{self.shop.database}"."{table}"'
            found = connection.sql(query.replace(in_catalog, "changes"))
            names = found.columns
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def source_rows(self, table: str) -> list[tuple[str, ...]]:
        """Return the source's rows now, as texts."""
        found = self.shop.source.execute(f"SELECT * FROM {table}", database=self.shop.database)
        return _texts(found)

    def is_equal(self, table: str) -> bool:
        """Tell whether the current rows are the source's, by this query and by verify.

        Each change has an order of its own.
        """
        orders = [n for n in self.changes(table).column("_order").to_pylist() if n >= 0]
        assert len({*orders}) == len(orders)
        assert self.current(table) == self.source_rows(table)
        report = self.verified(table)
        assert report.equal, report
        return True

    def verified(self, *tables: str) -> VerifyReport:
        """Compare tables by verify, all or those that are named."""
        run = self.shop.run()
        try:
            named = [TableId(self.shop.database, table) for table in tables]
            return verify(run, tables=named or None, values=True)
        finally:
            run.close()


def _texts(rows: Any) -> list[tuple[str, ...]]:
    """Return rows as texts, in an order of their own."""
    return sorted(tuple(map(str, row)) for row in rows)
