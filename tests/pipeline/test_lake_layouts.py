"""Tables of a lake whose files have partitions, and rows in an order, as the file says."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_cdc_provider.core.errors import (
    PipelineFileError,
    PreflightError,
    RefusedError,
    TablesStoppedError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.planning import preview
from airflow_cdc_provider.pipeline.steps.reset_drop import reset
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.lake.preflight import LakeCode
from airflow_cdc_provider.views.reports import plan_form, plan_lines
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.lakes import FORMS, Lake
from tests.systems.lake.damage import catalog_of
from tests.systems.lake.reading import rows_by_duckdb

SEED = random.randrange(2**32)
LAYOUTS = {
    "iceberg": {
        "orders": ["month(at)", "bucket(3, id)"],
        "regions": ["region", "truncate(4, v)"],
        "times": ["day(_committed_at)", "bucket(2, region)", "day"],
    },
    "delta": {"orders": ["region"], "regions": ["v", "region"], "times": ["day"]},
}
ROW = "id INT PRIMARY KEY, region VARCHAR(9), day DATE, at DATETIME(6), v INT, note TEXT"
REGIONS = ("'EU'", "'a=b/c %41'", "'ü '", "'x,y'", "NULL")


@pytest.fixture(params=FORMS)
def lake(empty_shop: Shop, request: pytest.FixtureRequest) -> Lake:
    """Three tables of few rows, whose files are laid out; nothing is read yet."""
    shop = empty_shop
    text = FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
    layouts = LAYOUTS[request.param.partition("_")[0]]
    settings = "".join(
        f'  "{shop.database}.{name}": {{partition_by: {fields}, sort_by: [v]}}\n'
        for name, fields in layouts.items()
    )
    shop.path.write_text(f"{text}tables:\n{settings}")
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    for name in layouts:
        shop.at_source(f"CREATE TABLE {name} ({ROW})")
        shop.at_source(f"INSERT INTO {name} VALUES {', '.join(row(n, rng) for n in range(40))}")
    return Lake.of(shop, request.param)


def row(number: int, rng: random.Random) -> str:
    """Return a row as SQL's VALUES have it."""
    day = rng.choice(["NULL", "'1969-12-31'", "'2024-02-29'", "'9999-12-31'"])
    at = rng.choice(["NULL", "'1001-01-01'", "'1969-12-31 23:59:59.999999'", "'2024-05-06 07:08'"])
    return f"({number}, {rng.choice(REGIONS)}, {day}, {at}, {rng.randrange(-9, 9)}, 'n{number}')"


def change_some(lake: Lake, rng: random.Random) -> None:
    """Insert, change, move and delete rows of all tables."""
    for name in ("orders", "regions", "times"):
        numbers = rng.sample(range(60), 12)
        lake.logged(
            f"REPLACE INTO {name} VALUES {', '.join(row(n, rng) for n in numbers[:5])}",
            f"UPDATE {name} SET region = {rng.choice(REGIONS)} WHERE id IN ({numbers[5]}, 1, 2)",
            f"UPDATE {name} SET day = '2025-01-01', at = day WHERE id % 7 = {numbers[6] % 7}",
            f"DELETE FROM {name} WHERE id = {numbers[7]}",
            f"UPDATE IGNORE {name} SET id = id + 100 WHERE id = {numbers[8]}",
        )


def partitions_of(lake: Lake, table: str) -> Counter[Any]:
    """Return how many rows each partition has; each file has those of one, in their order."""
    found: Counter[Any] = Counter()
    for partition, values, rows in _files(lake, table):
        assert set(values) == {partition}, "rows are in a file of another partition"
        found[partition] += len(values)
        assert rows == sorted(rows), "rows of a file are in another order"
    return found


def _files(lake: Lake, table: str) -> Iterator[tuple[Any, list[Any], list[int]]]:
    """Yield each file's partition, what its rows' would be, and the column that sorts them."""
    if lake.form == "delta":
        return _delta_files(lake.folder / table_folder(TableId(lake.shop.database, table)))
    return _iceberg_files(catalog_of(lake.folder).load_table((lake.shop.database, table)))


def _delta_files(folder: Path) -> Iterator[tuple[Any, list[Any], list[int]]]:
    table = DeltaTable(str(folder))
    fields = table.metadata().partition_columns
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        rows = pq.read_table(folder / action["path"])
        values = zip(*(rows.column(name).to_pylist() for name in fields), strict=True)
        own = tuple(action[f"partition.{name}"] for name in fields)
        yield own, list(values), _numbers(rows)


