"""Tables without a primary key are copied by the unique key that the pipeline file names."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from airflow_cdc_provider.core.errors import CdcError, PipelineFileError, TablesStoppedError
from airflow_cdc_provider.core.findings import PipelineCode
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.run import give_back
from airflow_cdc_provider.pipeline.steps import small_work
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.estimating import estimate
from airflow_cdc_provider.pipeline.steps.planning import plan
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.beside import beside
from tests.pipeline.altered_tables import catch_up, change
from tests.pipeline.conftest import Shop
from tests.servers.given import SqlServer

COLUMNS = """(code INT NOT NULL, id INT NOT NULL, free INT, n INT,
  UNIQUE by_code (code), UNIQUE by_free (free), UNIQUE by_id (id))"""
"""The server stores the rows by `by_code`."""
ROWS = "(10, 1, 100, 1), (20, 2, NULL, 2), (30, 3, 300, 3), (40, 4, NULL, 4)"
SPLIT = {
    "plain": (
        "by_id",
        "code INT NOT NULL, id INT NOT NULL, n INT, UNIQUE u (code), UNIQUE by_id (id)",
    ),
    "two_orders": (
        "second",
        "code INT NOT NULL, id INT NOT NULL, n INT, UNIQUE first (id, code), "
        "UNIQUE second (code, id), KEY (id)",
    ),
    "words": (
        "by_word",
        "code INT NOT NULL, id INT NOT NULL, n INT, part VARCHAR(20) COLLATE utf8mb4_unicode_ci "
        "NOT NULL DEFAULT 'Ab', UNIQUE u (code), UNIQUE by_word (part, id)",
    ),
}
"""The keys and definitions of tables that are cut into splits."""
ROWS_SPLIT = 300
WRITES = (
    "UPDATE t SET n = n + 1, free = NULL WHERE id = 1",
    "UPDATE t SET code = code + 1",
    "UPDATE t SET id = id + 100 WHERE code = 31",
    "DELETE FROM t WHERE id = 2",
    "INSERT INTO t (code, id, n) VALUES (80, 8, 8)",
)
AFTERWARDS = (
    "UPDATE t SET n = -n",
    "UPDATE t SET code = code + 1",
    "DELETE FROM t WHERE code > 70",
)
FOLLOWED = {
    "dropped_other": ["ALTER TABLE t DROP INDEX by_code"],
    "other_with_null": ["ALTER TABLE t MODIFY code INT"],
    "renamed_other": ["ALTER TABLE t RENAME INDEX by_code TO zz"],
    "other_before": ["ALTER TABLE t ADD more INT NOT NULL AUTO_INCREMENT UNIQUE FIRST"],
    "renamed_column": ["ALTER TABLE t CHANGE id number INT NOT NULL"],
    "wider": ["ALTER TABLE t MODIFY id BIGINT NOT NULL"],
    "primary_added": ["ALTER TABLE t ADD PRIMARY KEY (id)"],
    "primary_instead": ["ALTER TABLE t DROP INDEX by_id, ADD PRIMARY KEY (id)"],
}
STOPPED = {
    "dropped": ["ALTER TABLE t DROP INDEX by_id"],
    "renamed": ["ALTER TABLE t RENAME INDEX by_id TO zz"],
    "with_null": ["ALTER TABLE t MODIFY id INT"],
    "wide": ["ALTER TABLE t DROP INDEX by_id, ADD UNIQUE by_id (id, code)"],
    "prefix": [
        "ALTER TABLE t DROP INDEX by_id, MODIFY id VARCHAR(9) NOT NULL, ADD UNIQUE by_id (id(5))"
    ],
    "not_unique": ["ALTER TABLE t DROP INDEX by_id, ADD INDEX by_id (id)"],
    "other_primary": ["ALTER TABLE t ADD PRIMARY KEY (code)"],
    "replaced": [
        "CREATE TABLE t_new (code INT NOT NULL, id INT NOT NULL, free INT, n INT, UNIQUE u (id))",
        "RENAME TABLE t TO t_del, t_new TO t",
        "DROP TABLE t_del",
    ],
}
NAMED_ANEW = {"renamed": "key: zz", "wide": "key: by_id"}
"""What is named for a table that stopped; nothing for the others."""
CHANGED = "its key is another one now"
MISFITS = {
    "a": (COLUMNS.replace("UNIQUE by_code", "PRIMARY KEY"), "by its primary key (code), and by"),
    "b": (COLUMNS.replace("by_id", "by_it"), "no unique key by_id (by_code, by_it could be named)"),
    "c": (COLUMNS.replace("id INT NOT NULL", "id INT"), "column id, which may be NULL (by_code"),
}


def name_keys(shop: Shop, **said: str) -> None:
    """Write a section for each of these tables, in the place of all that are there."""
    text = shop.path.read_text().partition("tables:\n  ")[0].rstrip("\n")
    lines = [f'  "{shop.database}.{table}": {{{each}}}\n' for table, each in said.items()]
    shop.path.write_text(f"{text}\ntables:\n{''.join(lines)}" if lines else f"{text}\n")


def begin(shop: Shop, *tables: str) -> None:
    """Make tables, with a section for each."""
    for table in tables:
        shop.at_source(f"CREATE TABLE {table} {COLUMNS}")
        shop.at_source(f"INSERT INTO {table} VALUES {ROWS}")
    name_keys(shop, **dict.fromkeys(tables, "key: by_id"))


def alter(shop: Shop, table: str, statements: Iterable[str]) -> None:
    """Run statements of `t` on a table, by the present name of its key's column."""
    for each in statements:
        names = {
            r[0] for r in shop.source.execute(f"SHOW COLUMNS FROM {table}", database=shop.database)
        }
        text = re.sub(r"\bt(?=\b|_)", table, each)
        if "number" in names:
            text = re.sub(r"\bid\b", "number", text)
        change(shop, "orders", [text])


