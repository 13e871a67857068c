"""A Spark with the formats' own jars reads a lake's tables, and changes them; we go on behind it.

`make lake-readers` runs it: Maven brings the jars, and PyPI the Spark that they are of.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from tests.end_to_end.test_lake import COLUMNS
from tests.pipeline.conftest import Shop
from tests.pipeline.lake_tables import (
    TRANSFORMS,
    asked_of_parts,
    change_every,
    change_parts,
    write_every,
    write_parts,
)
from tests.pipeline.lakes import FORMS, Lake
from tests.pipeline.spark_jars import ICEBERG, install_spark, jar, run_sql
from tests.systems.lake.damage import catalog_of

JARS = {
    "iceberg": (
        ICEBERG,
        "org.xerial:sqlite-jdbc:3.46.1.3",
    ),
    "delta": ("io.delta:delta-spark_2.13:4.0.0", "io.delta:delta-storage:4.0.0"),
}


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a Spark that both formats have jars of."""
    folder = tmp_path_factory.mktemp("spark")
    install_spark(folder)
    return folder


class Spark:
    """Runs statements, each batch of them in a Spark of its own."""

    def __init__(self, folder: Path, lake: Lake) -> None:
        self._folder, self._lake = folder, lake
        self._jars = [jar(each) for each in JARS[lake.form]]

    def table(self, name: str) -> str:
        database = self._lake.shop.database
        if self._lake.form == "delta":
            return f"delta.`{self._lake.folder}/{database}.{name}`"
        return f"lake.`{database}`.`{name}`"

    def rows(self, name: str) -> pa.Table:
        """Return all rows of a table, in their order."""
        path = self._lake.folder.parent / f"{name}.arrow"
        self.run((f"SELECT * FROM {self.table(name)} ORDER BY _order", str(path)))
        with pa.OSFile(str(path)) as file:
            return pa.ipc.open_file(file).read_all()

    def run(self, *steps: tuple[str, str]) -> None:
        run_sql(self._folder, {"jars": self._jars, "conf": self._conf, "steps": steps})

    @property
    def _conf(self) -> dict[str, str]:
        shared = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
        if self._lake.form == "delta":
            return {
                **shared,
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog."
                "DeltaCatalog",
            }
        catalog = "spark.sql.catalog.lake"
        return {
            **shared,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions."
            "IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "jdbc",
            f"{catalog}.uri": f"jdbc:sqlite:{self._lake.folder}/catalog.db",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": str(self._lake.folder),
        }


@pytest.fixture(params=FORMS)
def lake(request: pytest.FixtureRequest, shop: Shop) -> Lake:
    return Lake.of(shop, request.param)


@pytest.fixture
def spark(spark_folder: Path, lake: Lake) -> Spark:
    return Spark(spark_folder, lake)


