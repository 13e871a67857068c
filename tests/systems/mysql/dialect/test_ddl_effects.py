"""A statement of the log is known by its tokens; doubt is never harmless."""

from __future__ import annotations

import json

import pytest

from airflow_cdc_provider.core.codec import effect_from_json, effect_to_json
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.statement_effect import ColumnStep, StatementKind, StepKind
from airflow_cdc_provider.core.table_schema import Column, TableSchema, UniqueKey
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.ddl_effects import effect_of
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import TokenKind, tokens

T = TableId("shop", "orders")
DB = "shop"


@pytest.mark.parametrize(
    ("statement", "kind", "named"),
    [
        ("CREATE TABLE orders (id INT)", StatementKind.CREATE, {"shop.orders"}),
        ("create table `a``b`.`c d` like x", StatementKind.CREATE, {"a`b.c d"}),
        ("/*!50100 CREATE */ TABLE /* x */ t -- end\n (a INT)", StatementKind.CREATE, {"shop.t"}),
        ("CREATE TABLE 1a.2b (x INT)", StatementKind.CREATE, {"1a.2b"}),
        ("CREATE TABLE x SELECT 1", StatementKind.CREATE, {"shop.x"}),
        ("ALTER TABLE x.y ADD COLUMN a INT", StatementKind.ALTER, {"x.y"}),
        ("ALTER ONLINE TABLE t WAIT 5 ADD a INT", StatementKind.ALTER, {"shop.t"}),
        ("SET STATEMENT a=1 FOR ALTER TABLE t DROP c", StatementKind.ALTER, {"shop.t"}),
        ("CREATE UNIQUE INDEX `on` ON x.t (a)", StatementKind.ALTER, {"x.t"}),
        ("DROP INDEX i ON t", StatementKind.ALTER, {"shop.t"}),
        ("DROP TABLE IF EXISTS `a`, b.c /* by server */", StatementKind.DROP, {"shop.a", "b.c"}),
        ("TRUNCATE t", StatementKind.TRUNCATE, {"shop.t"}),
        ("INSERT INTO x.t VALUES (1)", StatementKind.ROWS, {"x.t"}),
        ("DELETE FROM t WHERE a = 'JOIN'", StatementKind.ROWS, {"shop.t"}),
    ],
)
def test_statements_name_their_tables(statement: str, kind: StatementKind, named: set[str]) -> None:
    found = effect_of(statement, default_database=DB)
    assert (found.kind, {str(table) for table in found.tables}) == (kind, named)
    assert not found.harmless


@pytest.mark.parametrize(
    "statement",
    [
        "BEGIN",
        "XA START 'x'",
        "ANALYZE TABLE orders",
        "GRANT SELECT ON shop.orders TO x",
        "CREATE DEFINER=`r`@`%` TRIGGER orders BEFORE INSERT ON orders FOR EACH ROW SET @a = 1",
        "CREATE DEFINER=current_user() VIEW v AS SELECT * FROM orders",
        "DROP VIEW orders",
        "CREATE TEMPORARY TABLE orders (id INT)",
        "DROP TEMPORARY TABLE orders",
        "CREATE INDEX i ON orders (a)",
        "ALTER TABLE orders ADD INDEX i (a, b), ALGORITHM=INPLACE, LOCK=NONE",
        "ALTER TABLE orders ADD CONSTRAINT c FOREIGN KEY (a) REFERENCES b (`unique`)",
        "ALTER TABLE orders ADD INDEX i ((CAST(j->'$[*]' AS CHAR(9) CHARACTER SET ascii ARRAY)))",
        "ALTER TABLE orders COMMENT 'it''s, ADD COLUMN x INT'",
        "ALTER TABLE orders ENGINE=InnoDB",
        "ALTER TABLE orders ADD PARTITION (PARTITION p VALUES LESS THAN (3))",
        "CREATE DATABASE other",
        "# Dum",
        "",
    ],
)
def test_what_leaves_rows_and_columns_alone_is_harmless(statement: str) -> None:
    found = effect_of(statement, default_database=DB)
    assert found.harmless
    assert not found.concerns(T)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders ADD UNIQUE KEY (a)",
        "ALTER TABLE orders ADD CONSTRAINT c UNIQUE (a)",
        "ALTER TABLE orders ADD INDEX (a), ADD COLUMN b INT",
        "ALTER TABLE orders ADD `index` INT",
        "ALTER TABLE orders DROP INDEX i",
        "ALTER TABLE orders MODIFY a BIGINT",
        "ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE orders ENGINE=MyISAM",
        "ALTER TABLE orders RENAME COLUMN a TO b",
        "ALTER TABLE other RENAME TO orders",
        "ALTER TABLE other RENAME orders",
        "ALTER TABLE other EXCHANGE PARTITION p WITH TABLE orders",
        "ALTER TABLE other CONVERT TABLE orders TO PARTITION p VALUES LESS THAN (3)",
        "ALTER TABLE other CONVERT PARTITION p TO TABLE orders",
        "RENAME TABLE a TO b, orders TO c",
        "RENAME TABLE a TO orders",
        "DROP DATABASE shop",
        "UPDATE a JOIN orders SET a.x = 1",
        "INSERT INTO a SELECT * FROM b",
        "INSERT INTO other.t VALUES (1)",
        "DELETE FROM other.parents WHERE id = 2",
        "INSERT INTO mysql.x VALUES (1), (2) ON DUPLICATE KEY UPDATE a = (SELECT f())",
        "LOAD DATA INFILE 'x' INTO TABLE y",
        "FROBNICATE everything",
        "ALTER SOMETHING new",
        "CREATE SOMETHING new",
    ],
)
def test_what_may_change_a_table_concerns_it(statement: str) -> None:
    assert effect_of(statement, default_database=DB).concerns(T)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders DROP PARTITION p",
        "ALTER TABLE orders TRUNCATE PARTITION p",
        "ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE x",
        "ALTER TABLE orders IMPORT TABLESPACE",
        "TRUNCATE orders",
    ],
)
def test_rows_that_change_without_row_events_are_told(statement: str) -> None:
    assert effect_of(statement, default_database=DB).unlogged_rows


