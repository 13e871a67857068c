"""Tables of Iceberg in catalogs that are servers: each change once there, whoever commits."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from sqlalchemy.exc import ProgrammingError

from airflow_cdc_provider.columns.source_port import SourceLook
from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.dsn import passwords_in
from airflow_cdc_provider.core.endpoint import Folder, parse_sink
from airflow_cdc_provider.core.errors import (
    IntegrityError,
    RefusedError,
    SinkUnreachableError,
)
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.file_log.manifest import Manifest
from airflow_cdc_provider.systems.lake.preflight import LakeCode
from airflow_cdc_provider.systems.lake.tables import iceberg
from airflow_cdc_provider.systems.lake.tables.catalogs import open_catalog
from airflow_cdc_provider.systems.lake.tables.table import TableMovedError
from tests.behaviours.sink_world import Row
from tests.servers.given import SqlServer
from tests.servers.postgres import SqlDatabase
from tests.servers.proxy import CuttingProxy, Fault
from tests.servers.s3 import S3Server
from tests.servers.s3_proxy import DROP_ANSWER, Request, before
from tests.systems.lake.published_behaviours import PublishedBehaviours
from tests.systems.lake.steps import begun, change
from tests.systems.lake.world import LakeWorld, rows_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

pytestmark = pytest.mark.sample(1)  # of the catalogs
NAME = ("shop", "orders")


@pytest.fixture
def on_postgres(
    s3_server: S3Server, postgres_server: SqlDatabase, postgres_database: str
) -> Folder:
    access = CatalogAccess("sql", "lake", postgres_server.dsn(postgres_database))
    return in_bucket(s3_server, access)


@pytest.fixture
def on_mysql(
    tmp_path: Path, mysql_sink: SqlServer, fresh_database: Callable[[SqlServer], str]
) -> Folder:
    """Its tables are in a folder, whose name is not the same in a URI."""
    access = CatalogAccess("sql", "lake", f"{mysql_sink.dsn()}{fresh_database(mysql_sink)}")
    return Folder(str(tmp_path / "la ke%20"), "iceberg", commit_seconds=60, catalog=access)


@pytest.fixture
def on_glue(s3_server: S3Server) -> Folder:
    properties = (("glue.endpoint", s3_server.url),)
    found = in_bucket(s3_server, CatalogAccess("glue", "lake", properties=properties))
    catalog = opened(found)
    for namespace in catalog.list_namespaces():  # of another test
        for table in catalog.list_tables(namespace):
            catalog.drop_table(table)
        catalog.drop_namespace(namespace)
    return found


def in_bucket(server: S3Server, access: CatalogAccess) -> Folder:
    folder = server.folder(server.fresh_bucket(), "lake", "iceberg")
    return replace(folder, commit_seconds=60, catalog=access)


@pytest.fixture(params=["on_postgres", "on_mysql", "on_glue"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> LakeWorld:
    return LakeWorld(root=tmp_path, form="iceberg", bucket=request.getfixturevalue(request.param))


@pytest.fixture(params=["on_postgres", "on_glue"])
def reached(request: pytest.FixtureRequest, tmp_path: Path) -> LakeWorld:
    """The world of a catalog whose requests can be held up."""
    return LakeWorld(root=tmp_path, form="iceberg", bucket=request.getfixturevalue(request.param))


def opened(place: Folder) -> Catalog:
    """The catalog as others open it."""
    assert place.catalog is not None
    return open_catalog(place.catalog, place.store, is_new=False)


def published(world: LakeWorld) -> list[Row]:
    return rows_of(world, opened(world.place).load_table(NAME).scan().to_arrow())


def tables_of(world: LakeWorld) -> iceberg.IcebergTables:
    name = str(world.pipeline)
    return iceberg.open_tables(world.place, name, Manifest(world.store, name).read())


class PublishedInACatalog(PublishedBehaviours):
    loaded = iceberg.IcebergTable

    def published(self, world: LakeWorld) -> list[Row]:
        return published(world)

    def compact(self, world: LakeWorld) -> None:
        table = opened(world.place).load_table(NAME)
        table.overwrite(table.scan().to_arrow())

    def check_place(self, world: LakeWorld) -> None:
        table = opened(world.place).load_table(NAME)
        assert table.location().removeprefix("file://") == f"{world.place}/shop.orders"


class TestPublishedInACatalog(PublishedInACatalog):
    pass


class TestMirroredInACatalog(PublishedInACatalog):
    @pytest.fixture
    def world(self, on_postgres: Folder, tmp_path: Path) -> LakeWorld:
        return LakeWorld(root=tmp_path, form="iceberg", bucket=on_postgres, mirror_mb=512)


def test_the_environment_is_not_asked_where_the_connection_says_that_the_store_is(
    reached: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    begun(reached, (1, "a"))
    reached.lake.publish_tables()
    assert published(reached) == [(1, "a")]


def test_a_table_may_have_any_name(world: LakeWorld) -> None:
    place = world.place.catalog
    assert place is not None
    name = "o#? é%20/r" if place.kind == "sql" else "o#? %20/r"
    world.orders = TablePlan.alike(world.orders.schema, TableId("shop", name), 0)
    world.sink = world.under(world.generation)
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    found = opened(world.place).load_table(("shop", name)).scan().to_arrow()
    assert rows_of(world, found) == [(1, "a"), (10, "x")]


@pytest.mark.parametrize("has_files", [True, False])
def test_a_commit_is_made_on_the_table_as_it_was_loaded_or_not_at_all(
    has_files: bool, world: LakeWorld
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    late, first = (tables_of(world).load(world.orders.sink_table) for _ in range(2))
    assert late is not None
    assert first is not None
    stamp = late.stamp
    assert stamp is not None
    if has_files:
        change(world, 10)
        world.lake.publish_tables()
    else:
        first.append([], first.columns, replace(stamp, files=stamp.files + 2))
    with pytest.raises(TableMovedError):
        late.append([], late.columns, replace(stamp, files=stamp.files + 1))
    opened(world.place).load_table(NAME).scan().to_arrow()  # nothing of it was deleted


def test_a_table_of_others_is_refused(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    tables_of(world)  # which makes the tables of a catalog in a new database
    catalog = opened(world.place)
    catalog.create_namespace_if_not_exists(NAME[0])
    rows = pa.table({"id": [1]})
    location = f"{world.place.store.uri}/theirs"
    if world.place.store.scheme == "file":
        location = str(world.root / "theirs")
        (world.root / "theirs").mkdir()
    catalog.create_table(NAME, schema=rows.schema, location=location).append(rows)
    with pytest.raises(RefusedError, match="was made by nobody we know"):
        world.lake.publish_tables()
    assert catalog.load_table(NAME).scan().to_arrow().to_pylist() == [{"id": 1}]


def test_a_table_that_was_dropped_is_missed(world: LakeWorld) -> None:
    begun(world, (1, "a"))
    change(world, 10)
    world.lake.publish_tables()
    opened(world.place).drop_table(NAME)
    change(world, 11)
    with pytest.raises(IntegrityError, match="dropped or set back"):
        world.lake.publish_tables()


@contextmanager
def held_up(world: LakeWorld) -> Iterator[tuple[LakeWorld, Callable[[bool], None]]]:
    """The same lake and pipeline, whose catalog answers or not.

    A Glue that does not answer has done what it was asked; a database has not.
    """
    place = world.place
    assert place.catalog is not None
    through = glue_held_up if place.catalog.kind == "glue" else database_held_up
    with through(place.catalog) as (catalog, lose):
        yield replace(world, bucket=replace(place, catalog=catalog)), lose


@contextmanager
def glue_held_up(
    catalog: CatalogAccess,
) -> Iterator[tuple[CatalogAccess, Callable[[bool], None]]]:
    loses = threading.Event()

    def rule(request: Request) -> str:
        is_commit = request.headers.get("X-Amz-Target", "").startswith("AWSGlue.UpdateTable")
        return DROP_ANSWER if loses.is_set() and is_commit else ""

    port = urlsplit(dict(catalog.properties)["glue.endpoint"]).port
    assert port is not None
    with before(S3Server(port)) as proxy:
        proxy.rule = rule
        away = replace(catalog, properties=(("glue.endpoint", proxy.server.url),))
        yield away, lambda is_lost: loses.set() if is_lost else loses.clear()


@contextmanager
def database_held_up(
    catalog: CatalogAccess,
) -> Iterator[tuple[CatalogAccess, Callable[[bool], None]]]:
    port = urlsplit(catalog.dsn).port
    assert port is not None
    with CuttingProxy(port) as proxy:

        def lose(is_lost: bool) -> None:
            proxy.fault = Fault(refuse=is_lost)
            if is_lost:
                proxy.cut()

        yield replace(catalog, dsn=catalog.dsn.replace(f":{port}/", f":{proxy.port}/")), lose


def test_a_catalog_that_is_away_is_an_outage_and_is_made_up_for(reached: LakeWorld) -> None:
    begun(reached, (1, "a"))
    reached.lake.publish_tables()
    change(reached, 10)
    with held_up(reached) as (through, lose):
        lose(True)
        away = r"^CDC-SNK-001 (tables|shop\.orders) cannot be committed to"
        with pytest.raises(SinkUnreachableError, match=away) as error:
            through.lake.publish_tables()
        assert_no_secret(reached, str(error.value))
        lose(False)
        through.lake.publish_tables()
    assert published(reached) == [(1, "a"), (10, "x")]


def test_a_check_makes_nothing_and_says_that_the_catalog_does_not_answer(
    reached: LakeWorld,
) -> None:
    look = SourceLook(())
    with held_up(reached) as (through, lose):
        assert through.lake.preflight([reached.orders], look) == ()
        place = through.place
        assert place.catalog is not None
        kind = place.catalog.kind
        if kind == "sql":
            lose(True)
        else:
            away = replace(place.catalog, properties=(("glue.endpoint", "http://127.0.0.1:1"),))
            place = replace(place, catalog=away)
        with pytest.raises(SinkUnreachableError, match="the catalog cannot be asked") as error:
            replace(through, bucket=place).lake.preflight([reached.orders], look)
        assert_no_secret(reached, str(error.value))
    with pytest.raises(ProgrammingError) if kind == "sql" else nullcontext():
        assert ("shop",) not in opened(reached.place).list_namespaces()


def test_a_name_that_glue_would_change_is_refused(on_glue: Folder, tmp_path: Path) -> None:
    world = LakeWorld(root=tmp_path, form="iceberg", bucket=on_glue)
    plan = TablePlan.alike(world.orders.schema, TableId("shop", "Orders"), 0)
    (finding,) = world.lake.preflight([plan], SourceLook(()))
    assert (finding.code, finding.level) == (LakeCode.TABLE_NAME, Level.BLOCK)


def test_a_commit_whose_answer_is_lost_is_looked_up(
    world: LakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world, (1, "a"))
    world.lake.publish_tables()
    change(world, 10)
    append = iceberg.IcebergTable.append

    def lost(*given: Any) -> None:
        append(*given)
        raise OSError("no answer in time")

    with monkeypatch.context() as patched:
        patched.setattr(iceberg.IcebergTable, "append", lost)
        with pytest.raises(SinkUnreachableError, match="no answer in time"):
            world.lake.publish_tables()
    for _ in range(2):
        world.lake.publish_tables()
        assert published(world) == [(1, "a"), (10, "x")]


def test_a_sink_goes_to_executors_with_its_ways_in_and_never_shows_them(world: LakeWorld) -> None:
    place = world.place
    again: Any = pickle.loads(pickle.dumps(world.sink))
    assert again == world.sink
    assert_no_secret(world, f"{again!r}{again}{again.identity()}{place!r}")
    assert parse_sink(place.address) == place
    assert place.catalog is not None
    password = urlsplit(place.catalog.dsn).password or ""
    secrets = {place.access.secret, password, unquote(password)} - {""}
    assert secrets <= passwords_in(place.address)


def assert_no_secret(world: LakeWorld, text: str) -> None:
    place = world.place
    assert place.catalog is not None
    password = urlsplit(place.catalog.dsn).password or ""
    for secret in {password, unquote(password), place.access.secret} - {""}:
        assert secret not in text
