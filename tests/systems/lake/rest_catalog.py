"""Tables in a catalog of Iceberg's REST protocol: the one that its own project has for tests.

`make lake-readers` runs it: Maven brings the server's jars.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.exceptions import ForbiddenError

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.core.errors import RefusedError, SinkUnreachableError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.systems.lake.current_views import CurrentView
from airflow_cdc_provider.systems.lake.tables.catalogs import ask, open_catalog
from airflow_cdc_provider.systems.lake.tables.rest_views import RestViews
from tests.behaviours.sink_world import delete, insert, update
from tests.pipeline.spark_jars import ICEBERG, install_spark, jar, run_sql
from tests.systems.lake.rest_servers import FOLDER, jars_of, rest_server
from tests.systems.lake.steps import begun, change
from tests.systems.lake.test_iceberg_catalogs import (
    PublishedInACatalog,
    test_a_commit_is_made_on_the_table_as_it_was_loaded_or_not_at_all,
    test_a_commit_whose_answer_is_lost_is_looked_up,
    test_a_sink_goes_to_executors_with_its_ways_in_and_never_shows_them,
    test_a_table_of_others_is_refused,
    test_a_table_that_was_dropped_is_missed,
)
from tests.systems.lake.world import LakeWorld

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.view import View

__all__ = [
    "test_a_commit_is_made_on_the_table_as_it_was_loaded_or_not_at_all",
    "test_a_commit_whose_answer_is_lost_is_looked_up",
    "test_a_sink_goes_to_executors_with_its_ways_in_and_never_shows_them",
    "test_a_table_of_others_is_refused",
    "test_a_table_that_was_dropped_is_missed",
]
ORDERS, CURRENT = ("shop", "orders"), ("shop", "orders now")


@pytest.fixture(scope="session")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Have Maven bring the server's jars."""
    return jars_of(FOLDER, tmp_path_factory.mktemp("rest") / "classpath")


@pytest.fixture
def world(classpath: str, tmp_path: Path) -> Iterator[LakeWorld]:
    """A server of its own, whose tables are in a folder."""
    with rest_server(classpath, tmp_path) as url:
        access = CatalogAccess("rest", "lake", url)
        place = Folder(str(tmp_path / "lake"), "iceberg", commit_seconds=60, catalog=access)
        yield LakeWorld(root=tmp_path, form="iceberg", bucket=place)


class TestPublishedInARestCatalog(PublishedInACatalog):
    pass


# --- views of current rows ------------------------------------------------------------------


@pytest.fixture
def seen(world: LakeWorld) -> LakeWorld:
    """The same catalog, which is to have a view beside each table, with two changes in one."""
    assert world.bucket is not None
    assert world.bucket.catalog is not None
    asked = replace(world.bucket.catalog, view="{table} now")
    world.bucket = replace(world.bucket, catalog=asked)
    begun(world, (1, "a"), (2, "b"))
    rows = [update((1, "a"), (1, "A")), delete(2, "b")]
    world.changes(1).apply(world.batch(rows, start=100))
    world.lake.publish_tables()
    return world


def catalog_of(world: LakeWorld) -> Catalog:
    assert world.place.catalog is not None
    return open_catalog(world.place.catalog, world.place.store, is_new=False)


def rows_by(view: View, world: LakeWorld) -> list[tuple[object, ...]]:
    """The rows that a view's query for Trino finds, in DuckDB."""
    told = view.sql_for("trino")
    assert told is not None
    with duckdb.connect() as connection:
        connection.register("changes", catalog_of(world).load_table(ORDERS).scan().to_arrow())
        query = told.sql.replace('"lake"."shop"."orders"', "changes")
        return sorted(connection.sql(query).fetchall())


def test_a_view_has_the_current_rows_and_stays_what_it_is(seen: LakeWorld) -> None:
    catalog = catalog_of(seen)
    view = catalog.load_view(CURRENT)
    assert [field.name for field in view.schema().fields] == ["id", "name"]
    assert rows_by(view, seen) == [(1, "A")]
    change(seen, 11)
    seen.lake.publish_tables()
    again = catalog.load_view(CURRENT)
    assert again == view
    assert rows_by(again, seen) == [(1, "A"), (11, "x")]
    assert {name for _, name in catalog.list_views(("shop",))} == {"orders now", "seats now"}


