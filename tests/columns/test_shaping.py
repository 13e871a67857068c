"""Rows and changes as the sink has them, against a model of single rows."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc_provider.columns.changes import Op, TableChanges
from airflow_cdc_provider.columns.merge import merge
from airflow_cdc_provider.columns.rows import ArrowRows
from airflow_cdc_provider.columns.shaping import (
    copied_changes,
    shaped_changes,
    shaped_columns,
    shaped_keys,
    shaped_rows,
    source_keys,
)
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import (
    AllOf,
    AnyOf,
    Comparator,
    Comparison,
    IsNull,
    Like,
    Not,
    RowFilter,
)
from airflow_cdc_provider.core.salts import Salt, keep_salts, proven
from airflow_cdc_provider.core.table_schema import Column, ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.core.table_shape import (
    AddedTypes,
    Mask,
    MaskKind,
    OutputColumn,
    TableShape,
    shaped_schema,
)

NUMBER = ColumnType("number", TypeKind.INTEGER, KeyKind.INTEGER)
TEXT = ColumnType("text", TypeKind.TEXT, KeyKind.TEXT)
DIGEST = replace(TEXT, length=64)
ADDED = AddedTypes(number=NUMBER, text=TEXT, flag=NUMBER, digest=DIGEST)
ORDERS = TableSchema(
    TableId("shop", "orders"),
    (Column("id", NUMBER, nullable=False), Column("region", TEXT), Column("size", NUMBER)),
    ("id",),
    (0,),
)
ROWS = pa.schema([("id", pa.int32()), ("region", pa.string()), ("size", pa.int16())])
Row = tuple[Any, ...]
Change = tuple[Op, Row | None, Row | None]
EU = Comparison("region", Comparator.EQUAL, "EU")


def planned(shape: TableShape) -> TablePlan:
    target = shaped_schema(ORDERS, TableId("dw", "orders"), shape, ADDED)
    return TablePlan(ORDERS, target, 0, shape)


def image(rows: list[Row | None]) -> pa.RecordBatch:
    by_column = list(zip(*(row or (None,) * 3 for row in rows), strict=True)) or [()] * 3
    arrays = [pa.array(c, f.type) for c, f in zip(by_column, ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def changes_of(*changes: Change) -> TableChanges:
    count = len(changes)
    return TableChanges(
        ORDERS.table,
        pa.array([0] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([int(op) for op, _, _ in changes], pa.int8()),
        image([before for _, before, _ in changes]),
        image([after for _, _, after in changes]),
    )


def rows_of(*rows: Row) -> ArrowRows:
    return ArrowRows(pa.Table.from_batches([image(list(rows))]))


def listed(rows: pa.RecordBatch | pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in rows.to_pylist()]


def shown(changes: TableChanges) -> list[tuple[Op, Row, Row]]:
    images = zip(listed(changes.before), listed(changes.after), strict=True)
    return [(Op(op), *pair) for op, pair in zip(changes.op.to_pylist(), images, strict=True)]


def test_where_nothing_differs_the_very_same_objects_are_handed_on() -> None:
    plan = TablePlan.alike(ORDERS, TableId("dw", "orders"), 0)
    rows, changes = rows_of((1, "EU", 2)), changes_of((Op.INSERT, None, (1, "EU", 2)))
    assert shaped_rows(rows, plan) is rows
    assert shaped_changes(copied_changes(changes, plan), plan) is changes
    assert shaped_columns(ROWS, plan) is ROWS
    assert shaped_keys(changes.after, plan) is changes.after


def test_columns_are_chosen_renamed_and_added() -> None:
    shape = TableShape(
        columns=(
            OutputColumn("shop", constant="north"),
            OutputColumn("number", "id"),
            OutputColumn("bytes", "size"),
            OutputColumn("release", constant=7),
        ),
        key=("shop", "number"),
    )
    plan = planned(shape)
    assert plan.target.primary_key == ("shop", "number")
    assert [column.name for column in plan.target.columns] == ["shop", "number", "bytes", "release"]
    rows = shaped_rows(rows_of((1, "EU", 2), (3, None, None)), plan)
    assert rows.schema == shaped_columns(ROWS, plan)
    assert listed(next(rows.batches())) == [("north", 1, 2, 7), ("north", 3, None, 7)]
    keys = shaped_keys(image([(5, "x", 1)]).select(["id"]), plan)
    assert (keys.schema.names, listed(keys)) == (["shop", "number"], [("north", 5)])
    changes = shaped_changes(changes_of((Op.DELETE, (1, "EU", 2), None)), plan)
    assert shown(changes) == [(Op.DELETE, ("north", 1, 2, 7), (None,) * 4)]
    assert listed(merge([changes], plan.target.primary_key).deletes) == [("north", 1)]


def test_keys_of_the_sink_are_read_back_as_the_sources() -> None:
    shape = TableShape(
        columns=(OutputColumn("shop", constant="north"), OutputColumn("number", "id")),
        key=("shop", "number"),
    )
    plan = planned(shape)
    at_sink = pa.table({"shop": ["north"], "number": [5]})
    back = source_keys(at_sink, plan)
    assert (back.schema.names, listed(back)) == (["id"], [(5,)])
    keys = back.to_batches()[0]
    assert listed(shaped_keys(keys, plan)) == [("north", 5)]
    by_region = planned(
        TableShape(
            columns=(OutputColumn("id", "id"), OutputColumn("region", "region")), key=("region",)
        )
    )
    with pytest.raises(RefusedError, match="id is in one of them only"):
        source_keys(pa.table({"region": ["EU"]}), by_region)
    with pytest.raises(RefusedError, match="region is in one of them only"):
        shaped_keys(keys, by_region)
    assert source_keys(at_sink, planned(TableShape())) is at_sink


@pytest.mark.parametrize(
    ("mask", "masked"),
    [
        (Mask(MaskKind.NULL), [None, None, None]),
        (Mask(MaskKind.FIXED, text="***"), ["***", None, "***"]),
        (Mask(MaskKind.FIRST, length=2), ["äß", None, "x"]),
        (Mask(MaskKind.LAST, length=2), ["\U0001f600ß", None, "x"]),
        (Mask(MaskKind.LAST, length=0), ["", None, ""]),
    ],
)
def test_masks_keep_what_they_say_and_null(mask: Mask, masked: list[str | None]) -> None:
    shape = TableShape(columns=(OutputColumn("id", "id"), OutputColumn("region", "region", mask)))
    rows = shaped_rows(rows_of((1, "äß\U0001f600ß", 0), (2, None, 0), (3, "x", 0)), planned(shape))
    assert [row[1] for row in listed(next(rows.batches()))] == masked


def test_bytes_are_masked_by_bytes() -> None:
    raw = ColumnType("raw", TypeKind.BINARY, KeyKind.BINARY)
    schema = replace(ORDERS, columns=(ORDERS.columns[0], Column("raw", raw)))
    shape = TableShape(
        columns=(
            OutputColumn("id", "id"),
            OutputColumn("a", "raw", Mask(MaskKind.FIRST, length=1)),
            OutputColumn("b", "raw", Mask(MaskKind.LAST, length=1)),
            OutputColumn("c", "raw", Mask(MaskKind.FIXED, text="?")),
        )
    )
    plan = TablePlan(schema, shaped_schema(schema, ORDERS.table, shape, ADDED), 0, shape)
    table = pa.table({"id": [1, 2], "raw": pa.array([b"\xc3\x28\xff", None], pa.binary())})
    rows = shaped_rows(ArrowRows(table), plan)
    assert listed(next(rows.batches())) == [(1, b"\xc3", b"\xff", b"?"), (2, None, None, None)]


def test_hashes_are_of_the_salt_and_the_value_whatever_its_type() -> None:
    salt = Salt("salt_env SALT", "sixteen bytes or more")
    keep_salts([salt])
    kinds = {"id": NUMBER, "text": TEXT, "raw": ColumnType("raw", TypeKind.BINARY, KeyKind.BINARY)}
    schema = replace(ORDERS, columns=tuple(Column(name, kind) for name, kind in kinds.items()))
    mask = Mask(MaskKind.SHA256, salt=salt.name)
    outputs = [OutputColumn("id", "id")]
    outputs += [OutputColumn(f"h_{name}", name, mask) for name in kinds]
    shape = proven(TableShape(columns=tuple(outputs)))
    plan = TablePlan(schema, shaped_schema(schema, ORDERS.table, shape, ADDED), 0, shape)
    assert [column.type for column in plan.target.columns] == [NUMBER, DIGEST, DIGEST, DIGEST]
    big = 2**64 - 1
    rows = {
        "id": pa.array([big, 0], pa.uint64()),
        "text": pa.array(["Köln", None]),
        "raw": pa.array([None, b"\x00\xff"], pa.binary()),
    }
    made = listed(next(shaped_rows(ArrowRows(pa.table(rows)), plan).batches()))

    def of(value: bytes) -> str:
        return hashlib.sha256(salt.text.encode() + value).hexdigest()

    assert made == [
        (big, of(str(big).encode()), of("Köln".encode()), None),
        (0, of(b"0"), None, of(b"\x00\xff")),
    ]


def test_a_value_is_not_hashed_by_another_salt_than_the_rows_before_it() -> None:
    keep_salts([Salt("salt_env SALT", "sixteen bytes or more")])
    mask = Mask(MaskKind.SHA256, salt="salt_env SALT")
    shape = TableShape(columns=(OutputColumn("id", "id"), OutputColumn("region", "region", mask)))
    plan = planned(proven(shape))
    keep_salts([Salt("salt_env SALT", "another salt of some bytes")])
    with pytest.raises(RefusedError, match="salt_env SALT has another value"):
        shaped_rows(rows_of((1, "x", 0)), plan)
    missing = OutputColumn("region", "region", replace(mask, salt="salt_env NONE"))
    lost = planned(TableShape(columns=(OutputColumn("id", "id"), missing)))
    with pytest.raises(RefusedError, match="salt_env NONE is not known"):
        shaped_rows(rows_of((1, "x", 0)), lost)


def test_an_update_that_leaves_the_filter_deletes_and_one_that_enters_it_inserts() -> None:
    changes = changes_of(
        (Op.UPDATE, (1, "EU", 1), (1, "US", 1)),
        (Op.UPDATE, (2, None, 1), (2, "EU", 2)),
        (Op.UPDATE, (3, "EU", 1), (4, "EU", 2)),
        (Op.INSERT, None, (5, "US", 1)),
        (Op.DELETE, (6, "EU", 1), None),
    )
    none = (None, None, None)
    assert shown(
        shaped_changes(
            copied_changes(changes, planned(TableShape(where=EU))), planned(TableShape(where=EU))
        )
    ) == [
        (Op.DELETE, (1, "EU", 1), none),
        (Op.INSERT, none, (2, "EU", 2)),
        (Op.UPDATE, (3, "EU", 1), (4, "EU", 2)),
        (Op.DELETE, (6, "EU", 1), none),
    ]


def test_deletes_mark_the_row_and_a_moved_key_leaves_a_marked_row_behind() -> None:
    changes = changes_of(
        (Op.INSERT, None, (1, "EU", 1)),
        (Op.UPDATE, (2, "EU", 1), (3, "US", 2)),
        (Op.DELETE, (4, "EU", 4), None),
    )
    plan = planned(TableShape(deleted_flag="gone"))
    assert plan.target.columns[-1].name == "gone"
    merged = merge([shaped_changes(copied_changes(changes, plan), plan)], plan.target.primary_key)
    assert listed(merged.deletes) == []
    assert listed(merged.upserts) == [
        (1, "EU", 1, 0),
        (2, "EU", 1, 1),
        (3, "US", 2, 0),
        (4, "EU", 4, 1),
    ]


def is_true(condition: RowFilter, row: Row) -> bool | None:
    """SQL's three values for one row."""
    named = dict(zip(ROWS.names, row, strict=True))
    match condition:
        case IsNull():
            return named[condition.column] is None
        case Like():
            text = named[condition.column]
            return None if text is None else text.startswith(condition.pattern.rstrip("%"))
        case Not():
            inner = is_true(condition.condition, row)
            return None if inner is None else not inner
        case AllOf():
            parts = [is_true(each, row) for each in condition.conditions]
            return False if False in parts else None if None in parts else True
        case AnyOf():
            parts = [is_true(each, row) for each in condition.conditions]
            return True if True in parts else None if None in parts else False
        case Comparison():
            value = named[condition.column]
            if value is None:
                return None
            verdicts: dict[Comparator, bool] = {
                Comparator.EQUAL: value == condition.value,
                Comparator.UNEQUAL: value != condition.value,
                Comparator.LESS: value < condition.value,
                Comparator.AT_MOST: value <= condition.value,
                Comparator.GREATER: value > condition.value,
                Comparator.AT_LEAST: value >= condition.value,
            }
            return verdicts[condition.comparator]