def comparable(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows in the order of their changes; a moment is one in UTC."""
    told = rows.sort_by([("_order", "ascending"), ("_position", "ascending"), ("id", "ascending")])
    return [
        {name: value.astimezone(UTC) if is_moment(value) else value for name, value in row.items()}
        for row in told.to_pylist()
    ]


def is_moment(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


@pytest.mark.timeout(900)
def test_spark_reads_what_the_formats_own_library_reads(lake: Lake, spark: Spark) -> None:
    shop = lake.shop
    write_every(shop)
    lake.catch_up()
    change_every(shop)
    lake.catch_up()
    for table in ("every", "orders"):
        found = spark.rows(table)
        assert comparable(found) == comparable(lake.changes(table)), table
        assert found.num_rows
    value = pc.max(spark.rows("every").column("big")).as_py()
    assert value == COLUMNS["big"][2]


def maintained(form: str, table: str, name: str) -> Sequence[str]:
    """What people do to a table: they rewrite rows and files, and drop what was before."""
    merge = (
        f"MERGE INTO {table} t USING (SELECT _order AS o, id AS i FROM {table}) s "
        "ON t._order = s.o AND t.id = s.i WHEN MATCHED THEN UPDATE SET t.note = t.note"
    )
    if form == "delta":
        return merge, f"OPTIMIZE {table}"
    return (
        merge,
        f"CALL lake.system.rewrite_data_files(table => '{name}', "
        "options => map('rewrite-all', 'true'))",
        f"CALL lake.system.rewrite_manifests(table => '{name}')",
        f"CALL lake.system.expire_snapshots(table => '{name}', "
        "older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1)",
        f"CALL lake.system.remove_orphan_files(table => '{name}', dry_run => true)",
    )


def is_rewritten(lake: Lake) -> bool:
    """Tell whether the last commit is Spark's, and of Iceberg whether there is no other."""
    if lake.form == "delta":
        (last,) = DeltaTable(f"{lake.folder}/{lake.shop.database}.orders").history(1)
        return str(last["operation"]) == "OPTIMIZE"
    table = catalog_of(lake.folder).load_table((lake.shop.database, "orders"))
    (only,) = table.metadata.snapshots
    return only.summary is not None and only.summary.get("engine-name") == "spark"


@pytest.mark.timeout(900)
def test_we_go_on_behind_what_spark_has_rewritten(lake: Lake, spark: Spark) -> None:
    shop = lake.shop
    lake.catch_up()
    for number in range(2):
        shop.at_source(f"INSERT INTO orders (id, note) VALUES ({900 + number}, 'before')")
        shop.at_source("UPDATE orders SET note = 'changed' WHERE id = 1")
        lake.catch_up()
        table = spark.table("orders")
        named = f"{shop.database}.orders"
        spark.run(*((each, "") for each in maintained(lake.form, table, named)))
        assert is_rewritten(lake)
        assert lake.is_equal("orders")
    shop.at_source("DELETE FROM orders WHERE id = 900")
    shop.at_source("ALTER TABLE orders ADD COLUMN more BIGINT")
    shop.at_source("UPDATE orders SET more = id WHERE id < 10")
    lake.catch_up()
    assert lake.is_equal("orders")
    assert comparable(spark.rows("orders")) == comparable(lake.changes("orders"))


@pytest.mark.timeout(900)
def test_spark_finds_rows_by_their_partitions_and_gives_the_table_others(
    lake: Lake, spark: Spark
) -> None:
    shop, is_iceberg = lake.shop, lake.form == "iceberg"
    fields = TRANSFORMS if is_iceberg else "[region]"
    settings = f"{{partition_by: {fields}, sort_by: [at]}}"
    text = shop.path.read_text()
    shop.path.write_text(f'{text}tables: {{"{shop.database}.parts": {settings}}}\n')
    write_parts(shop)
    lake.catch_up()
    change_parts(shop)
    lake.catch_up()
    conditions = asked_of_parts("TIMESTAMP_NTZ")
    paths = [lake.folder.parent / f"asked{number}.arrow" for number in range(len(conditions))]
    asked = [
        (f"SELECT * FROM {spark.table('parts')} WHERE {where}", str(path))
        for where, path in zip(conditions, paths, strict=True)
    ]
    spark.run(*asked)
    whole = lake.changes("parts")
    for (where, is_asked), path in zip(conditions.items(), paths, strict=True):
        with pa.OSFile(str(path)) as file:
            found = comparable(pa.ipc.open_file(file).read_all())
        assert found == [each for each in comparable(whole) if is_asked(each)], where
        assert found, where
    table = spark.table("parts")
    if is_iceberg:
        spark.run(
            (f"ALTER TABLE {table} DROP PARTITION FIELD month(at)", ""),
            (f"ALTER TABLE {table} ADD PARTITION FIELD day(at)", ""),
            (f"CALL lake.system.rewrite_data_files('{shop.database}.parts')", ""),
        )
    else:
        spark.run((f"OPTIMIZE {table}", ""))
    assert comparable(lake.changes("parts")) == comparable(whole)
    shop.at_source("UPDATE parts SET at = '2025-01-01' WHERE id IN (3, 4, 5)")
    lake.catch_up()
    assert lake.is_equal("parts")
    assert comparable(spark.rows("parts")) == comparable(lake.changes("parts"))
