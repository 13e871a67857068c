"""Columns of types that the sink lacks go through a whole pipeline, rows and log."""

from __future__ import annotations

import json
import random
import re
import struct
from contextlib import closing

import pytest

from airflow_cdc_provider.core.errors import (
    PipelineFileError,
    RefusedError,
    TablesStoppedError,
    UnsupportedTableError,
)
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.planning import preview
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.sink import open_table_builder
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.views.reports import plan_form, plan_lines
from tests.pipeline.altered_tables import catch_up, change
from tests.pipeline.conftest import Shop
from tests.pipeline.pairs import MakePair
from tests.servers.given import SqlServer


def require_equal(shop: Shop, *names: str) -> None:
    """Compare by our own comparison, and by what the servers print."""
    verdicts = verify(shop.run(), tables=[TableId(shop.database, n) for n in names], settle_s=5)
    assert [str(verdict) for verdict in verdicts.tables if not verdict.equal] == []


def rows(shop: Shop, query: str) -> tuple[set[object], set[object]]:
    """Return what source and sink print for one query."""
    return {*shop.source.execute(query, database=shop.database)}, {*shop.sink_rows(query)}


def types_at_sink(shop: Shop, table: str) -> dict[str, str]:
    """Return the columns' types and collations at the sink."""
    found = shop.sink.execute(
        "SELECT column_name, CONCAT_WS(' ', column_type, collation_name) "
        f"FROM information_schema.columns WHERE table_schema = '{shop.target}' "
        f"AND table_name = '{table}'"
    )
    return {str(name): str(kind) for name, kind in found}


def findings(shop: Shop) -> dict[str, str]:
    """Return what preflight says of stand-ins, by table."""
    found = check(shop.run()).findings
    return {f.subject.split(".")[1]: f.observed for f in found if f.code == "sink.stand_in"}


