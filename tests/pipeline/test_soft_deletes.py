"""Deleted rows that stay at the sink, marked, and columns that say of each row what wrote it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from airflow_cdc_provider.core.errors import PipelineFileError, RefusedError, TablesStoppedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.estimating import estimate
from airflow_cdc_provider.pipeline.steps.pause_tables import pause_tables, resume_tables
from airflow_cdc_provider.pipeline.steps.planning import preview
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.pipeline.steps.verifying import verify
from airflow_cdc_provider.views.reports import plan_form, plan_lines
from tests.beside import beside
from tests.pipeline.altered_tables import catch_up, change
from tests.pipeline.conftest import Shop
from tests.pipeline.test_stream_ends import kill_once_it_moves
from tests.servers.given import SqlServer

SETTINGS = """\
  "{0}.people":
    columns: {{rename: {{n: number}}, mask: {{mail: {{first: 4}}}}, constants: {{part: 7}}}}
    deletes: soft
    metadata: {{deleted: gone, operation: op, position: place, committed_at: at,
      table: origin, server: server}}
  "{0}.words": {{deletes: soft, metadata: {{operation: op}}}}
  "{0}.orders": {{metadata: {{operation: op, position: place, committed_at: at}}}}
"""
PEOPLE = """CREATE TABLE people (
  id INT PRIMARY KEY, mail VARCHAR(40) NOT NULL, born DATETIME(3), n INT NOT NULL,
  UNIQUE KEY of_mail (mail), KEY by_n (n))"""
WORDS = """CREATE TABLE words (
  word VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, n INT NOT NULL,
  tag VARCHAR(9) CHARACTER SET latin1 NOT NULL DEFAULT 'é')"""  # of bytes that are not compared
HISTORY = """CREATE TABLE history (
  seq INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(9), k VARCHAR(40), op CHAR(1), told TEXT,
  at DATETIME(6))"""
OF = {
    "people": ("id", "CONCAT_WS('|', {0}.id, LEFT({0}.mail, 4), {0}.born, {0}.n, 7)"),
    "words": ("word", "CONCAT_WS('|', {0}.word, {0}.n, {0}.tag)"),
}
AT_SINK = {
    "people": "CONCAT_WS('|', id, mail, born, number, part)",
    "words": "CONCAT_WS('|', word, n, tag)",
}
FLAG = {"people": "gone", "words": "_deleted"}


@dataclass(frozen=True)
class Event:
    """What the source's triggers kept of the last change of a key."""

    seq: int
    op: str
    told: str
    at: datetime