def any_filter(chance: random.Random, depth: int = 3) -> RowFilter:
    kind = chance.randrange(5) if depth else chance.randrange(2)
    if kind == 0:
        return chance.choice((IsNull("region"), IsNull("size"), Like("region", "E%")))
    if kind == 1:
        column, value = chance.choice((("region", "EU"), ("size", 2), ("size", 1 << 14)))
        return Comparison(column, chance.choice(list(Comparator)), value)
    if kind == 2:
        return Not(any_filter(chance, depth - 1))
    parts = tuple(any_filter(chance, depth - 1) for _ in range(chance.randint(1, 3)))
    return AllOf(parts) if kind == 3 else AnyOf(parts)


def any_row(chance: random.Random, key: int) -> Row:
    return key, chance.choice(("EU", "US", None)), chance.choice((1, 2, 3, None))


def history(chance: random.Random) -> tuple[list[Row], list[Change], dict[int, Row]]:
    """Rows at a snapshot, the changes that follow, and the table that they lead to."""
    table = {key: any_row(chance, key) for key in range(5)}
    begun = list(table.values())
    changes: list[Change] = []
    for _ in range(chance.randrange(25)):
        key = chance.randrange(8)
        old = table.pop(key, None)
        if old is None:
            table[key] = any_row(chance, key)
            changes.append((Op.INSERT, None, table[key]))
        elif chance.random() < 0.4:
            changes.append((Op.DELETE, old, None))
        else:
            new = chance.choice([key, *(k for k in range(8) if k not in table)])
            table[new] = any_row(chance, new)
            changes.append((Op.UPDATE, old, table[new]))
    return begun, changes, table


