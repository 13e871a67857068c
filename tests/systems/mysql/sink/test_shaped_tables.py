"""Tables that differ at the sink: made, finished and altered there, from real definitions."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pytest

from airflow_cdc_provider.columns.source_port import FollowsDefinitions, offered
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import RefusedError, TableChangedError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import Comparator, Comparison
from airflow_cdc_provider.core.row_metadata import Operation, RowMetadata, RowStamp
from airflow_cdc_provider.core.schema_changes import Difference, SchemaChange
from airflow_cdc_provider.core.schema_codec import change_from_json, change_to_json
from airflow_cdc_provider.core.table_schema import TableSchema, UniqueKey
from airflow_cdc_provider.core.table_shape import Mask, MaskKind, OutputColumn, TableShape
from airflow_cdc_provider.engine.definitions import difference_between, redefined
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from airflow_cdc_provider.systems.mysql.dialect.table_match import mismatches
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schemas
from airflow_cdc_provider.systems.registry import open_sink, open_source
from tests.behaviours.source_log import at
from tests.servers.given import SqlServer

CUSTOMERS = "CREATE TABLE customers (id INT PRIMARY KEY)"
PEOPLE = """CREATE TABLE people (
  id INT NOT NULL AUTO_INCREMENT, `Full Name` VARCHAR(80) COLLATE utf8mb4_bin NOT NULL DEFAULT 'x',
  mail VARCHAR(120) CHARACTER SET latin1 DEFAULT NULL COMMENT 'the `mail`, of (all)',
  secret VARBINARY(20) NOT NULL, doc JSON, kind ENUM('a','b') NOT NULL DEFAULT 'b',
  at TIMESTAMP(3) NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP(3), age TINYINT UNSIGNED,
  older INT AS (age + 1) STORED, eldest INT AS (older + 1) STORED,
  hidden INT AS (length(secret)) STORED, hidden_too INT AS (hidden + 1) STORED, customer INT,
  PRIMARY KEY (id), UNIQUE KEY mail (mail), UNIQUE KEY secret_name (`Full Name`, secret),
  UNIQUE KEY id (`Full Name`, age), KEY `Full Name` (`Full Name`(10), kind), KEY age (secret, age),
  CONSTRAINT grown CHECK (age < 150), CONSTRAINT kept CHECK (length(secret) < 99),
  CONSTRAINT of_customer FOREIGN KEY (customer) REFERENCES customers (id)) COMMENT 'all (people)'"""
ALL_BUT_SECRET = TableShape(
    columns=(
        OutputColumn("number", "id"),
        OutputColumn("mail", "mail", Mask(MaskKind.FIRST, length=2)),
        OutputColumn("doc", "doc", Mask(MaskKind.NULL)),
        OutputColumn("name", "Full Name"),
        OutputColumn("shop", constant="här"),
        OutputColumn("part", constant=-4),
    ),
    others=True,
    left_out=("secret",),
)
ALL_METADATA = RowMetadata("op", "place", "moment", "origin", "server")
MADE = ["number", "name", "mail", "doc", "kind", "at", "age", "customer", "shop", "part"]


@dataclass
class World:
    """One database of a source, one of a sink that may be of another family."""

    source: SqlServer
    database: str
    sink: SqlServer
    target: str
    owner: Owner = field(
        default_factory=lambda: Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)
    )

    def at_source(self, *statements: str) -> None:
        for statement in statements:
            self.source.execute(statement, database=self.database)

    def definition(self, server: SqlServer, database: str) -> TableSchema:
        table = TableId(database, "people")
        with closing(connect(Endpoint.parse(server.dsn()), purpose="tests")) as connection:
            return read_schemas(connection, [table])[table]

    def made(self) -> TableSchema:
        return self.definition(self.sink, self.target)

    def opened(self) -> Any:
        return open_sink("mysql", Endpoint.parse(self.sink.dsn()), self.owner, ())

    def plan(self, shape: TableShape) -> TablePlan:
        schema = self.definition(self.source, self.database)
        target = self.opened().target_of(schema, TableId(self.target, "people"), shape)
        return TablePlan(schema, target, 0, shape)

    def create(self, plan: TablePlan) -> None:
        with closing(self.opened().open_tables()) as builder:
            assert builder.create_missing([plan]) == {plan.sink_table: True}
            assert builder.create_missing([plan]) == {plan.sink_table: False}

    def finish(self, *plans: TablePlan) -> None:
        with closing(self.opened().open_tables()) as builder:
            assert builder.finish(plans) == ()

    def altered(
        self, before: TablePlan, statement: str, *, is_told: bool = True
    ) -> tuple[TablePlan, Difference]:
        """Alter the source's table; return its plan then, and how the sink's definitions differ."""
        self.at_source(statement)
        after = redefined(before, self.definition(self.source, self.database), self.opened())
        source = open_source(Endpoint.parse(self.source.dsn()))
        definitions = offered(source, FollowsDefinitions)
        effects = [effect_of(statement, default_database=self.database)] if is_told else []
        return after, difference_between(before, after, definitions, effects)

    def follow(self, before: TablePlan, statement: str) -> TablePlan:
        """Alter the source's table, and the sink's as it was."""
        after, found = self.altered(before, statement)
        assert found.refused == ""
        change = SchemaChange(before, after, found, at(1), statement, keeps_dropped=False)
        with closing(self.opened().open_ledger()) as ledger:
            ledger.take_over(1)
        with closing(self.opened().open_tables()) as builder:
            builder.change(change)
            builder.change(change)
        return after


@pytest.fixture(
    params=[
        pytest.param(("mysql_sink", "mysql_sink"), marks=pytest.mark.mysql),
        pytest.param(("mariadb_server", "mariadb_server"), marks=pytest.mark.mariadb),
        pytest.param(
            ("mysql_sink", "mariadb_server"), marks=[pytest.mark.mysql, pytest.mark.mariadb]
        ),
        pytest.param(
            ("mariadb_server", "mysql_sink"), marks=[pytest.mark.mysql, pytest.mark.mariadb]
        ),
    ],
    ids=["mysql", "mariadb", "mysql to mariadb", "mariadb to mysql"],
)
def world(request: pytest.FixtureRequest, fresh_database: Callable[[SqlServer], str]) -> World:
    source, sink = map(request.getfixturevalue, request.param)
    made = World(source, fresh_database(source), sink, fresh_database(sink))
    made.at_source(CUSTOMERS, PEOPLE)
    return made


def names(schema: TableSchema) -> list[str]:
    return [column.name for column in schema.columns]


def test_a_table_is_made_as_its_target_says(world: World) -> None:
    plan = world.plan(ALL_BUT_SECRET)
    assert names(plan.target) == [*MADE, "older", "eldest"]
    world.create(plan)
    made = world.made()
    assert names(made) == names(plan.target)
    assert list(mismatches(plan.target, made)) == []
    world.finish(plan)
    made = world.made()
    assert made.unique_keys == (UniqueKey("id", ("name", "age")),)
    assert (made.primary_key, made.column("number").auto_increment) == (("number",), False)
    assert made.column("mail").type.charset == "latin1"
    for part in ("KEY `Full Name` (`name`(10),`kind`)", "COMMENT='all (people)'"):
        assert part in made.create_statement
    assert ("`age` < 150" in made.create_statement) == (world.source is world.sink)
    for part in ("secret", "kept", "customer` FOREIGN", "KEY `age`"):
        assert part not in made.create_statement
    world.sink.execute(
        "INSERT INTO people (number, name, mail, doc, kind, age, shop, part) "
        "VALUES (1, 'n', 'ma', NULL, 'a', 3, 'x', 1)",
        database=world.target,
    )
    rows = world.sink.execute("SELECT older, eldest FROM people", database=world.target)
    assert list(rows) == [(4, 5)]


def test_a_table_with_another_key_and_a_flag_is_made(world: World) -> None:
    shape = TableShape(
        columns=(OutputColumn("shop", constant="a"), OutputColumn("age", "age")),
        others=True,
        where=Comparison("age", Comparator.GREATER, 3),
        deleted_flag="gone",
        key=("shop", "id", "age"),
        metadata=ALL_METADATA,
    )
    plan = world.plan(shape)
    world.create(plan)
    world.finish(plan)
    made = world.made()
    assert list(mismatches(plan.target, made)) == []
    assert made.primary_key == ("shop", "id", "age")
    assert made.unique_keys == ()
    assert not made.column("age").nullable
    assert not made.column("gone").nullable
    assert [c.name for c in made.columns[-6:]] == ["gone", *ALL_METADATA.named.values()]
    assert [c.name for c in made.columns[-6:] if c.nullable] == ["moment"]


def test_a_truncated_table_is_marked_and_one_with_marks_is_not_made_anew(world: World) -> None:
    plan = world.plan(TableShape(deleted_flag="gone", metadata=ALL_METADATA))
    world.create(plan)
    with closing(world.opened().open_ledger()) as ledger:
        ledger.take_over(1)
    names = "id, secret, gone, op, place, moment, origin, server"
    rows = "(1, '', 0, 'c', 'here', NULL, 't', 's'), (2, '', 1, 'd', 'there', NULL, 't', 's')"
    world.sink.execute(f"INSERT INTO people ({names}) VALUES {rows}", database=world.target)
    stamp = RowStamp(Operation.TRUNCATE, "bin.000009:5", "me", 1_500_000)
    change = SchemaChange(plan, plan, Difference(), at(1), "TRUNCATE", truncates=True, stamp=stamp)
    assert change_from_json(change_to_json(change)) == change
    with closing(world.opened().open_tables()) as builder:
        builder.change(change)
        builder.change(change)
        anew = replace(change, difference=Difference(reread="so", refused="it cannot be"))
        with pytest.raises(RefusedError, match="keeps rows that the source has deleted"):
            builder.change(anew)
    found = world.sink.execute(f"SELECT {names} FROM people ORDER BY id", database=world.target)
    moment = datetime.fromisoformat("1970-01-01 00:00:01.500")
    assert list(found) == [
        (1, b"", 1, "t", "bin.000009:5", moment, str(plan.schema.table), "me"),
        (2, b"", 1, "d", "there", None, "t", "s"),
    ]


@pytest.mark.parametrize(
    ("shape", "key"),
    [
        (ALL_BUT_SECRET, ("number",)),
        (TableShape((OutputColumn("shop", constant="a"),), others=True, key=("shop", "id")), None),
    ],
)
def test_a_table_has_a_primary_key_where_the_source_has_a_unique_one_in_its_place(
    world: World, shape: TableShape, key: tuple[str, ...] | None
) -> None:
    world.at_source(
        "ALTER TABLE people DROP PRIMARY KEY, DROP KEY secret_name, ADD UNIQUE own (id)"
    )
    plan = world.plan(shape)
    assert plan.schema.key_name == "own"
    world.create(plan)
    world.finish(plan)
    made = world.made()
    assert (made.primary_key, made.key_name) == (key or shape.key, "")
    assert "own" not in {each.name for each in made.unique_keys}
    assert list(mismatches(plan.target, made)) == []


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("ALTER TABLE people ADD COLUMN more INT NOT NULL DEFAULT 7", {"more": "int"}),
        ("ALTER TABLE people ADD COLUMN more INT FIRST", {"more": "int"}),
        (
            "ALTER TABLE people MODIFY COLUMN `Full Name` VARCHAR(90) COLLATE utf8mb4_bin NOT NULL",
            {"name": "varchar"},
        ),
        ("ALTER TABLE people CHANGE COLUMN kind sort ENUM('a','b') NOT NULL", {"sort": "enum"}),
        ("ALTER TABLE people DROP COLUMN at", {"at": None}),
        (
            "ALTER TABLE people MODIFY COLUMN id BIGINT NOT NULL AUTO_INCREMENT",
            {"number": "bigint"},
        ),
    ],
)
def test_a_change_of_the_source_is_made_by_the_names_of_the_sink(
    world: World, statement: str, changed: dict[str, str | None]
) -> None:
    before = world.plan(ALL_BUT_SECRET)
    world.create(before)
    after = world.follow(before, statement)
    made = world.made()
    assert sorted(names(made)) == sorted(names(after.target))
    assert list(mismatches(after.target, made)) == []
    for name, kind in changed.items():
        assert (made.column(name).type.name if name in names(made) else None) == kind


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE people MODIFY COLUMN secret VARBINARY(30) NOT NULL",
        "ALTER TABLE people DROP INDEX mail",
        "ALTER TABLE people ADD INDEX more (age)",
    ],
)
def test_a_change_of_what_is_left_out_is_nothing_to_the_sink(world: World, statement: str) -> None:
    before = world.plan(ALL_BUT_SECRET)
    after, found = world.altered(before, statement)
    change = SchemaChange(before, after, found, at(1), statement)
    assert (change.leaves_sink_alone, found.refused) == (True, "")


def test_new_columns_of_a_table_whose_columns_are_chosen_are_not_copied(world: World) -> None:
    shape = TableShape(columns=(OutputColumn("id", "id"), OutputColumn("who", "Full Name")))
    before = world.plan(shape)
    after, found = world.altered(before, "ALTER TABLE people ADD COLUMN who INT DEFAULT 1")
    assert found == Difference()
    assert names(after.target) == ["id", "who"]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("CHANGE COLUMN secret key_of_it VARBINARY(20) NOT NULL", "secret, which is left out"),
        ("MODIFY COLUMN mail VARCHAR(130) CHARACTER SET latin1", "filtered or masked by mail"),
    ],
)
def test_what_the_shape_does_not_answer_is_refused(world: World, statement: str, why: str) -> None:
    keys = "DROP CONSTRAINT kept, DROP INDEX secret_name, DROP INDEX age"
    columns = "DROP COLUMN hidden, DROP COLUMN hidden_too"
    world.at_source(f"ALTER TABLE people {keys}, {columns}")
    before = world.plan(ALL_BUT_SECRET)
    _, found = world.altered(before, f"ALTER TABLE people {statement}")
    assert why in found.refused


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("DROP COLUMN mail", "names its columns mail, which are gone"),
        ("CHANGE COLUMN doc text_of_it JSON", "names its columns doc, which are gone"),
        ("ADD COLUMN shop INT", "would have two columns shop"),
    ],
)
def test_a_definition_that_the_shape_does_not_fit_is_refused_by_name(
    world: World, statement: str, why: str
) -> None:
    before = world.plan(ALL_BUT_SECRET)
    with pytest.raises(TableChangedError, match=why):
        world.altered(before, f"ALTER TABLE people {statement}")


def test_a_column_that_trades_its_name_with_one_that_is_masked_is_refused(world: World) -> None:
    before = world.plan(ALL_BUT_SECRET)
    statement = (
        "ALTER TABLE people CHANGE COLUMN mail old_mail VARCHAR(120) CHARACTER SET latin1, "
        "ADD COLUMN mail VARCHAR(120) CHARACTER SET latin1"
    )
    _, found = world.altered(before, statement)
    assert "names its columns mail, which are called otherwise" in found.refused


TAKES = [
    "RENAME COLUMN secret TO plain, RENAME COLUMN plain TO secret",
    "DROP COLUMN plain, RENAME COLUMN secret TO plain",
    "DROP COLUMN secret, RENAME COLUMN plain TO secret",
    "RENAME COLUMN secret TO other, ADD COLUMN secret VARBINARY(20) NOT NULL",
    "RENAME COLUMN secret TO mail, RENAME COLUMN mail TO secret",
]


@pytest.fixture
def plain(world: World) -> World:
    """Give the people a column like the one that is left out, and nothing over that."""
    keys = "DROP CONSTRAINT kept, DROP INDEX secret_name, DROP INDEX age, DROP INDEX mail"
    columns = "DROP COLUMN hidden, DROP COLUMN hidden_too"
    mail = "MODIFY COLUMN mail VARBINARY(20) NOT NULL, ADD COLUMN plain VARBINARY(20) NOT NULL"
    world.at_source(f"ALTER TABLE people {keys}, {columns}", f"ALTER TABLE people {mail}")
    return world


@pytest.mark.parametrize("statement", TAKES)
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
def test_a_column_that_is_left_out_and_a_copied_one_never_take_each_others_names(
    plain: World, statement: str, *, is_told: bool
) -> None:
    before = plain.plan(ALL_BUT_SECRET)
    _, found = plain.altered(before, f"ALTER TABLE people {statement}", is_told=is_told)
    assert "left out" in found.refused


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "untold"])
def test_a_column_that_was_not_chosen_never_takes_the_name_of_one_that_is(
    plain: World, *, is_told: bool
) -> None:
    shape = TableShape(columns=(OutputColumn("id", "id"), OutputColumn("plain", "plain")))
    before = plain.plan(shape)
    statement = f"ALTER TABLE people {TAKES[0]}"
    _, found = plain.altered(before, statement, is_told=is_told)
    assert "left out" in found.refused


def test_a_masked_column_never_trades_its_name_where_no_statement_tells(plain: World) -> None:
    plain.at_source("ALTER TABLE people DROP COLUMN secret")
    shape = TableShape((OutputColumn("mail", "mail", Mask(MaskKind.FIRST, length=2)),), others=True)
    before = plain.plan(shape)
    statement = "ALTER TABLE people RENAME COLUMN mail TO plain, RENAME COLUMN plain TO mail"
    _, found = plain.altered(before, statement, is_told=False)
    assert "masked" in found.refused


def test_columns_that_come_behind_all_others_take_no_names(plain: World) -> None:
    before = plain.plan(ALL_BUT_SECRET)
    statement = "ALTER TABLE people ADD COLUMN more INT, MODIFY COLUMN age SMALLINT UNSIGNED"
    _, found = plain.altered(before, statement, is_told=False)
    assert (found.added, found.refused) == (("more",), "")


@pytest.mark.parametrize("name", ["x" * 65, "blank ", "", "nul\0", "\U0001f600"])
def test_a_name_that_no_column_can_have_is_refused(world: World, name: str) -> None:
    for output in (OutputColumn(name, "age"), OutputColumn(name, constant=1)):
        with pytest.raises(ValueError, match=r"is no name of a column"):
            world.plan(TableShape((output,), others=True))
    world.create(world.plan(TableShape((OutputColumn("y" * 64, "age"),), others=True)))