class TestAddressesInMySql:
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    def test_uuids_and_addresses_are_texts_from_the_first_row_on(self, shop: Shop) -> None:
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        source = random.Random(seed)
        shop.at_source(
            "CREATE TABLE hosts (u UUID PRIMARY KEY DEFAULT uuid(), i INET6 NOT NULL "
            "DEFAULT 'FF::1', k INET4, doc JSON, n INT NOT NULL DEFAULT 0, UNIQUE (i), KEY (k))"
        )
        shop.at_source(
            "CREATE TABLE visits (n INT, i INET6, u UUID, PRIMARY KEY (n, i), "
            "FOREIGN KEY (u) REFERENCES hosts (u))"
        )
        parts = (0, 0, 0, 1, 0xA, 0xFF, 0x100, 0xFFFF)
        addresses = [":".join(f"{source.choice(parts):x}" for _ in range(8)) for _ in range(200)]
        addresses += ["::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "::ffff", "1:0:0:2::3", "fe80::"]
        values = ", ".join(f"(uuid(), '{address}', '10.0.0.9')" for address in addresses)
        shop.at_source(f"INSERT IGNORE INTO hosts (u, i, k) VALUES {values}")
        shop.at_source("INSERT INTO hosts (i, k, doc) VALUES ('2::', NULL, '{\"a\": [1.50]}')")
        shop.at_source("INSERT INTO visits SELECT 1, i, u FROM hosts WHERE n = 0")
        assert not check(shop.run()).blocks
        assert findings(shop) == {
            "hosts": "u, uuid at the source, is char(36), without its default; i, inet6 at the "
            "source, is varchar(39); k, inet4 at the source, is varchar(15)",
            "visits": "i, inet6 at the source, is varchar(39); u, uuid at the source, is char(36)",
        }
        catch_up(shop)
        kinds = types_at_sink(shop, "hosts")
        assert (kinds["u"], kinds["i"]) == ("char(36) ascii_bin", "varchar(39) ascii_bin")
        require_equal(shop, "hosts", "visits")
        both = "SELECT u, i, k, doc, n FROM hosts"
        here, there = rows(shop, both)
        assert here == there
        assert len(shop.sink_rows("SELECT 1 FROM hosts WHERE i = '::ffff:1.2.3.4'")) == 1

        change(
            shop,
            "hosts",
            [
                "INSERT INTO hosts (i, doc) VALUES ('3:0:0:0:0:0:0:4', '1.'), ('::9.9.9.9', NULL)",
                "UPDATE hosts SET i = 'ABCD::', k = '255.0.0.1' WHERE i = '2::'",
                "DELETE FROM visits WHERE i IN ('::1', '::ffff:1.2.3.4')",
                "UPDATE visits SET i = '9::9' WHERE i = '::'",
                "DELETE FROM hosts WHERE i = '::1'",
                "ALTER TABLE hosts ADD COLUMN gate INET6 NOT NULL DEFAULT '1::', ADD COLUMN w UUID",
                "UPDATE hosts SET w = uuid(), gate = i WHERE i > '::1'",
                "ALTER TABLE hosts CHANGE COLUMN k door INET4 NULL",
                "ALTER TABLE hosts DROP COLUMN n",
                "CREATE TABLE late (i INET6 PRIMARY KEY, u UUID)",
                "INSERT INTO late VALUES ('::1', uuid()), ('::2', NULL)",
            ],
        )
        catch_up(shop)
        catch_up(shop)  # the table that came later is read
        change(shop, "late", ["UPDATE late SET i = '5::' WHERE i = '::2'"])
        catch_up(shop)
        require_equal(shop, "hosts", "visits", "late")
        for query in ("SELECT u, i, door, doc, gate, w FROM hosts", "SELECT * FROM visits"):
            here, there = rows(shop, query)
            assert here == there
        assert types_at_sink(shop, "hosts")["gate"] == "varchar(39) ascii_bin"

        for statement in (
            "UPDATE hosts SET gate = '0:0::1' WHERE i = 'abcd::'",
            "DELETE FROM visits WHERE i = '9::9'",
            "INSERT INTO visits VALUES (7, '::7', NULL)",
        ):
            shop.sink.execute(statement, database=shop.target)
        run = shop.run()
        report = verify(run, settle_s=5)
        assert {str(t.table.table) for t in report.tables if not t.equal} == {"hosts", "visits"}
        ask_repairs(run, repairs(run, report))
        run = catch_up(shop)
        assert {each.status for each in run.store.requests(run.name)} == {RequestStatus.DONE}
        require_equal(shop, "hosts", "visits")
        with pytest.raises(RefusedError, match="u, i, door, gate, w cannot be in a condition"):
            ask_resync(run, resync_scope(run, [f"{shop.database}.hosts"], where="i = '0:0::1'"))

    def test_another_type_can_be_named(self, shop: Shop) -> None:
        shop.at_source(
            "CREATE TABLE hosts (id INT PRIMARY KEY, u UUID, i INET6 NOT NULL DEFAULT '::1')"
        )
        shop.at_source("INSERT INTO hosts VALUES (1, uuid(), '::ffff:1.2.3.4'), (2, NULL, '::1')")
        given = shop.path.read_text()

        def say(settings: str) -> None:
            shop.path.write_text(f'{given}tables:\n  "{shop.database}.hosts":\n    {settings}\n')

        for settings, why in (
            ("columns: {type: {i: varchar(38)}}", r"every INET6; the smallest .* varchar\(39\)"),
            ("columns: {type: {id: bigint}}", "it is int, and another type can be named for"),
            ("columns: {type: {u: text}}", "'text' is no type that can be named: write char"),
            ("columns: {type: {x: char(36)}}", "has no column x"),
            ("columns: {type: {u: char(36)}, mask: {u: null}}", "u is masked and given a type"),
            ("where: i = '::FFFF:1.2.3.4'", "prints as '::ffff:1.2.3.4': write it so"),
            ("where: i = 'here'", "'here' is no INET6"),
        ):
            say(settings)
            with pytest.raises(PipelineFileError, match=why):
                check(shop.run())
        say("columns: {type: {i: 'VARCHAR (60)', u: char(40)}, rename: {i: ip}}")
        form = plan_form(preview(shop.run()), shop.run().model)
        told = "3 of 3 columns, renamed: i as ip, of type: u as char(40), i as varchar(60)"
        assert sum(line.endswith(told) for line in plan_lines(form)) == 1
        assert "hosts" not in findings(shop)
        catch_up(shop)
        assert types_at_sink(shop, "hosts") == {
            "id": re.sub(r"\(\d+\)", "", types_at_sink(shop, "hosts")["id"]),
            "u": "char(40) ascii_bin",
            "ip": "varchar(60) ascii_bin",
        }
        change(shop, "hosts", ["UPDATE hosts SET u = uuid(), i = '1:0:0:0::2' WHERE id = 2"])
        shop.sink.execute("UPDATE hosts SET ip = '::3' WHERE id = 1", database=shop.target)
        run = catch_up(shop)
        report = verify(run, settle_s=5)
        assert not report.equal
        ask_repairs(run, repairs(run, report))
        catch_up(shop)
        require_equal(shop, "hosts")
        at_source = shop.source.execute("SELECT id, u, i FROM hosts", database=shop.database)
        assert shop.sink_rows("SELECT id, u, ip FROM hosts") == list(at_source)
        say("columns: {type: {i: varchar(39), u: char(40)}, rename: {i: ip}}")
        with pytest.raises(PipelineFileError, match="others now than those that were copied"):
            catch_up(shop)
        say("columns: {type: {i: varchar(60), u: char(40)}, rename: {i: ip}}")
        change(shop, "hosts", ["ALTER TABLE hosts MODIFY COLUMN u CHAR(36)"])
        with pytest.raises(TablesStoppedError, match=r"the type of u of .* it is char\(36\)"):
            catch_up(shop)

    def test_rows_are_merged_filtered_and_kept_in_a_table_of_ones_own(self, shop: Shop) -> None:
        where = "i = '::1' OR u IS NULL"
        shop.path.write_text(
            f"{shop.path.read_text()}stream: {{apply: merged, writers: 2}}\ntables:\n"
            f'  "{shop.database}.few": {{where: "{where}", columns: {{mask: {{k: null}}}}}}\n'
        )
        shop.at_source("CREATE TABLE few (id INT PRIMARY KEY, i INET6, u UUID, k INET4)")
        shop.at_source(
            "INSERT INTO few VALUES (1, '::1', uuid(), '1.1.1.1'), (2, '::2', uuid(), '1.1.1.1'), "
            "(3, '::3', NULL, NULL)"
        )
        shop.at_source("CREATE TABLE hosts (u UUID PRIMARY KEY, i INET6, n INT, UNIQUE (i))")
        shop.at_source("INSERT INTO hosts VALUES (uuid(), '::1', 1), (uuid(), '::2', 2)")
        shop.at_source("CREATE TABLE own LIKE hosts")
        shop.at_source("INSERT INTO own SELECT * FROM hosts")
        shop.sink.execute(
            "CREATE TABLE own (u VARCHAR(64) COLLATE utf8mb4_bin PRIMARY KEY, "
            "i CHAR(99) CHARACTER SET utf16, n INT)",
            database=shop.target,
        )
        own = "u, uuid at the source, is varchar(64); i, inet6 at the source, is char(99)"
        assert findings(shop)["own"] == own
        catch_up(shop)
        changes = (
            "UPDATE hosts SET n = n + 1",
            "UPDATE hosts SET i = '::5', u = uuid() WHERE i = '::2'",
            "DELETE FROM hosts WHERE i = '::1'",
            "INSERT INTO hosts VALUES (uuid(), '::1', 9)",
            "UPDATE few SET i = '::1', u = uuid() WHERE id = 2",
            "UPDATE few SET i = '::7' WHERE id = 1",
            "UPDATE own SET i = IF(i = '::1', '::FFFF:1.1.1.1', NULL)",
        )
        change(shop, "hosts", changes)
        shop.sink.execute("UPDATE hosts SET n = 77", database=shop.target)
        shop.sink.execute("INSERT INTO few VALUES (4, '::1', NULL, NULL)", database=shop.target)
        run = catch_up(shop)
        hosts, few = f"{shop.database}.hosts", f"{shop.database}.few"
        ask_resync(run, resync_scope(run, [hosts], where="n > 0"), request_id="by_condition")
        ask_resync(run, resync_scope(run, [few], from_key="4", to_key=None), request_id="by_key")
        run = catch_up(shop)
        assert {each.status for each in run.store.requests(run.name)} == {RequestStatus.DONE}
        require_equal(shop, "few", "hosts", "own")
        for table in ("hosts", "own"):
            here, there = rows(shop, f"SELECT u, i, n FROM {table}")
            assert here == there
        assert [row[0] for row in shop.sink_rows("SELECT id FROM few ORDER BY id")] == [2, 3]

    def test_an_edge_of_a_topology_refuses_them(
        self, mariadb_server: SqlServer, mysql_sink: SqlServer, make_pair: MakePair
    ) -> None:
        edge = make_pair(mariadb_server, mysql_sink).there
        edge.src.execute("CREATE TABLE hosts (id INT PRIMARY KEY, i INET6)")
        with edge.opened() as run:
            (block,) = check(run).blocks
            assert (block.code, block.subject) == ("sink.stand_in", f"{edge.dst.database}.hosts")
            plans = preview(run).tables
            why = "the sink lacks the types of i of"
            with (
                closing(open_table_builder(run)) as tables,
                pytest.raises(UnsupportedTableError, match=why),
            ):
                tables.create_missing(plans)

    def test_a_column_that_gets_such_a_type_is_followed_and_a_computed_one_stops_its_table(
        self, shop: Shop
    ) -> None:
        shop.at_source("CREATE TABLE hosts (id INT PRIMARY KEY, i INET6, c CHAR(36), j JSON)")
        shop.at_source("INSERT INTO hosts VALUES (1, '::1', uuid(), '{}')")
        catch_up(shop)
        change(
            shop,
            "hosts",
            [
                "ALTER TABLE hosts MODIFY c UUID, MODIFY i VARCHAR(50) CHARACTER SET utf8mb4",
                "INSERT INTO hosts VALUES (2, 'no address', uuid(), '1.')",
            ],
        )
        catch_up(shop)
        change(
            shop, "hosts", ["ALTER TABLE hosts CHANGE j doc JSON", "UPDATE hosts SET doc = '2.'"]
        )
        catch_up(shop)
        require_equal(shop, "hosts")
        kinds = types_at_sink(shop, "hosts")
        assert kinds["c"] == "char(36) ascii_bin"
        assert kinds["i"].startswith("varchar(50) utf8mb4")
        change(shop, "hosts", ["ALTER TABLE hosts ADD g INT AS (LENGTH(c)) VIRTUAL"])
        with pytest.raises(TablesStoppedError, match="g is computed from c, which has another"):
            catch_up(shop)

    def test_what_is_computed_from_such_a_column_is_refused(self, shop: Shop) -> None:
        shop.at_source(
            "CREATE TABLE hosts (id INT PRIMARY KEY, i INET6, g INET6 AS (i) STORED, "
            "h INT AS (LENGTH(i)) VIRTUAL)"
        )
        (block,) = check(shop.run()).blocks
        assert "g is computed, and the sink does not have its type" in block.observed
        text = shop.path.read_text()
        table = f'tables:\n  "{shop.database}.hosts": {{columns: {{exclude: [g]}}}}\n'
        shop.path.write_text(text + table)
        (block,) = check(shop.run()).blocks
        assert "h is computed from i, which has another type at the sink" in block.observed
        shop.path.write_text(text + table.replace("[g]", "[g, h]"))
        catch_up(shop)
        assert types_at_sink(shop, "hosts").keys() == {"id", "i"}


class TestVectorsInMariaDb:
    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    def test_vectors_are_bytes_whatever_becomes_of_their_columns(self, shop: Shop) -> None:
        named = f'tables:\n  "{shop.database}.few": {{columns: {{type: {{v: varbinary(8)}}}}}}\n'
        shop.path.write_text(f"{shop.path.read_text()}stream: {{apply: merged}}\n{named}")
        shop.at_source(
            "CREATE TABLE points (id INT PRIMARY KEY, v VECTOR(3) NOT NULL, "
            "w VECTOR(2) DEFAULT (to_vector('[1,2]')), j JSON)"
        )
        shop.at_source("CREATE TABLE few (id INT PRIMARY KEY, v VECTOR(2), j JSON NOT NULL)")
        shop.at_source(
            "INSERT INTO points VALUES (1, to_vector('[1,-0,3e-30]'), NULL, "
            "'{\"b\": [1, 2.5], \"a\": null}'), (2, to_vector('[1]'), to_vector('[5,6]'), NULL)"
        )
        shop.at_source("INSERT INTO few VALUES (1, to_vector('[1,2]'), '[1]'), (2, NULL, '{}')")
        assert findings(shop) == {
            "points": "v, vector(3) at the source, is blob; w, vector(2) at the source, is blob, "
            "without its default"
        }
        catch_up(shop)
        require_equal(shop, "points", "few")
        stored = shop.sink_rows("SELECT v FROM points ORDER BY id")
        assert stored == [(struct.pack("<fff", 1, -0.0, 3e-30),), (struct.pack("<f", 1),)]
        assert types_at_sink(shop, "few")["v"] == "varbinary(8)"
        assert json.loads(str(shop.sink_rows("SELECT j FROM points")[0][0]))["b"] == [1, 2.5]

        change(
            shop,
            "points",
            [
                "INSERT INTO points VALUES (3, to_vector('[1,2,3]'), NULL, '[]')",
                "UPDATE points SET v = to_vector('[7,8]'), j = JSON_SET(j, '$.c', 1) WHERE id = 1",
                "ALTER TABLE points MODIFY v VECTOR(8) NOT NULL, ADD COLUMN x VECTOR(2)",
                "INSERT INTO points VALUES (4, to_vector('[1,2,3,4,5,6,7,8]'), NULL, NULL, "
                "to_vector('[1,2]'))",
                "DELETE FROM points WHERE id = 2",
                "UPDATE few SET v = to_vector('[3,4]'), j = '{\"k\": 1.5}'",
            ],
        )
        catch_up(shop)
        require_equal(shop, "points", "few")
        here, there = rows(shop, "SELECT id, HEX(v), HEX(w), HEX(x) FROM points")
        assert here == there
        assert types_at_sink(shop, "points")["x"] == "blob"

        shop.sink.execute("UPDATE points SET v = x'00' WHERE id = 3", database=shop.target)
        shop.sink.execute("UPDATE few SET v = x'0000' WHERE id = 2", database=shop.target)
        run = shop.run()
        report = verify(run, settle_s=5)
        assert {str(t.table.table) for t in report.tables if not t.equal} == {"points", "few"}
        ask_repairs(run, repairs(run, report))
        catch_up(shop)
        require_equal(shop, "points", "few")
        change(shop, "few", ["ALTER TABLE few MODIFY v VECTOR(3)"])
        with pytest.raises(TablesStoppedError, match=r"the smallest that does is varbinary\(12\)"):
            catch_up(shop)