class Kept:
    """A shop whose triggers keep each change of two tables, which are written to at random."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.people = TableId(shop.database, "people")
        for statement in (PEOPLE, WORDS, HISTORY):
            shop.at_source(statement)
        for name, (key, told) in OF.items():
            for verb, body in _bodies(name, key, told).items():
                shop.at_source(
                    f"CREATE TRIGGER {name}_{verb} AFTER {verb} ON {name} FOR EACH ROW {body}"
                )
        text = shop.path.read_text()
        text = text.replace("sink:", f'  exclude: ["{shop.database}.history"]\nsink:', 1)
        shop.path.write_text(f"{text}tables:\n{SETTINGS.format(shop.database)}")
        seed = random.randrange(1 << 32)
        print(f"seed: {seed}")
        self.rng = random.Random(seed)
        self.number = 0
        for _ in range(20):
            self.write()

    def write(self) -> None:
        """Change some rows, keys and the case of keys among them, in one transaction."""
        rng = self.rng
        key, other, n = rng.randrange(300), rng.randrange(300), rng.randrange(1000)
        word = "".join(rng.choice("aAbBcC") for _ in range(rng.randrange(1, 4)))
        self.number += 1
        mail = f"{rng.choice(('ann', 'bob'))}{self.number}@x.org"
        # MariaDB's UPDATE IGNORE fires triggers for what it ignores
        free = f"NOT EXISTS (SELECT 1 FROM (SELECT id FROM people WHERE id = {other}) other)"
        ways = (
            f"REPLACE INTO people VALUES ({key}, '{mail}', '2001-02-03 04:05:06.007', {n})",
            f"INSERT IGNORE INTO people VALUES ({key}, '{mail}', NULL, {n})",
            f"UPDATE people SET n = {n} WHERE id BETWEEN {key} AND {key + 3}",
            f"UPDATE people SET id = {other} WHERE id = {key} AND {free}",
            f"DELETE FROM people WHERE id BETWEEN {key} AND {key + 2}",
            f"INSERT IGNORE INTO words (word, n) VALUES ('{word}', {n})",
            f"UPDATE words SET word = '{word}' WHERE word = '{word}'",
            f"DELETE FROM words WHERE word = '{word}'",
        )
        with closing(self.shop.source.connect(database=self.shop.database)) as connection:
            for statement in rng.choices(ways, k=6):
                connection.cursor().execute(statement)
            connection.commit()

    def at_sink(self, sql: str) -> None:
        self.shop.sink.execute(sql, database=self.shop.target)

    def at_source(self, sql: str) -> Sequence[tuple[object, ...]]:
        return self.shop.source.execute(sql, database=self.shop.database)

    def last(self, name: str) -> dict[str, Event]:
        """Return the last change of each key, as the source's collation tells keys apart."""
        found = {}
        query = f"SELECT k, seq, op, told, at FROM history WHERE name = '{name}' ORDER BY seq"
        for key, seq, op, told, at in self.at_source(query):
            found[str(key).lower()] = Event(int(str(seq)), str(op), str(told), at)  # type: ignore[arg-type]
        return found

    def held(self, name: str) -> dict[str, tuple[bool, str, str]]:
        """Return of each row of the sink whether it is marked, its operation and its values."""
        key = OF[name][0]
        rows = self.shop.sink_rows(f"SELECT {key}, {FLAG[name]}, op, {AT_SINK[name]} FROM {name}")
        return {str(key).lower(): (flag == 1, str(op), str(told)) for key, flag, op, told in rows}

    def living_are_the_sources(self, name: str) -> bool:
        """Tell whether the living rows are the source's, and our own comparison says the same."""
        table = TableId(self.shop.database, name)
        (verdict,) = verify(self.shop.run(), tables=[table], settle_s=5).tables
        told = self.at_source(f"SELECT {OF[name][1].format('t')} FROM {name} t")
        living = [told for flag, _, told in self.held(name).values() if not flag]
        dumped = sorted(str(each[0]) for each in told) == sorted(living)
        assert verdict.equal == dumped, verdict
        return dumped

    def is_settled(self, name: str) -> bool:
        """Tell whether each row is what its last change left, marked where that was a delete."""
        last = self.last(name)
        for key, (is_marked, _, told) in self.held(name).items():
            assert (told, is_marked) == (last[key].told, last[key].op == "d")
        return self.living_are_the_sources(name)

    def is_as_logged(self, name: str, *, since: int) -> bool:
        """Tell whether each row whose key changed behind `since` is as its last change left it."""
        held = self.held(name)
        wanted = {
            key: (event.op == "d", event.op, event.told)
            for key, event in self.last(name).items()
            if event.seq > since
        }
        found = {key: held.get(key) for key in wanted}
        assert found == wanted
        return bool(wanted)

    def seq(self) -> int:
        return int(str(self.at_source("SELECT MAX(seq) FROM history")[0][0]))

    def asked(self, run: Run) -> None:
        """See that all requests are done."""
        assert {each.status for each in run.store.requests(run.name)} == {RequestStatus.DONE}


def _bodies(name: str, key: str, told: str) -> dict[str, str]:
    """Return the triggers' bodies; a change of key is the end of one row, and another's begin."""

    def kept(op: str, row: str) -> str:
        values = f"'{name}', {row}.{key}, '{op}', {told.format(row)}, UTC_TIMESTAMP(6)"
        return f"INSERT INTO history (name, k, op, told, at) VALUES ({values});"

    # where nothing differs the log has no event
    same = f"BINARY {told.format('NEW')} <=> BINARY {told.format('OLD')}"
    moved = (
        f"IF {same} THEN BEGIN END; ELSEIF CAST(NEW.{key} AS BINARY) = CAST(OLD.{key} AS BINARY) "
        f"THEN {kept('u', 'NEW')} ELSE {kept('d', 'OLD')} {kept('c', 'NEW')} END IF;"
    )
    return {
        "INSERT": f"BEGIN {kept('c', 'NEW')} END",
        "UPDATE": f"BEGIN {moved} END",
        "DELETE": f"BEGIN {kept('d', 'OLD')} END",
    }