@pytest.mark.parametrize("flag", ["", "gone"])
def test_any_history_under_any_filter_leaves_the_rows_that_it_chooses(flag: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(300):
        where = any_filter(chance)
        plan = planned(TableShape(where=where, deleted_flag=flag))
        begun, changes, now = history(chance)
        batches = shaped_rows(rows_of(*begun), plan).batches()
        held = {row[0]: row for batch in batches for row in listed(batch)}
        merged = merge([shaped_changes(copied_changes(changes_of(*changes), plan), plan)], ("id",))
        for (key,) in listed(merged.deletes):
            held.pop(key, None)
        held |= {row[0]: row for row in listed(merged.upserts)}
        wanted = {key: row for key, row in now.items() if is_true(where, row)}
        alive = {key: row[:3] for key, row in held.items() if not (flag and row[3])}
        assert alive == wanted, where
        assert not listed(merged.deletes) or not flag


_WITHOUT_PANDAS = """
import importlib.util, sys
import pyarrow as pa
from airflow_cdc_provider.columns.arrow_arrays import numbers_of, texts_of
from airflow_cdc_provider.columns.shaping import shaped_columns, sink_columns
from airflow_cdc_provider.core.table_shape import Mask, MaskKind, OutputColumn, TableShape
from tests.columns.test_shaping import planned

if "pandas" in sys.modules:
    sys.exit("what the test imports loads pandas")
shape = TableShape(
    columns=(
        OutputColumn("id", "id"),
        OutputColumn("region", "region", mask=Mask(MaskKind.FIXED, "***")),
        OutputColumn("shard", constant=7),
        OutputColumn("origin", constant="eu"),
    )
)
rows = pa.RecordBatch.from_arrays([numbers_of([1, 2]), texts_of(["a", None])], ["id", "region"])
made = sink_columns(rows, planned(shape))
assert made.schema == shaped_columns(rows.schema, planned(shape))
assert [column.to_pylist() for column in made.columns] == [
    [1, 2], ["***", None], [7, 7], ["eu", "eu"]
]
if importlib.util.find_spec("pandas") is None:
    sys.exit("there is no pandas to stay away from")
sys.exit("pandas was loaded" if "pandas" in sys.modules else 0)
"""


def test_rows_are_shaped_without_loading_pandas() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PANDAS], check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