def test_another_table_is_not_concerned() -> None:
    assert not effect_of("ALTER TABLE orders2 ADD a INT", default_database=DB).concerns(T)
    assert not effect_of("ALTER TABLE orders ADD a INT", default_database="x").concerns(T)
    assert not effect_of("DROP DATABASE shop2").concerns(T)
    assert not effect_of("TRUNCATE TABLE shop.other").concerns(T)


def test_a_hosted_servers_heartbeat_concerns_no_table() -> None:
    beat = "INSERT INTO mysql.heartbeat (id, value) VALUES (1, 2) ON DUPLICATE KEY UPDATE value = 2"
    assert not effect_of(beat).concerns(T)


def test_case_counts_only_where_the_server_says_so() -> None:
    found = effect_of("DROP TABLE Shop.Orders")
    assert not found.concerns(T)
    assert found.concerns(T, ignore_case=True)


def test_renames_are_told_in_order() -> None:
    found = effect_of("RENAME TABLE a TO tmp, b TO a, tmp TO b", default_database=DB)
    assert [(old.table, new.table) for old, new in found.renames] == [
        ("a", "tmp"),
        ("b", "a"),
        ("tmp", "b"),
    ]


def test_double_quotes_hold_names_only_under_ansi_quotes() -> None:
    statement = 'ALTER TABLE "orders" ADD a INT'
    assert effect_of(statement, default_database=DB, ansi_quotes=True).tables == (T,)
    assert effect_of(statement, default_database=DB).kind is StatementKind.UNKNOWN


def test_strings_end_where_the_server_ends_them() -> None:
    text = r"""SELECT 'a\'b', 'c''d', `e``f`, "x" """
    assert [t.text for t in tokens(text) if t.kind is not TokenKind.MARK] == [
        "SELECT",
        r"a\'b",
        "c'd",
        "e`f",
        "x",
    ]


@pytest.mark.parametrize(
    "action", ["ON DELETE CASCADE", "ON UPDATE SET NULL", "on delete restrict on update\tcascade"]
)
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE d.orders ADD CONSTRAINT c FOREIGN KEY (a) REFERENCES b (id) {}",
        "ALTER TABLE d.orders ADD KEY (z), ADD FOREIGN KEY IF NOT EXISTS (a) REFERENCES b (id) {}",
        "ALTER TABLE d.orders ADD COLUMN a INT REFERENCES b (id) {}",
        "ALTER TABLE d.orders ADD (z INT, FOREIGN KEY (a) REFERENCES b (id) {})",
        "ALTER TABLE d.orders /*!ADD FOREIGN KEY (a) REFERENCES b (id) {}*/",
    ],
)
def test_a_new_foreign_key_that_changes_rows_by_itself_is_told(statement: str, action: str) -> None:
    """Many servers do not log the rows that a cascade changes."""
    found = effect_of(statement.format(action))
    assert found.cascades
    assert not found.harmless