def _iceberg_files(table: Any) -> Iterator[tuple[Any, list[Any], list[int]]]:
    schema = table.schema()
    fields = [schema.find_field(each.source_id) for each in table.spec().fields]
    made = [
        each.transform.transform(field.field_type)
        for each, field in zip(table.spec().fields, fields, strict=True)
    ]
    for task in table.scan().plan_files():
        rows = pq.read_table(task.file.file_path.removeprefix("file://"))
        columns = [_plain(rows.column(field.name)).to_pylist() for field in fields]
        values = [
            tuple(one(value) for one, value in zip(made, row, strict=True))
            for row in zip(*columns, strict=True)
        ]
        own = tuple(task.file.partition)
        yield own, values if fields else [own] * len(rows), _numbers(rows)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times as the numbers that the library's own transforms take."""
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _numbers(rows: pa.Table) -> list[int]:
    """Return the numbers that rows are sorted by, with NULL as the greatest."""
    return [2**31 if each is None else each for each in rows.column("v").to_pylist()]


def test_rows_are_in_the_files_of_their_partitions(lake: Lake) -> None:
    rng = random.Random(SEED + 1)
    assert not check(lake.shop.run()).blocks
    form = plan_form(preview(lake.shop.run()), lake.shop.run().model)
    fields = ", ".join(LAYOUTS[lake.form]["orders"])
    told = f"partitioned by {fields}, sorted by v"
    assert sum(line.endswith(told) for line in plan_lines(form)) == 1
    lake.catch_up()
    for turn in range(4):
        for name in ("orders", "regions", "times"):
            assert lake.is_equal(name), turn
            found = partitions_of(lake, name)
            assert len(found) > 1 or (name, turn) == ("orders", 3)
            rows = rows_by_duckdb(lake.form, lake.folder, f"{lake.shop.database}.{name}")
            assert len(rows) == sum(found.values())
        change_some(lake, rng)
        if turn == 2:
            lake.logged("TRUNCATE orders", f"INSERT INTO orders VALUES {row(7, rng)}")
        lake.catch_up()
    assert lake.verified().equal


def write(lake: Lake, table: str, settings: str) -> None:
    """Write other settings of one table to the file."""
    text = lake.shop.path.read_text()
    name = f'"{lake.shop.database}.{table}": '
    before, _, behind = text.partition(name)
    lake.shop.path.write_text(f"{before}{name}{settings}\n{behind.partition(chr(10))[2]}")


def begin_again(lake: Lake, *tables: str) -> None:
    """Reset some tables."""
    run = lake.shop.run()
    try:
        reset_tables(run, [TableId(lake.shop.database, table) for table in tables])
    finally:
        run.close()


def test_other_partitions_come_with_the_rows_that_are_read_again(lake: Lake) -> None:
    rng = random.Random(SEED + 1)
    lake.catch_up()
    before = partitions_of(lake, "orders")
    now = "[v]" if lake.form == "delta" else "['truncate(2, region)']"
    write(lake, "orders", f"{{partition_by: {now}, sort_by: [v]}}")
    with pytest.raises(PipelineFileError, match="laid out otherwise"):
        lake.catch_up()
    change_some(lake, rng)
    if lake.form == "delta":
        with pytest.raises(PreflightError, match="keeps the partitions with which it was made"):
            begin_again(lake, "orders")
        write(lake, "orders", "{partition_by: [region], sort_by: [v, id]}")
    begin_again(lake, "orders")
    lake.catch_up()
    assert lake.is_equal("orders")
    if lake.form == "iceberg":
        assert not {*partitions_of(lake, "orders")} & {*before}
    else:
        assert partitions_of(lake, "orders")
    change_some(lake, rng)
    lake.catch_up()
    assert all(map(lake.is_equal, ("orders", "regions", "times")))
    write(lake, "orders", "{sort_by: [v]}")
    run = lake.shop.run()
    reset(run)
    run.close()
    if lake.form == "delta":
        (found,) = [each for each in check(lake.shop.run()).blocks if each.code == LakeCode.LAYOUT]
        assert found.subject == f"{lake.shop.database}.orders"
        return
    lake.catch_up()
    assert {*partitions_of(lake, "orders")} == {()}
    assert lake.is_equal("orders")


@pytest.mark.parametrize(
    "statement",
    ["ALTER TABLE orders DROP COLUMN {}", "ALTER TABLE orders CHANGE {0} other {1}"],
    ids=["dropped", "renamed"],
)
def test_a_table_stops_alone_where_a_column_of_its_partitions_goes(
    lake: Lake, statement: str
) -> None:
    lake.catch_up()
    column, kind = ("region", "VARCHAR(9)") if lake.form == "delta" else ("at", "DATETIME(6)")
    lake.logged(statement.format(column, kind), "INSERT INTO times (id) VALUES (99)")
    with pytest.raises(TablesStoppedError, match=f"names its columns {column}"):
        lake.catch_up()
    assert lake.is_equal("times")
    write(lake, "orders", "{sort_by: [v]}")
    if lake.form == "delta":
        with pytest.raises(PreflightError, match="route the table to another name"):
            begin_again(lake, "orders")
        text, own = lake.shop.path.read_text(), lake.shop.database
        routed = f'  type: delta\n  route: {{"{own}.orders": "{own}.orders2"}}\n'
        lake.shop.path.write_text(text.replace("  type: delta\n", routed))
    begin_again(lake, "orders")
    lake.catch_up()
    if lake.form == "iceberg":
        assert lake.is_equal("orders")
    assert lake.verified().equal


