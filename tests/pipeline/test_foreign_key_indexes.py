"""A unique key that foreign keys need goes for a while, and both come back."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.run import give_back
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from tests.pipeline.conftest import Shop
from tests.pipeline.shop_tables import at_sink, at_source, synced
from tests.servers.given import SqlServer

KEYS = {("profiles", "has_user"), ("profiles", "has_code"), ("profiles", "of_user")}
KEYS |= {("profiles", "of_code"), ("orders", "code")}


@pytest.fixture
def kept(shop: Shop) -> Shop:
    """Copied tables; one refers to the other's unique key, and has one over what refers."""
    shop.at_source(
        "CREATE TABLE profiles (id INT PRIMARY KEY, user INT, code INT, UNIQUE KEY has_user (user),"
        " UNIQUE KEY has_code (code),"
        " CONSTRAINT of_user FOREIGN KEY (user) REFERENCES orders (id),"
        " CONSTRAINT of_code FOREIGN KEY (code) REFERENCES orders (code))"
    )
    shop.at_source("INSERT INTO profiles VALUES (1, 1, 20), (2, 2, 10)")
    synced(shop)
    assert keys_at_sink(shop) == KEYS
    return shop


def keys_at_sink(shop: Shop) -> set[tuple[object, ...]]:
    return set(
        shop.sink_rows(
            "SELECT table_name, constraint_name FROM information_schema.table_constraints "
            f"WHERE table_schema = '{shop.target}' AND constraint_name <> 'PRIMARY'"
        )
    )


class NeededKeys:
    refused: AbstractContextManager[object] = nullcontext()

    @pytest.mark.parametrize("tables", [("profiles",), ("orders",), ("profiles", "orders")])
    def test_a_table_is_read_again_while_unique_values_move(
        self, kept: Shop, tables: tuple[str, ...]
    ) -> None:
        for table in tables:
            column = "at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"
            kept.at_source(f"ALTER TABLE {table} ADD COLUMN {column}")
        kept.at_source("UPDATE profiles SET code = NULL WHERE id = 1")
        kept.at_source("UPDATE profiles SET code = 20 WHERE id = 2")
        synced(kept)
        synced(kept)
        for table in ("orders", "profiles"):
            assert at_sink(kept, table) == at_source(kept, table)
        assert keys_at_sink(kept) == KEYS

    @pytest.mark.parametrize("table", ["profiles", "orders"])
    def test_a_table_is_begun_again(self, kept: Shop, table: str) -> None:
        run = kept.run()
        reset_tables(run, [TableId(kept.database, table)])
        give_back(run)
        synced(kept)
        assert at_sink(kept, table) == at_source(kept, table)
        assert keys_at_sink(kept) == KEYS

    def test_a_foreign_key_of_others_is_left_alone(self, kept: Shop) -> None:
        own = f"FOREIGN KEY (code) REFERENCES {kept.target}.orders (code)"
        kept.sink.execute(
            f"CREATE TABLE others (id INT PRIMARY KEY, code INT, CONSTRAINT own {own})",
            database=kept.target,
        )
        kept.at_source("ALTER TABLE orders ADD COLUMN at DATETIME DEFAULT CURRENT_TIMESTAMP")
        with self.refused:
            synced(kept)
        assert ("others", "own") in keys_at_sink(kept)


class TestAtMySql(NeededKeys):
    refused = pytest.raises(CdcError, match="needed in a foreign key")


class TestAtMariaDb(NeededKeys):
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