class SoftDeletes:
    @pytest.fixture
    def kept(self, shop: Shop) -> Kept:
        return Kept(shop)

    def test_each_row_is_as_the_last_change_of_its_key_left_it(self, kept: Kept) -> None:
        shop = kept.shop
        assert not check(shop.run()).blocks
        lines = plan_lines(plan_form(preview(shop.run()), shop.run().model))
        assert any("deleted rows are kept, marked in gone, metadata: op" in each for each in lines)
        with beside(kept.write, every_s=0.01):
            catch_up(shop)
        catch_up(shop)
        assert all(map(kept.is_settled, OF))
        indexes = {row[2] for row in shop.sink_rows("SHOW INDEX FROM people")}
        assert indexes == {"PRIMARY", "by_n"}
        with beside(kept.write, every_s=0.01):
            again = [f"{shop.database}.{name}" for name in OF]
            asked = ask_resync(shop.run(), resync_scope(shop.run(), again))
            catch_up(shop)
            pause_tables(shop.run(), [TableId(shop.database, "words")])
            catch_up(shop)
            kept.write()
            catch_up(shop)
            resume_tables(shop.run(), [TableId(shop.database, "words")])
        run = catch_up(shop)
        done = run.store.request(run.name, asked.request_id)
        assert done is not None
        assert done.status is RequestStatus.DONE
        assert all(map(kept.is_settled, OF))
        since = kept.seq()
        with beside(kept.write, every_s=0.01):
            kill_once_it_moves(shop)
        catch_up(shop)
        for name in OF:
            assert kept.is_as_logged(name, since=since)
            assert kept.is_settled(name)
        self._says_where_rows_come_from(kept, since)

    def _says_where_rows_come_from(self, kept: Kept, since: int) -> None:
        """See that the metadata of changed rows is that of their transactions."""
        last = kept.last("people")
        place, server = "", ""
        for key, at, where, origin, by in kept.shop.sink_rows(
            "SELECT id, at, place, origin, server FROM people"
        ):
            event = last[str(key)]
            assert origin == str(kept.people)
            if event.seq > since:
                assert isinstance(at, datetime)
                assert abs(at - event.at) < timedelta(seconds=3)
                place, server = str(where), str(by)
        file, offset = place.rsplit(":", 1)
        shown = f"SHOW BINLOG EVENTS IN '{file}' FROM {offset} LIMIT 1"
        assert "gtid" in str(kept.at_source(shown)[0][2]).lower()
        (row,) = kept.at_source("SELECT @@server_id, @@hostname, VERSION()")
        if "MariaDB" in str(row[2]):
            assert server == f"server_id-{row[0]}@{row[1]}"
        else:
            assert server == kept.at_source("SELECT @@server_uuid")[0][0]
        kept.at_source("UPDATE orders SET note = 'one more' WHERE id = 1")
        kept.at_source("UPDATE orders SET id = 20 WHERE id = 2")
        kept.at_source("DELETE FROM orders WHERE id = 3")
        catch_up(kept.shop)
        orders = kept.shop.sink_rows("SELECT id, op, at IS NULL FROM orders ORDER BY id")
        assert orders == [(1, "u", 0), (20, "c", 0)]
        table = TableId(kept.shop.database, "orders")
        (verdict,) = verify(kept.shop.run(), tables=[table], settle_s=5).tables
        assert (verdict.equal, verdict.why_digest) == (True, "")  # by the servers' own digest

    def test_rows_that_are_read_again_are_marked_or_revived_and_never_deleted(
        self, kept: Kept
    ) -> None:
        shop, name = kept.shop, str(kept.people)
        kept.at_source("TRUNCATE people")
        for key in range(1, 41):
            kept.at_source(f"INSERT INTO people VALUES ({key}, 'p{key}@x.org', NULL, {key})")
        catch_up(shop)
        kept.at_source("DELETE FROM people WHERE id IN (3, 23)")
        kept.at_source("UPDATE people SET n = 500 WHERE id = 5")
        catch_up(shop)
        marked = "SELECT place, at FROM people WHERE id = 3"
        deleted = shop.sink_rows(marked)

        def spoil() -> None:
            columns = "number, mail, id, part, gone, op, place, origin, server"
            values = f"1, 'who', {{0}}, 7, 0, 'c', '', '{name}', ''"
            for key in (0, 30, 77):
                kept.at_sink(f"REPLACE INTO people ({columns}) VALUES ({values.format(key)})")
            kept.at_sink("DELETE FROM people WHERE id = 7")
            kept.at_sink("UPDATE people SET gone = 1 WHERE id = 8")

        spoil()
        assert not kept.living_are_the_sources("people")
        run = shop.run()
        part = resync_scope(run, [name], from_key="0", to_key="20")
        (counted,) = estimate(run, part).tables
        assert (counted.source_rows, counted.sink_rows) == (18, 17)
        ask_resync(run, part, request_id="part")
        kept.asked(catch_up(shop))
        found = "SELECT id, gone, op, number FROM people WHERE id IN (0, 3, 5, 6, 7, 8) ORDER BY id"
        assert shop.sink_rows(found) == [
            (0, 1, "d", 1),
            (3, 1, "d", 3),
            (5, 0, "u", 500),
            (6, 0, "r", 6),
            (7, 0, "r", 7),
            (8, 0, "r", 8),
        ]
        assert shop.sink_rows(marked) == deleted
        (place,) = shop.sink_rows("SELECT place, at, server = '' FROM people WHERE id = 0")
        assert ":" in str(place[0])
        assert place[1:] == (None, 0)
        report = verify(shop.run(), tables=[kept.people], settle_s=5)
        assert {each.key for each in report.tables[0].samples} == {"30", "77"}
        ask_repairs(shop.run(), repairs(shop.run(), report))
        kept.asked(catch_up(shop))
        assert kept.living_are_the_sources("people")
        spoil()
        backfill = backfill_scope(shop.run(), name, "n", start="0", end="100")
        ask_resync(shop.run(), backfill)
        kept.asked(catch_up(shop))
        assert shop.sink_rows("SELECT id, gone FROM people WHERE id IN (0, 30, 77)") == [
            (0, 1),
            (30, 0),
            (77, 1),
        ]
        assert shop.sink_rows(marked) == deleted

    def test_a_truncated_table_is_marked_and_one_that_is_reset_keeps_its_marks(
        self, kept: Kept
    ) -> None:
        shop = kept.shop
        catch_up(shop)
        changed = "SELECT SUM(deletes) FROM airflow_cdc.changed_table WHERE table_name = "
        query = f"{changed}'{kept.people}'"
        ((told,),) = shop.sink_rows(query)
        ((going,),) = kept.at_source("SELECT COUNT(*) FROM people WHERE id > 150")
        kept.at_source("DELETE FROM people WHERE id > 150")
        catch_up(shop)
        assert shop.sink_rows(query) == [((told or 0) + going,)]  # type: ignore[operator]
        counted = "SELECT COUNT(*), SUM(gone), SUM(op = 'd') FROM people"
        ((rows, _, deleted),) = shop.sink_rows(counted)
        before = datetime.now(UTC).replace(tzinfo=None) - timedelta(seconds=2)
        kept.at_source("TRUNCATE people")
        kept.at_source("INSERT INTO people VALUES (1, 'ann@x.org', NULL, 5), (2, 'b', NULL, 6)")
        catch_up(shop)
        ((now, gone, still),) = shop.sink_rows(
            "SELECT SUM(id > 2), SUM(gone AND id > 2), SUM(op = 'd' AND id > 2) FROM people"
        )
        assert (now, still) == (gone, deleted)
        assert shop.sink_rows("SELECT op, gone, number FROM people WHERE id = 1") == [("c", 0, 5)]
        times = shop.sink_rows("SELECT MIN(at), MIN(place) FROM people WHERE op = 't'")
        assert times[0][0] >= before  # type: ignore[operator]
        assert kept.living_are_the_sources("people")
        kept.at_source("ALTER TABLE people ADD COLUMN more INT NOT NULL DEFAULT 4 AFTER mail")
        kept.at_source("DELETE FROM people WHERE id = 2")
        catch_up(shop)
        names = [row[0] for row in shop.sink_rows("SHOW COLUMNS FROM people")]
        assert names[2] == "more"
        assert shop.sink_rows("SELECT more, gone FROM people WHERE id = 2") == [(4, 1)]
        reset_tables(shop.run(), [kept.people])
        catch_up(shop)
        ((after, _, same),) = shop.sink_rows(counted)
        assert after >= rows  # type: ignore[operator]
        assert same == deleted + 1  # type: ignore[operator]
        assert kept.living_are_the_sources("people")
        kept.at_source("ALTER TABLE people ADD COLUMN gone INT")
        with pytest.raises(TablesStoppedError, match="two columns gone"):
            catch_up(shop)


