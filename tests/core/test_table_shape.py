"""How a table at the sink may differ from the source's, and what is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import (
    AllOf,
    AnyOf,
    Comparator,
    Comparison,
    IsNull,
    Not,
    columns_in,
)
from airflow_cdc_provider.core.salts import Salt, keep_salts, other_salt, proven
from airflow_cdc_provider.core.schema_codec import plan_from_json, plan_to_json
from airflow_cdc_provider.core.splits import Condition, Interval, KeyList, SnapshotSplit
from airflow_cdc_provider.core.table_schema import (
    Column,
    ColumnType,
    TableSchema,
    TypeKind,
    UniqueKey,
)
from airflow_cdc_provider.core.table_shape import (
    SHARD_LENGTH,
    AddedTypes,
    Mask,
    MaskKind,
    OutputColumn,
    TableShape,
    shaped_schema,
)
from airflow_cdc_provider.systems.mysql.dialect.column_types import type_of_before_kinds

NUMBER = ColumnType("bigint", TypeKind.INTEGER, KeyKind.INTEGER)
TEXT = ColumnType("varchar", TypeKind.TEXT, KeyKind.TEXT, length=20)
ADDED = AddedTypes(number=NUMBER, text=TEXT, flag=NUMBER, digest=TEXT)
USERS = TableSchema(
    TableId("shop", "users"),
    (
        Column("id", NUMBER, nullable=False, auto_increment=True),
        Column("mail", TEXT),
        Column("age", NUMBER),
        Column("twice", NUMBER, generated=True),
    ),
    ("id",),
    (0,),
    (UniqueKey("mail", ("mail",)),),
    create_statement="CREATE TABLE users (...)",
)
AT_SINK = TableId("dw", "people")
KEY, MAIL = OutputColumn("id", "id"), OutputColumn("mail", "mail")
FIRST_2 = Mask(MaskKind.FIRST, length=2)
HASH = Mask(MaskKind.SHA256, salt="salt_env SHOP_SALT", proof="00ff")
FIRST_OF_MAIL = OutputColumn("short", "mail", FIRST_2)


def test_a_table_that_differs_in_nothing_has_the_sources_definition_under_its_own_name() -> None:
    target = shaped_schema(USERS, AT_SINK, TableShape(), ADDED)
    assert target == replace(USERS, table=AT_SINK)
    assert TablePlan.alike(USERS, AT_SINK, 0) == TablePlan(USERS, target, 0)


def test_a_plan_of_a_table_that_differs_in_nothing_is_stored_as_it_was_before() -> None:
    form = plan_to_json(TablePlan.alike(USERS, AT_SINK, 7))
    assert set(form) == {"schema", "sink_table", "estimated_rows"}
    assert plan_from_json(form, type_of_before_kinds) == TablePlan.alike(USERS, AT_SINK, 7)


def test_a_plan_by_a_unique_key_is_stored_and_read_and_others_are_as_they_were() -> None:
    served = replace(USERS, key_name="by_id")
    plan = TablePlan.alike(served, AT_SINK, 7)
    form = plan_to_json(plan)
    assert form["schema"]["key_name"] == "by_id"
    assert plan_from_json(form, type_of_before_kinds) == plan
    assert "key_name" not in plan_to_json(TablePlan.alike(USERS, AT_SINK, 7))["schema"]
    assert served.fingerprint != USERS.fingerprint


def test_a_plan_with_every_difference_is_stored_and_read() -> None:
    where = AllOf(
        (
            Not(IsNull("age")),
            AnyOf(
                (
                    Comparison("mail", Comparator.UNEQUAL, "x"),
                    Comparison("age", Comparator.AT_LEAST, 18),
                )
            ),
        )
    )
    shape = TableShape(
        columns=(
            OutputColumn("shop", constant=4),
            OutputColumn("number", "id"),
            OutputColumn("m", "mail", FIRST_2),
        ),
        where=where,
        deleted_flag="gone",
        key=("shop", "number"),
    )
    plan = TablePlan(USERS, shaped_schema(USERS, AT_SINK, shape, ADDED), 7, shape)
    assert plan_from_json(plan_to_json(plan), type_of_before_kinds) == plan
    assert sorted(columns_in(where)) == ["age", "age", "mail"]
    raw = TableShape(where=Comparison("mail", Comparator.LESS, b"\xff"))
    assert TableShape.from_json(raw.to_json()) == raw


def test_a_stored_hash_names_its_salt_and_proves_it_and_holds_nothing_of_it() -> None:
    text = "a planted salt of some length"
    keep_salts([Salt("salt_env SHOP_SALT", text)])
    shape = proven(TableShape((OutputColumn("m", "mail", HASH),), others=True))
    stored = json.dumps(shape.to_json())
    assert text not in stored
    assert "planted" not in repr(shape)
    read = TableShape.from_json(json.loads(stored))
    assert read.columns[0].mask is not None
    assert len(read.columns[0].mask.proof) == 32
    assert other_salt(read) == ""
    keep_salts([Salt("salt_env SHOP_SALT", "another salt of some length")])
    assert other_salt(read) == "salt_env SHOP_SALT"
    assert read.is_same_for(USERS, proven(read))
    assert other_salt(proven(read)) == ""


def test_a_mask_of_an_earlier_release_is_read() -> None:
    form = TableShape((FIRST_OF_MAIL,), others=True).to_json()
    before = {"kind": "first", "text": "", "length": 2}
    assert form["columns"][0]["mask"].keys() > before.keys()
    form["columns"][0]["mask"] = before
    assert TableShape.from_json(form).columns[0] == FIRST_OF_MAIL


def test_a_sinks_definition_has_what_is_chosen_under_its_new_names() -> None:
    shape = TableShape(
        columns=(OutputColumn("number", "id"), OutputColumn("address", "mail")), deleted_flag="gone"
    )
    target = shaped_schema(USERS, AT_SINK, shape, ADDED)
    assert [(c.name, c.nullable, c.auto_increment) for c in target.columns] == [
        ("number", False, False),
        ("address", True, False),
        ("gone", False, False),
    ]
    assert target.primary_key == ("number",)
    assert target.unique_keys == ()  # a marked row may hold a value that is taken again
    living = shaped_schema(USERS, AT_SINK, replace(shape, deleted_flag=""), ADDED)
    assert living.unique_keys == (UniqueKey("mail", ("address",)),)


def test_other_columns_come_too_in_the_sources_order_constants_behind_them() -> None:
    shape = TableShape(
        columns=(OutputColumn("shop", constant=1), OutputColumn("m", "mail"), FIRST_OF_MAIL),
        others=True,
        left_out=("age",),
    )
    target = shaped_schema(USERS, AT_SINK, shape, ADDED)
    assert [column.name for column in target.columns] == ["id", "m", "short", "shop", "twice"]
    assert shape.names_of(USERS) == {"id": "id", "mail": "m"}
    assert shape.as_read(USERS).ignored == {"age"}
    chosen = TableShape(columns=(KEY,), where=IsNull("age"))
    assert chosen.as_read(USERS).ignored == {"mail", "twice"}
    assert chosen.named == {"id", "age"}
    more = replace(USERS, columns=(*USERS.columns, Column("more", NUMBER)))
    assert shaped_schema(more, AT_SINK, shape, ADDED).columns[-3].name == "more"
    assert len(shaped_schema(more, AT_SINK, chosen, ADDED).columns) == 1


def test_rows_are_chosen_by_the_sinks_names_or_refused_by_name() -> None:
    shape = TableShape(columns=(OutputColumn("number", "id"), OutputColumn("m", "mail", FIRST_2)))
    plan = TablePlan(USERS, shaped_schema(USERS, AT_SINK, shape, ADDED), 0, shape)
    split = SnapshotSplit(USERS.table, 3, ("id",), USERS.key_kinds, KeyRange())
    chosen = plan.split_at_sink(replace(split, chosen=Interval("id", 1, 9))).chosen
    assert chosen == Interval("number", 1, 9)
    assert plan.chosen_at_sink(KeyList(("id",), ((1,),))) == KeyList(("number",), ((1,),))
    assert plan.chosen_at_sink(None) is None
    for other, words in (
        (Interval("mail", "a", "b"), "does not have the values of mail"),
        (KeyList(("age",), ((1,),)), "does not have the values of age"),
        (Condition("id > 3"), "in the source's words"),
    ):
        with pytest.raises(RefusedError, match=words):
            plan.chosen_at_sink(other)
        assert TablePlan.alike(USERS, AT_SINK, 0).chosen_at_sink(other) == other


def test_a_splits_range_is_over_the_sinks_names() -> None:
    shape = TableShape(columns=(OutputColumn("number", "id"), MAIL))
    plan = TablePlan(USERS, shaped_schema(USERS, AT_SINK, shape, ADDED), 0, shape)
    split = SnapshotSplit(USERS.table, 3, ("id",), USERS.key_kinds, KeyRange((1,), (9,)))
    assert plan.split_at_sink(split) == replace(split, key_columns=("number",))


def test_no_part_of_a_table_is_chosen_at_a_sink_that_has_hashes_of_its_key() -> None:
    shape = TableShape((OutputColumn("number", "id", HASH),), others=True)
    made = shaped_schema(replace(USERS, key_prefixes=(9,)), AT_SINK, shape, ADDED)
    assert (made.primary_key, made.key_prefixes) == (("number",), (0,))
    assert (made.column("number").type, made.column("number").nullable) == (ADDED.digest, False)
    plan = TablePlan(USERS, made, 0, shape)
    assert plan.is_one_split
    whole = SnapshotSplit(USERS.table, 3, ("id",), USERS.key_kinds, KeyRange())
    assert plan.split_at_sink(whole) == replace(whole, key_columns=("number",))
    interval = Interval("age", 1, 9)
    parts = {"keys": KeyRange((1,), None)}, {"chosen": interval}, {"listed": True}
    for part in parts:
        with pytest.raises(RefusedError, match="it has hashes of their keys"):
            plan.split_at_sink(replace(whole, **part))
    with pytest.raises(RefusedError, match="the sink has hashes of its key"):
        plan.require_cuttable()


def test_the_rows_of_a_shard_are_told_from_others_by_the_first_column_of_the_key() -> None:
    shop = OutputColumn("shop", constant="shop_1")
    shape = TableShape((shop,), others=True, shard="shop")
    made = shaped_schema(USERS, AT_SINK, shape, ADDED)
    assert made.primary_key == ("shop", "id")
    assert made.unique_keys == ()
    assert made.column("shop").type == replace(ADDED.text, length=SHARD_LENGTH)
    assert {column.name for column in made.columns if not column.nullable} == {"shop", "id"}
    assert TablePlan(USERS, made, 0, shape).shard == shop
    assert TableShape.from_json(shape.to_json()) == shape
    assert not shape.is_same_for(USERS, replace(shape, shard=""))
    with pytest.raises(ValueError, match="is no column with one value"):
        shaped_schema(USERS, AT_SINK, replace(shape, shard="mail"), ADDED)
    with pytest.raises(ValueError, match="has no key, and cannot share a table"):
        shaped_schema(replace(USERS, primary_key=()), AT_SINK, shape, ADDED)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (TableShape(columns=(MAIL,)), "id of shop.users is in its key"),
        (TableShape(columns=(OutputColumn("id", "id", Mask(MaskKind.NULL)),)), "is in its key"),
        (TableShape(columns=(KEY, OutputColumn("x", "nobody"))), "no column nobody that is copied"),
        (TableShape(columns=(KEY, OutputColumn("x", "twice"))), "no column twice that is copied"),
        (TableShape(columns=(KEY, MAIL, OutputColumn("MAIL", "age"))), "two columns MAIL"),
        (TableShape(deleted_flag="Age"), "two columns Age"),
        (TableShape(where=IsNull("nobody")), "no column nobody"),
        (TableShape(columns=(KEY, OutputColumn("x"))), "comes from a column, or is one constant"),
        (TableShape(columns=(KEY, OutputColumn("x", "age", FIRST_2))), "by SHA-256 or NULL"),
        (
            TableShape(columns=(KEY, OutputColumn("x", mask=FIRST_2, constant=1))),
            "which is not masked",
        ),
        (TableShape(columns=(KEY, OutputColumn("x", constant=1 << 63))), "too great for x"),
        (TableShape(columns=(KEY, OutputColumn("x", constant="y" * 21))), "which takes 20"),
        (
            TableShape(columns=(KEY, OutputColumn("m", "mail", Mask(MaskKind.FIXED, "y" * 21)))),
            "longer than mail of shop.users, which takes 20",
        ),
        (TableShape(left_out=("id",)), "id of shop.users is in its key"),
        (TableShape(columns=(OutputColumn("x", "nobody"),), others=True), "no column nobody"),
        (TableShape(columns=(OutputColumn("twice", "age"),), others=True), "two columns twice"),
        (TableShape(key=("nobody",)), "nobody cannot be in the key"),
        (
            TableShape(columns=(KEY, OutputColumn("m", "mail", FIRST_2)), key=("m",)),
            "m cannot be in the key",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(shape: TableShape, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shaped_schema(USERS, AT_SINK, shape, ADDED)