@pytest.mark.parametrize(
    "clause",
    [
        "ADD FOREIGN KEY (a) REFERENCES b (id) ON DELETE RESTRICT ON UPDATE NO ACTION",
        "ADD COLUMN a TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
        "DROP COLUMN a CASCADE",
        "COMMENT 'REFERENCES b (id) ON DELETE CASCADE'",
    ],
)
def test_what_leaves_rows_to_others_is_no_cascade(clause: str) -> None:
    assert not effect_of(f"ALTER TABLE d.orders {clause}").cascades


def test_a_new_table_whose_foreign_key_changes_its_rows_does_not_get_them_by_the_log_alone() -> (
    None
):
    statement = "CREATE TABLE d.orders (a INT, FOREIGN KEY (a) REFERENCES b (id) ON DELETE {})"
    assert effect_of(statement.format("RESTRICT")).creates
    assert not effect_of(statement.format("CASCADE")).creates


INT = mysql_type("int")
PLANNED = TableSchema(
    T,
    (Column("id", INT, nullable=False), Column("a", INT)),
    ("id",),
    (0,),
    (UniqueKey("Uniq", ("a",)), UniqueKey("éa", ("a",))),
)
PASSED = [
    "ALTER TABLE orders REBUILD PARTITION p0, p1",
    "ALTER TABLE orders ANALYZE PARTITION p0, `p1`",
    "ALTER TABLE orders REORGANIZE PARTITION p0, p1 INTO (PARTITION p2 VALUES LESS THAN (9), "
    "PARTITION p3 VALUES LESS THAN MAXVALUE)",
    "ALTER TABLE orders ORDER BY a, id DESC, ALGORITHM=COPY",
    "CREATE TABLE IF NOT EXISTS orders (id INT)",
    "CREATE TABLE IF NOT EXISTS Orders LIKE x",
    "CREATE TABLE IF NOT EXISTS orders (id INT) PARTITION BY LIST (id) (PARTITION p VALUES IN (1))",
    "DROP INDEX i ON orders",
    "DROP INDEX IF EXISTS `i` ON orders ALGORITHM=INPLACE LOCK=NONE",
    "DROP INDEX `on` ON orders",
    "CREATE OR REPLACE INDEX i ON orders (a)",
    "ALTER TABLE orders DROP INDEX i",
    "ALTER TABLE orders DROP KEY IF EXISTS i, ADD INDEX j (a)",
    "ALTER TABLE orders RENAME INDEX i TO j",
    "ALTER TABLE orders ALTER a SET DEFAULT 5",
    "ALTER TABLE orders ALTER COLUMN a SET DEFAULT (1 + 2), ALTER `b` DROP DEFAULT",
    "ALTER TABLE orders ALTER CHECK c NOT ENFORCED",
    "ALTER TABLE orders DROP CHECK c",
    "ALTER TABLE orders DROP CONSTRAINT c",
    "ALTER TABLE orders DROP CONSTRAINT IF EXISTS c",
    "ALTER TABLE orders DROP FOREIGN KEY uniq",
    "ALTER TABLE orders DEFAULT CHARACTER SET utf8mb4",
    "ALTER TABLE orders CHARACTER SET = utf8mb4 COLLATE = utf8mb4_bin COMMENT ''",
    "ALTER TABLE orders CHARSET utf8mb4, COLLATE utf8mb4_bin",
    "ALTER TABLE orders SECONDARY_ENGINE=NULL",
    "ALTER TABLE orders ENGINE=InnoDB ROW_FORMAT=DYNAMIC STATS_PERSISTENT=DEFAULT",
    "ALTER TABLE orders COMMENT='x' PARTITION BY HASH (id) PARTITIONS 4",
    "ALTER TABLE orders REMOVE PARTITIONING",
    "ALTER TABLE orders /*!50100 PARTITION BY HASH (id) */",
    "/*!40000 ALTER TABLE orders DISABLE KEYS */",
    "ALTER TABLE orders",
]
STOPPED = [
    "ALTER TABLE orders DROP PARTITION p0, p1",
    "ALTER TABLE orders TRUNCATE PARTITION p0, p1",
    "ALTER TABLE orders ORDER BY a, DROP id",
    "ALTER TABLE orders REBUILD PARTITION p0, DROP COLUMN a",
    "CREATE OR REPLACE TABLE orders (id INT)",
    "CREATE TABLE orders (id INT)",
    "CREATE TABLE IF NOT EXISTS orders SELECT 1",
    "CREATE TABLE IF NOT EXISTS orders (id INT) TABLE x",
    "CREATE TABLE IF NOT EXISTS orders (id INT) VALUES ROW(1)",
    "DROP INDEX uniq ON orders",
    "DROP INDEX UNIQ ON orders",
    "DROP INDEX ÉA ON orders",
    "DROP INDEX `PRIMARY` ON orders",
    "DROP INDEX i uniq ON orders",
    "CREATE OR REPLACE INDEX uniq ON orders (a)",
    "CREATE OR REPLACE UNIQUE INDEX i ON orders (a)",
    "ALTER TABLE orders DROP INDEX i, DROP KEY uniq",
    "ALTER TABLE orders DROP CONSTRAINT uniq",
    "ALTER TABLE orders DROP CONSTRAINT `primary`",
    "ALTER TABLE orders DROP PRIMARY KEY",
    "ALTER TABLE orders DROP a",
    "ALTER TABLE orders DROP `index`",
    "ALTER TABLE orders DROP partitioning",
    "ALTER TABLE orders DROP INDEX i, DROP COLUMN a",
    "ALTER TABLE orders RENAME INDEX uniq TO i",
    "ALTER TABLE orders ALTER a SET DEFAULT 5, MODIFY a BIGINT",
    "ALTER TABLE orders ALTER a SET INVISIBLE",
    "ALTER TABLE orders DEFAULT CHARACTER SET utf8mb4, CONVERT TO CHARACTER SET utf8mb4",
    "ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4",
    "ALTER TABLE orders COMMENT='x' ENGINE=BLACKHOLE",
    "ALTER TABLE orders ADD (INDEX k (a), b INT)",
    "ALTER IGNORE TABLE orders PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (5))",
    "ALTER TABLE orders DROP PARTITION p",
    "ALTER TABLE orders ADD FOREIGN KEY (a) REFERENCES b (c) ON DELETE CASCADE",
    "ALTER TABLE orders DROP /*!99999 INDEX */ a",
    "ALTER TABLE orders /*M! COMMENT='x', */ DROP a",
    "TRUNCATE /*M! elsewhere. */ orders",
    "DROP TABLE IF EXISTS elsewhere.x, orders",
]