def test_a_type_that_changes_is_followed_where_it_has_partitions_still(lake: Lake) -> None:
    rng = random.Random(SEED + 1)
    lake.catch_up()
    lake.logged(
        "ALTER TABLE orders MODIFY id BIGINT",
        "ALTER TABLE regions MODIFY v BIGINT, MODIFY region CHAR(20)",
        "ALTER TABLE times ADD COLUMN more INT",
    )
    for name in ("orders", "regions"):
        lake.logged(f"REPLACE INTO {name} VALUES {row(3, rng)}, {row(70, rng)}")
    lake.logged("UPDATE times SET more = id, day = '2000-01-01' WHERE id < 5")
    lake.catch_up()
    for name in ("orders", "regions", "times"):
        assert lake.is_equal(name)
        partitions_of(lake, name)
    lake.logged("ALTER TABLE times MODIFY day VARCHAR(20)", "UPDATE times SET day = 'x y' LIMIT 3")
    lake.catch_up()
    lake.logged("UPDATE times SET day = 'z' LIMIT 2")
    lake.catch_up()
    assert lake.is_equal("times")
    partitions_of(lake, "times")
    if lake.form == "delta":
        lake.logged("UPDATE orders SET region = '' WHERE id = 3")
        with pytest.raises(RefusedError, match="for Delta the empty text"):
            lake.catch_up()
    else:
        lake.logged("ALTER TABLE orders MODIFY at VARCHAR(40)")
        with pytest.raises(TablesStoppedError, match="year, month and day"):
            lake.catch_up()
    assert lake.is_equal("regions")


WRONG = {
    "iceberg": (
        "ALTER TABLE times ADD COLUMN _part_day INT",
        "UPDATE times SET _part_day = 1",
        "its column _part_day is called as a field of its partitions",
    ),
    "delta": ("SELECT 1", "UPDATE times SET day = '0000-01-01'", ""),
}


def test_what_a_table_cannot_have_stops_it_alone(lake: Lake) -> None:
    lake.catch_up()
    first, then, why = WRONG[lake.form]
    lake.logged(first, then, "DELETE FROM orders WHERE id = 2")
    if why:
        with pytest.raises(RefusedError, match=why):
            lake.catch_up()
    else:  # Python has no such year, and the lake has
        lake.catch_up()
        lake.catch_up()
    assert lake.is_equal("orders")
    if lake.form == "iceberg":
        lake.logged(f"UPDATE regions SET v = {-(2**31)} WHERE id = 3", "DELETE FROM orders LIMIT 1")
        with pytest.raises(RefusedError):
            lake.catch_up()
        assert lake.is_equal("orders")
        write(lake, "regions", "{}")
        write(lake, "times", "{}")
        begin_again(lake, "regions", "times")
        with pytest.raises(RefusedError, match="is called as a field"):
            lake.catch_up()
        assert lake.is_equal("regions")


@pytest.mark.parametrize("lake", ["delta", "delta_mirror"], indirect=True)
def test_a_table_that_others_compacted_is_gone_on_with(lake: Lake) -> None:
    rng = random.Random(SEED + 1)
    lake.logged("UPDATE orders SET region = 'c d%41'")
    lake.catch_up()
    for _ in range(2):
        lake.logged("INSERT INTO orders VALUES " + row(rng.randrange(1000, 2000), rng))
        lake.logged("UPDATE orders SET region = 'c d%41' WHERE id >= 1000")
        lake.catch_up()
    folder = lake.folder / table_folder(TableId(lake.shop.database, "orders"))
    assert DeltaTable(str(folder)).optimize.compact()["numFilesRemoved"]
    for _ in range(2):
        change_some(lake, rng)
        lake.catch_up()
        assert lake.is_equal("orders")


@pytest.mark.parametrize("lake", ["iceberg", "iceberg_mirror"], indirect=True)
def test_a_field_that_others_called_as_a_column_is_told_where_the_column_changes(
    lake: Lake,
) -> None:
    lake.catch_up()
    table = catalog_of(lake.folder).load_table((lake.shop.database, "orders"))
    with table.update_spec() as update:
        update.add_identity("v")
    lake.logged("UPDATE orders SET v = 3 WHERE id < 9", "DELETE FROM times WHERE id = 2")
    lake.catch_up()
    assert lake.is_equal("orders")
    lake.logged("ALTER TABLE orders MODIFY v VARCHAR(20)", "DELETE FROM times WHERE id = 3")
    with pytest.raises(RefusedError, match="column v is called as a field of its partitions"):
        lake.catch_up()
    assert lake.is_equal("times")