def test_a_view_that_says_something_else_is_made_anew_in_its_place(seen: LakeWorld) -> None:
    catalog = catalog_of(seen)
    before = catalog.load_view(CURRENT)
    columns = pa.schema([("id", pa.int64()), ("more", pa.string())])
    other = CurrentView(TableId(*CURRENT), columns, {"spark": "SELECT 1", "trino": "SELECT 2"})
    RestViews(catalog, str(seen.pipeline)).keep(other)  # type: ignore[arg-type]
    changed = catalog.load_view(CURRENT)
    assert changed.uuid() == before.uuid()
    assert [str(field) for field in changed.schema().fields] == [
        "1: id: optional long",
        "2: more: optional string",
    ]
    assert {each.root.sql for each in changed.current_version().representations} == {
        "SELECT 1",
        "SELECT 2",
    }
    seen.lake.publish_tables()
    assert rows_by(catalog.load_view(CURRENT), seen) == [(1, "A")]
    assert catalog.load_view(CURRENT).uuid() == before.uuid()


def test_a_view_that_is_dropped_comes_back(seen: LakeWorld) -> None:
    catalog = catalog_of(seen)
    catalog.drop_view(CURRENT)
    seen.lake.publish_tables()
    assert rows_by(catalog.load_view(CURRENT), seen) == [(1, "A")]


@pytest.mark.parametrize("what", ["view", "table"])
def test_a_name_that_others_have_is_refused_and_the_table_follows(
    what: str, seen: LakeWorld
) -> None:
    catalog = catalog_of(seen)
    catalog.drop_view(CURRENT)
    if what == "view":
        columns = pa.schema([("id", pa.int64())])
        made = CurrentView(TableId(*CURRENT), columns, {"spark": "SELECT 1"})
        RestViews(catalog, "theirs").keep(made)  # type: ignore[arg-type]
    else:
        schema = pa.schema([("id", pa.int64())])
        catalog.create_table(CURRENT, schema=schema, location=f"file://{seen.root}/theirs")
    change(seen, 11)
    with pytest.raises(RefusedError, match=r"the view shop\.orders now cannot be made") as refused:
        seen.lake.publish_tables()
    assert refused.value.tables == ("shop.orders",)
    assert catalog.load_table(ORDERS).scan().to_arrow().num_rows == 5


def test_a_view_that_cannot_be_made_holds_no_table_up(
    seen: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_of(seen)
    for each in ("orders now", "seats now"):
        catalog.drop_view(("shop", each))
    change(seen, 11)
    seen.changes(1).apply(seen.batch([insert(7, 70)], start=120, table="seats"))

    def forbidden(*_: object) -> bool:
        raise ForbiddenError("not yours")

    with monkeypatch.context() as patched:
        patched.setattr(RestViews, "_sent", forbidden)
        with pytest.raises(SinkUnreachableError, match="views of current rows cannot be made"):
            seen.lake.publish_tables()
    assert catalog.load_table(ORDERS).scan().to_arrow().num_rows == 5
    assert catalog.load_table(("shop", "seats")).scan().to_arrow().num_rows == 1
    seen.lake.publish_tables()
    assert rows_by(catalog.load_view(CURRENT), seen) == [(1, "A"), (11, "x")]


def test_a_catalog_without_views_is_refused_before_anything_is_begun(seen: LakeWorld) -> None:
    place = seen.place
    assert place.catalog is not None
    ask(place.catalog, place.store)
    sql = replace(place.catalog, kind="sql", dsn=f"sqlite:///{seen.root}/other.db")
    with pytest.raises(RefusedError, match="the catalog has no views"):
        ask(sql, place.store)


def test_spark_reads_a_view(seen: LakeWorld, tmp_path: Path) -> None:
    assert seen.place.catalog is not None
    folder, found = tmp_path / "spark", tmp_path / "found.arrow"
    install_spark(folder)
    catalog = "spark.sql.catalog.lake"
    given = {
        "jars": [jar(ICEBERG)],
        "conf": {
            "spark.ui.enabled": "false",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions."
            "IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "rest",
            f"{catalog}.uri": seen.place.catalog.dsn,
        },
        "steps": [("SELECT * FROM lake.shop.`orders now`", str(found))],
    }
    run_sql(folder, given)
    with pa.OSFile(str(found)) as file:
        assert pa.ipc.open_file(file).read_all().to_pylist() == [{"id": 1, "name": "A"}]