class TestMySql(SoftDeletes):
    pass


class TestFromMariaDb(SoftDeletes):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server

    @pytest.fixture
    def mysql_sink(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def test_an_existing_table_gets_the_columns_by_the_fixes_and_keeps_the_rows_it_had_marked(
    shop: Shop,
) -> None:
    text = shop.path.read_text()
    settings = "{deletes: soft, metadata: {operation: op, committed_at: at}}"
    shop.path.write_text(f'{text}tables: {{"{shop.database}.orders": {settings}}}\n')
    table = "id INT PRIMARY KEY, note VARCHAR(40), code INT, UNIQUE KEY code (code)"
    shop.sink.execute(f"CREATE TABLE orders ({table})", database=shop.target)
    found = {each.code: each for each in check(shop.run()).blocks}
    assert set(found) == {"sink.column", "sink.unique_key"}
    for finding in check(shop.run()).blocks:
        shop.sink.execute(finding.fix)
    strange = (
        "INSERT INTO orders VALUES (1, 'other', 9, 0, 'c', NULL), (99, 'mine', 5, 0, 'c', NULL)"
    )
    shop.sink.execute(strange, database=shop.target)
    with pytest.raises(RefusedError, match="holds rows, and nothing says that"):
        catch_up(shop)
    text = text.replace("sink:\n", "sink:\n  existing_rows: replace\n")
    shop.path.write_text(f'{text}tables: {{"{shop.database}.orders": {settings}}}\n')
    catch_up(shop)
    assert shop.sink_rows("SELECT id, note, _deleted, op, at FROM orders ORDER BY id") == [
        (1, "one", 0, "r", None),
        (2, "two", 0, "r", None),
        (3, None, 0, "r", None),
        (99, "mine", 1, "d", None),
    ]
    shop.path.write_text(f'{text}tables: {{"{shop.database}.orders": {{deletes: soft}}}}\n')
    with pytest.raises(PipelineFileError, match=r"rows and columns of .*orders are others now"):
        catch_up(shop)


def test_a_deleted_row_that_the_sink_never_had_comes_marked(shop: Shop) -> None:
    settings = "{deletes: soft, metadata: {deleted: gone, operation: op}}"
    more = f'tables: {{"{shop.database}.orders": {settings}}}\nstream: {{start: latest}}\n'
    shop.path.write_text(shop.path.read_text() + more)
    catch_up(shop)
    shop.at_source("DELETE FROM orders WHERE id = 1")
    shop.at_source("UPDATE orders SET note = 'new' WHERE id = 2")
    catch_up(shop)
    assert shop.sink_rows("SELECT * FROM orders ORDER BY id") == [
        (1, "one", 10, 1, "d"),
        (2, "new", 20, 0, "u"),
    ]


def test_of_spellings_that_are_one_key_at_the_sink_the_last_that_was_deleted_stays(
    shop: Shop,
) -> None:
    """Also where the rows before it hold no member of an ENUM, and are written apart."""
    shop.at_source(
        "CREATE TABLE tags (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT, "
        "kind ENUM('x', 'y'))"
    )
    with shop.path.open("a") as file:
        file.write(f'tables: {{"{shop.database}.tags": {{deletes: soft}}}}\n')
    catch_up(shop)
    lives = [("aB", 1, 0), ("Ab", 2, "'y'"), ("ab", 3, 0), ("AB", 4, "'x'")]
    change(
        shop,
        "tags",
        [
            "SET SESSION sql_mode = ''",
            *(
                statement
                for key, n, kind in lives
                for statement in (
                    f"INSERT INTO tags VALUES ('{key}', {n}, {kind})",
                    "DELETE FROM tags",
                )
            ),
        ],
    )
    catch_up(shop)
    assert shop.sink_rows("SELECT * FROM tags") == [("AB", 4, "x", 1)]