@pytest.mark.parametrize("statement", PASSED)
def test_what_drops_or_changes_nothing_that_is_copied_changes_no_table(statement: str) -> None:
    assert not effect_of(statement, default_database=DB).changes(PLANNED, ignore_case=True)


@pytest.mark.parametrize("statement", STOPPED)
def test_what_may_touch_rows_columns_or_unique_keys_changes_the_table(statement: str) -> None:
    assert effect_of(statement, default_database=DB).changes(PLANNED, ignore_case=True)


@pytest.mark.parametrize("space", ["\u00a0", "\u3000", "\u2003", "\u0085"])
def test_a_blank_beyond_ascii_is_a_letter_too(space: str) -> None:
    named = TableSchema(TableId(DB, f"{space}b"), (Column("id", INT, nullable=False),), ("id",))
    found = effect_of(f"TRUNCATE TABLE {DB}.{space}b", default_database=DB)
    assert found.changes(named)
    assert effect_of(f"TRUNCATE{space}TABLE{space}orders", default_database=DB).changes(PLANNED)


def test_a_table_that_only_some_servers_take_for_temporary_is_dropped() -> None:
    """Servers before 5.7 know no other family: all execute what is written for them."""
    dropped = "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `orders`"
    assert not effect_of(dropped, default_database=DB).changes(PLANNED)
    for mark in ("/*M!", "/*!80000", "/*!50700"):
        doubtful = effect_of(f"DROP {mark} TEMPORARY */ TABLE orders", default_database=DB)
        assert doubtful.changes(PLANNED)


def test_a_check_is_more_than_a_check_where_it_makes_a_text_json() -> None:
    text = mysql_type("longtext", charset="utf8mb4", collation="utf8mb4_bin", is_json_text=True)
    schema = TableSchema(T, (Column("id", INT, nullable=False), Column("j", text)), ("id",))
    dropped = effect_of("ALTER TABLE orders DROP CONSTRAINT j", default_database=DB)
    assert dropped.changes(schema)
    assert not dropped.changes(PLANNED)
    assert not effect_of("DROP INDEX j ON orders", default_database=DB).changes(schema)