def unlike(shop: Shop, tables: Iterable[str]) -> list[str]:
    """Return the tables whose rows are not the source's."""
    return [table for table in tables if not is_like(shop, table)]


def is_like(shop: Shop, table: str) -> bool:
    columns = shop.source.execute(f"SHOW COLUMNS FROM {table}", database=shop.database)
    query = f"SELECT {', '.join(f'HEX({row[0]})' for row in columns)} FROM {table}"
    at_source = shop.source.execute(query, database=shop.database)
    return Counter(shop.sink_rows(query)) == Counter(at_source)


def key_at_sink(shop: Shop, table: str) -> list[object]:
    rows = shop.sink_rows(f"SHOW INDEX FROM {table} WHERE key_name = 'PRIMARY'")
    return [row[4] for row in rows]


def warnings(shop: Shop) -> list[str]:
    """Return what is warned of tables that the file does not fit."""
    found = check(shop.run()).findings
    return [each.observed for each in found if each.code == PipelineCode.TABLE_COLUMNS]


def reset(shop: Shop, tables: Iterable[str]) -> None:
    """Have tables begin again, in new ones at the sink."""
    for table in tables:
        shop.sink.execute(f"DROP TABLE {table}", database=shop.target)
    reset_tables(shop.run(), [TableId(shop.database, table) for table in tables])


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stream here however much log is left."""
    monkeypatch.setattr(small_work, "_log_left", lambda _: "all")


class NamedKeys:
    def test_rows_arrive_in_splits_whatever_is_written_and_are_read_again(self, shop: Shop) -> None:
        with shop.path.open("a") as file:
            file.write("snapshot: {split_rows: 40}\n")
        name_keys(shop, **{table: f"key: {key}" for table, (key, _) in SPLIT.items()})
        with closing(shop.source.connect(database=shop.database)) as connection:
            for table, (_, definition) in SPLIT.items():
                connection.cursor().execute(f"CREATE TABLE {table} ({definition})")
                rows = ", ".join(f"({1000 - n}, {n}, {n})" for n in range(ROWS_SPLIT))
                connection.cursor().execute(f"INSERT INTO {table} (code, id, n) VALUES {rows}")
            connection.commit()
            seed = random.randrange(1 << 32)
            print(f"writer's seed: {seed}")
            rng, cursor = random.Random(seed), connection.cursor()

            def write() -> None:
                table = rng.choice([*SPLIT])
                one, other = rng.randrange(ROWS_SPLIT), rng.randrange(ROWS_SPLIT)
                # two rows trade the values of one key, and so keep those of the other
                for column in rng.sample(["code", "id"], 2):
                    pair = f"WHERE id IN ({one}, {other})"
                    cursor.execute(f"SELECT id, code FROM {table} {pair}")
                    found = dict(cursor.fetchall())
                    if len(found) < 2:
                        continue
                    values = {"id": (one, other), "code": (found[one], found[other])}[column]
                    for was, now in ((0, -1), (1, values[0]), (-1, values[1])):
                        at = values[was] if was >= 0 else -1
                        cursor.execute(f"UPDATE {table} SET {column} = {now} WHERE {column} = {at}")
                cursor.execute(f"UPDATE {table} SET n = n + 1 WHERE id = {one}")
                cursor.execute(f"UPDATE {table} SET code = code + 2000 WHERE id = {other}")
                cursor.execute(f"UPDATE {table} SET id = id + 5000 WHERE id = {rng.randrange(999)}")
                cursor.execute(f"DELETE FROM {table} WHERE id = {rng.randrange(9999)}")
                connection.commit()

            with beside(write):
                catch_up(shop)
                catch_up(shop)
            catch_up(shop)
            assert unlike(shop, SPLIT) == []
            assert [key_at_sink(shop, table) for table in SPLIT] == [
                ["id"],
                ["code", "id"],
                ["part", "id"],
            ]
            run = shop.run()
            splits = [each.split.table.table for each in run.store.splits(run.name)]
            assert all(splits.count(table) > 5 for table in SPLIT)
            for table in SPLIT:
                shop.sink.execute(f"DELETE FROM {table} WHERE id % 7 = 3", database=shop.target)
                shop.sink.execute(f"UPDATE {table} SET n = -1 WHERE id < 9", database=shop.target)
            names = [f"{shop.database}.{table}" for table in SPLIT]
            part = resync_scope(run, [names[0]], from_key="100", to_key="200")
            (counted,) = estimate(run, part).tables
            assert 0 < (counted.sink_rows or 0) < (counted.source_rows or 0)
            assert not verify(run, settle_s=20).equal
            ask_resync(run, resync_scope(run, names), request_id="all")
            with beside(write):
                catch_up(shop)
            catch_up(shop)
        assert unlike(shop, SPLIT) == []
        assert verify(shop.run(), settle_s=20).equal

    def test_a_table_flows_on_where_the_named_key_stays(self, shop: Shop) -> None:
        begin(shop, *FOLLOWED)
        catch_up(shop)
        assert {str(key_at_sink(shop, table)) for table in FOLLOWED} == {"['id']"}
        for table, statements in FOLLOWED.items():
            alter(shop, table, [WRITES[0], *statements, *WRITES[1:]])
        run = catch_up(shop)
        asked = {
            table.table for each in run.store.requests(run.name) for table in each.scope.tables
        }
        assert asked == {"other_before"}  # the server has numbered its rows
        give_back(run)
        catch_up(shop)
        assert unlike(shop, FOLLOWED) == []
        for table in FOLLOWED:
            alter(shop, table, AFTERWARDS)
        run = catch_up(shop)
        assert unlike(shop, FOLLOWED) == []
        assert verify(run).equal
        keys = {table: key_at_sink(shop, table) for table in FOLLOWED}
        assert keys.pop("renamed_column") == ["number"]
        assert {*map(str, keys.values())} == {"['id']"}
        told = warnings(shop)
        assert len(told) == 2
        assert all("told apart by its primary key (id), and by no other" in each for each in told)
        keyed = [each for each in FOLLOWED if "primary" not in each]
        name_keys(shop, **dict.fromkeys(keyed, "key: by_id"))
        assert warnings(shop) == []
        alter(shop, "primary_added", WRITES[:2])
        catch_up(shop)
        assert unlike(shop, FOLLOWED) == []

    def test_a_table_stops_alone_where_the_named_key_changes(self, shop: Shop) -> None:
        begin(shop, *STOPPED, "other")
        catch_up(shop)
        for table, statements in STOPPED.items():
            alter(shop, table, [WRITES[0], *statements, "INSERT INTO t (code, id) VALUES (77, 77)"])
        alter(shop, "other", WRITES)
        with pytest.raises(TablesStoppedError):
            catch_up(shop)
        run = shop.run()
        errors = {state.table.table: state.error for state in run.store.tables(run.name)}
        for table in STOPPED:
            error = errors[table].read()
            assert CHANGED in error.what, table
            assert "`reset` it with --table" in error.remedy
            assert shop.sink_rows(f"SELECT n FROM {table} WHERE code = 10") == [(2,)]
            assert shop.sink_rows(f"SELECT n FROM {table} WHERE id = 77") == []
        assert unlike(shop, ["other"]) == []
        name_keys(shop, **NAMED_ANEW, other="key: by_id")
        reset(shop, STOPPED)
        catch_up(shop)
        for table in STOPPED:
            alter(shop, table, AFTERWARDS)
        run = catch_up(shop)
        assert unlike(shop, [*STOPPED, "other"]) == []
        assert verify(run).equal

    def test_rows_are_read_again_where_the_named_key_was_away_for_a_while(self, shop: Shop) -> None:
        """By its values, the row that is deleted would be the one that stays."""
        begin(shop, "t")
        shop.at_source("ALTER TABLE t MODIFY code INT NOT NULL AUTO_INCREMENT")
        catch_up(shop)
        away = (
            "ALTER TABLE t DROP INDEX by_id",
            "INSERT INTO t VALUES (50, 1, NULL, 77)",
            "UPDATE t SET n = 5 WHERE code = 10",
            "DELETE FROM t WHERE n = 77",
            "ALTER TABLE t ADD UNIQUE by_id (id)",
            "INSERT INTO t VALUES (90, 9, 900, 9)",
        )
        alter(shop, "t", away)
        catch_up(shop)
        run = catch_up(shop)
        assert unlike(shop, ["t"]) == []
        assert verify(run, tables=[TableId(shop.database, "t")]).equal
        definition = shop.sink_rows("SHOW COLUMNS FROM t LIKE 'code'")
        assert definition[0][5] == "auto_increment"
        reset_tables(run, [TableId(shop.database, "t")])  # into the table that is there
        run = catch_up(shop)
        assert unlike(shop, ["t"]) == []
        assert shop.sink_rows("SHOW COLUMNS FROM t LIKE 'code'") == definition
        assert len(shop.sink_rows("SHOW INDEX FROM t WHERE key_name <> 'PRIMARY'")) == 2

    def test_it_goes_with_other_settings_and_its_columns_are_copied_as_they_are(
        self, shop: Shop
    ) -> None:
        begin(shop, "cut", "masked", "shard_1", "shard_2", "dates")
        shop.at_source(
            "ALTER TABLE dates ADD day DATE NOT NULL DEFAULT '2026-01-01', "
            "ADD UNIQUE by_day (day, id)"
        )
        text = shop.path.read_text().replace("SHOP_DSN", 'SHOP_DSN\n  zero_dates: "null"', 1)
        both = "".join(
            f'"{shop.database}.shard_{n}": "{shop.target}.all_of_them", ' for n in (1, 2)
        )
        shop.path.write_text(text.replace("route: {", f"route: {{{both}"))
        sharded = "key: by_id, shard: {column: shop, value: table}"
        others = {"shard_1": sharded, "shard_2": sharded, "dates": "key: by_day"}
        cut, masked = (
            "key: by_id, columns: {exclude: [id]}",
            "key: by_id, columns: {mask: {id: null}}",
        )
        name_keys(shop, cut=cut, masked=masked, **others)
        with pytest.raises(PipelineFileError) as refused:
            check(shop.run())
        assert refused.value.what.count("id of") == 2
        others["cut"], others["masked"] = (
            each.replace("[id]", "[code]").replace("{id:", "{code:") for each in (cut, masked)
        )
        name_keys(shop, **others)
        catch_up(shop)
        for table in others:
            alter(shop, table, WRITES)
        zero = "INSERT INTO dates (code, id, day) VALUES (99, 99, '0000-00-00')"
        change(shop, "dates", ["SET SESSION sql_mode = ''", zero])
        with pytest.raises(TablesStoppedError, match="day"):
            catch_up(shop)
        assert shop.sink_rows("SELECT id FROM dates WHERE code > 90 OR day IS NULL") == []
        left = [(1, 2), (4, 4), (8, 8), (103, 3)]
        for table in ("cut", "masked"):
            assert shop.sink_rows(f"SELECT id, n FROM {table} ORDER BY id") == left
        assert key_at_sink(shop, "all_of_them") == ["shop", "id"]
        assert (
            shop.sink_rows("SELECT id, n FROM all_of_them WHERE shop = 'shard_2' ORDER BY id")
            == left
        )
        tables = [TableId(shop.database, each) for each in others if each != "dates"]
        assert verify(shop.run(), tables=tables).equal


class TestMySql(NamedKeys):
    def test_another_key_than_rows_were_copied_by_is_refused_until_a_reset(
        self, shop: Shop
    ) -> None:
        begin(shop, "t")
        catch_up(shop)
        name_keys(shop, t="key: BY_ID")
        catch_up(shop)
        for said, named in (("key: by_code", "by_code"), ("where: n > 0, key: none", "none")):
            name_keys(shop, t=said)
            with pytest.raises(PipelineFileError) as refused:
                catch_up(shop)
            assert f"told apart by by_id, and the file names {named} now" in refused.value.what
            assert "write key: by_id, or `reset` it with --table" in refused.value.what
        name_keys(shop)
        with pytest.raises(PipelineFileError, match="the file names no key now"):
            verify(shop.run())
        name_keys(shop, t="key: by_code")
        with pytest.raises(CdcError, match=r"its primary key is \(id\)"):
            reset_tables(shop.run(), [TableId(shop.database, "t")])
        reset(shop, ["t"])
        catch_up(shop)
        assert key_at_sink(shop, "t") == ["code"]
        alter(shop, "t", WRITES)
        run = catch_up(shop)
        assert unlike(shop, ["t"]) == []
        assert verify(run, tables=[TableId(shop.database, "t")]).equal
        name_keys(shop)
        with pytest.raises(PipelineFileError, match="write key: by_code"):
            catch_up(shop)

    def test_a_key_that_does_not_fit_its_table_is_refused_with_its_line(self, shop: Shop) -> None:
        for table, (definition, _) in MISFITS.items():
            shop.at_source(f"CREATE TABLE {table} {definition}")
        name_keys(shop, **dict.fromkeys(MISFITS, "key: by_id"))
        for step in (check, plan):
            with pytest.raises(PipelineFileError) as refused:
                step(shop.run())
            for table, (_, why) in MISFITS.items():
                assert why in refused.value.what, table
                assert f'tables["{shop.database}.{table}"].key' in refused.value.what
            assert "remove it, or name a unique key" in refused.value.what
        name_keys(shop)
        catch_up(shop)
        shop.at_source("CREATE TABLE later (id INT NOT NULL, n INT, UNIQUE other (id))")
        name_keys(shop, later="key: by_id")
        catch_up(shop)
        (told,) = warnings(shop)
        assert "later: it has no unique key by_id" in told
        shop.at_source("ALTER TABLE later ADD UNIQUE by_id (id)")
        catch_up(shop)
        assert key_at_sink(shop, "later") == ["id"]

    def test_a_table_whose_key_changes_before_it_is_read_is_read_by_the_named_one_or_not(
        self, shop: Shop
    ) -> None:
        begin(shop, "t", "u")
        run = shop.run()
        plan(run)
        give_back(run)
        alter(shop, "t", ["ALTER TABLE t RENAME INDEX by_id TO zz", *WRITES])
        alter(shop, "u", ["ALTER TABLE t DROP INDEX by_code", *WRITES])
        with pytest.raises(PipelineFileError, match="no unique key by_id"):
            catch_up(shop)
        alter(shop, "t", ["ALTER TABLE t RENAME INDEX zz TO by_id"])
        catch_up(shop)
        run = catch_up(shop)
        assert unlike(shop, ["t", "u"]) == []
        assert verify(run).equal

    def test_a_table_comes_back_with_its_key_and_no_rows_are_read_without_it(
        self, shop: Shop
    ) -> None:
        begin(shop, "t")
        catch_up(shop)
        alter(shop, "t", ["ALTER TABLE t DROP INDEX by_id", "INSERT INTO t VALUES (60, 9, 9, 9)"])
        with pytest.raises(TablesStoppedError, match=CHANGED):
            catch_up(shop)
        alter(shop, "t", ["ALTER TABLE t ADD UNIQUE by_id (id)", *WRITES])
        catch_up(shop)
        catch_up(shop)
        assert unlike(shop, ["t"]) == []
        alter(shop, "t", ["ALTER TABLE t ALTER INDEX by_id INVISIBLE", "UPDATE t SET code = -code"])
        run = catch_up(shop)
        assert unlike(shop, ["t"]) == []
        assert "its unique key by_id is INVISIBLE: the server reads no rows" in warnings(shop)[0]
        with pytest.raises(CdcError, match="key by_id is INVISIBLE"):
            resync_scope(run, [f"{shop.database}.t"])

    def test_a_change_log_has_its_columns_as_the_key(self, shop: Shop, tmp_path: Path) -> None:
        begin(shop, "t")
        text = shop.path.read_text().partition("sink:")[0]
        text = text.replace(f"{shop.database}.*", f"{shop.database}.t")
        sink = f"sink: {{type: changelog, path: {tmp_path}/log, format: json}}\n"
        shop.path.write_text(f"{text}{sink}")
        name_keys(shop, t="key: by_id")
        catch_up(shop)
        alter(
            shop, "t", ["UPDATE t SET code = 77 WHERE id = 2", "UPDATE t SET id = 9 WHERE id = 1"]
        )
        catch_up(shop)
        lines = [
            json.loads(line)
            for file in sorted((tmp_path / "log").rglob("*.json*"))
            for line in file.read_text().splitlines()
        ]
        found = [(each["op"], each["key"]["id"]) for each in lines if "op" in each]
        assert found == [*(("r", n) for n in (1, 2, 3, 4)), ("u", 2), ("d", 1), ("c", 9)]


class TestFromMariaDb(NamedKeys):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server
