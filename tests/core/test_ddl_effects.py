"""A statement of the log is known by its tokens; doubt is never harmless."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.ddl_effects import StatementKind, effect_of
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.sql_tokens import TokenKind, tokens

T = TableId("shop", "orders")
DB = "shop"


@pytest.mark.parametrize(
    ("statement", "kind", "named"),
    [
        ("CREATE TABLE orders (id INT)", StatementKind.CREATE, {"shop.orders"}),
        ("create table if not exists `a``b`.`c d` like x", StatementKind.CREATE, {"a`b.c d"}),
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


@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON UPDATE SET NULL"])
def test_a_new_foreign_key_that_changes_rows_by_itself_is_not_harmless(action: str) -> None:
    """Many servers do not log the rows that a cascade changes."""
    found = effect_of(
        f"ALTER TABLE d.orders ADD CONSTRAINT c FOREIGN KEY (a) REFERENCES b (id) {action}"
    )
    assert not found.harmless