def test_a_triggers_comments_do_not_make_it_another_statement() -> None:
    dumped = "CREATE /*!50017 DEFINER=`a`@`%`*/ /*!50003 TRIGGER x AFTER INSERT ON t FOR EACH ROW "
    found = effect_of(dumped + "SET @a = 1 */", default_database=DB)
    assert found.harmless
    assert found.tables == (TableId(DB, "t"),)


ADD, DROP, DEFINE, RENAME = StepKind
TOLD = {
    "ADD a INT": [ColumnStep(ADD, "a")],
    "ADD COLUMN `first` INT FIRST": [ColumnStep(ADD, "first", after="")],
    "ADD a INT DEFAULT (b), ADD c INT COMMENT 'x AFTER y' AFTER `d e`": [
        ColumnStep(ADD, "a"),
        ColumnStep(ADD, "c", after="d e"),
    ],
    "ADD (a INT, UNIQUE (a), b DECIMAL(9, 2)), ADD KEY (a), ADD CONSTRAINT c CHECK (a > 1)": [
        ColumnStep(ADD, "a"),
        ColumnStep(ADD, "b"),
    ],
    "DROP a, DROP COLUMN b CASCADE, DROP INDEX c, DROP FOREIGN KEY d": [
        ColumnStep(DROP, "a"),
        ColumnStep(DROP, "b"),
    ],
    "MODIFY a INT AFTER first, CHANGE b c TEXT FIRST, ALTER d SET DEFAULT 5": [
        ColumnStep(DEFINE, "a", after="first"),
        ColumnStep(DEFINE, "b", "c", after=""),
        ColumnStep(DEFINE, "d"),
    ],
    "RENAME COLUMN a TO b, RENAME KEY c TO d, ALGORITHM=INPLACE, LOCK=NONE": [
        ColumnStep(RENAME, "a", "b")
    ],
    "COMMENT = 'DROP a'": [],
}
UNTOLD = [
    *(
        "ADD COLUMN IF NOT EXISTS a INT",
        "DROP COLUMN IF EXISTS a",
        "CONVERT TO CHARACTER SET utf8mb4",
    ),
    *("ADD a INT AFTER b PARTITION BY HASH (a)", "ADD a INT AFTER b COMMENT 'x'"),
    *(
        "ADD PERIOD FOR p (a, b)",
        "DROP SYSTEM VERSIONING",
        "DROP PARTITION p",
        "ADD (a INT) COMMENT 'x'",
    ),
    *(
        "TRUNCATE PARTITION p",
        "ADD a INT /*!80023 , ADD b INT */",
        "MODIFY t.a INT",
        "FROBNICATE a",
    ),
]


@pytest.mark.parametrize("clauses", TOLD)
def test_what_is_done_to_columns_is_told_in_order(clauses: str) -> None:
    assert effect_of(f"ALTER TABLE t {clauses}").column_steps == tuple(TOLD[clauses])


@pytest.mark.parametrize("clauses", UNTOLD)
def test_what_the_text_does_not_tell_of_columns_is_not_told(clauses: str) -> None:
    assert effect_of(f"ALTER TABLE t {clauses}").column_steps is None


def test_statements_about_indexes_do_nothing_to_columns() -> None:
    unique = effect_of("CREATE UNIQUE INDEX i ON t (a)")
    assert (unique.column_steps, unique.unique_keys) == ((), True)
    plain = effect_of("CREATE INDEX i ON t (a)")
    assert (plain.column_steps, plain.unique_keys) == ((), False)
    assert effect_of("DROP INDEX i ON t").unique_keys


def test_steps_are_the_same_behind_their_json_form() -> None:
    for clauses in [*TOLD, *UNTOLD]:
        effect = effect_of(f"ALTER TABLE t {clauses}")
        assert effect_from_json(json.loads(json.dumps(effect_to_json(effect)))) == effect


@pytest.mark.parametrize(
    ("sql", "creates"),
    [
        ("CREATE TABLE orders (id INT)", True),
        ("CREATE TABLE orders LIKE others", True),
        ("CREATE OR REPLACE TABLE orders (id INT)", False),
        ("CREATE /*M! OR REPLACE */ TABLE orders (id INT)", False),
        ("CREATE TABLE IF NOT EXISTS orders SELECT 1", False),
        ("ALTER TABLE orders ADD note INT", False),
    ],
)
def test_only_a_plain_create_makes_a_table_that_was_not_there(sql: str, creates: bool) -> None:
    assert effect_of(sql, default_database=DB).creates is creates
