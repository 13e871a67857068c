"""Tables of whose key the sink has hashes: whatever happens to a key, equal keys stay one row."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha256

import pytest
from pymysql.err import IntegrityError

from airflow_cdc_provider.core.errors import CdcError, PipelineFileError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.verify_report import VerifyReport
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.repairing import ask_repairs, repairs
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.beside import beside
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.change_logs import Logged, rows_of
from tests.pipeline.conftest import FILE, Shop
from tests.pipeline.lakes import FORMS, Lake
from tests.pipeline.settings import SALT

SALTED = "{sha256: {salt_env: SHOP_SALT}}"
WORDS = "mail VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"


@dataclass(frozen=True)
class KeyedTable:
    """A table, what the file says of it, and what both sides are to have."""

    definition: str
    in_file: str
    at_source: str
    at_sink: str
    living: str = "TRUE"


def hashed(name: str) -> str:
    return f"SHA2(CONCAT('{SALT}', {name}), 256)"


TABLES = {
    "words": KeyedTable(
        f"{WORDS} PRIMARY KEY, id INT, n INT",
        f"columns: {{mask: {{mail: {SALTED}}}}}",
        f"{hashed('mail')}, id, n",
        "mail, id, n",
    ),
    "numbers": KeyedTable(
        f"{WORDS}, id BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT, n INT, UNIQUE (mail)",
        f"columns: {{mask: {{id: {SALTED}}}, rename: {{id: customer, n: m}}}}",
        f"mail, {hashed('id')}, n",
        "mail, customer, m",
    ),
    "tenants": KeyedTable(
        f"{WORDS}, id INT NOT NULL, n INT, tenant INT NOT NULL DEFAULT 7, "
        "PRIMARY KEY (tenant, mail), KEY (n)",
        f"columns: {{mask: {{mail: {SALTED}}}}}",
        f"{hashed('mail')}, id, n, tenant",
        "mail, id, n, tenant",
    ),
    "prefixes": KeyedTable(
        "mail TEXT CHARACTER SET utf8mb4 NOT NULL, id INT NOT NULL, n INT, "
        "PRIMARY KEY (mail(20), id)",
        f"columns: {{mask: {{mail: {SALTED}}}}}",
        f"{hashed('mail')}, id, n",
        "mail, id, n",
    ),
    "bytes": KeyedTable(
        "mail VARBINARY(40) NOT NULL, id INT, n INT, PRIMARY KEY (mail)",
        f"columns: {{mask: {{mail: {SALTED}}}}}",
        f"{hashed('mail')}, id, n",
        "mail, id, n",
    ),
    "promoted": KeyedTable(
        f"{WORDS}, id INT, n INT, UNIQUE KEY of_mail (mail)",
        f"columns: {{mask: {{mail: {SALTED}}}}}",
        f"{hashed('mail')}, id, n",
        "mail, id, n",
    ),
    "soft": KeyedTable(
        f"{WORDS} PRIMARY KEY, id INT, n INT",
        f"deletes: soft, columns: {{mask: {{mail: {SALTED}}}}}",
        f"{hashed('mail')}, id, n",
        "mail, id, n",
        living="_deleted = 0",
    ),
    "shards": KeyedTable(
        f"{WORDS} PRIMARY KEY, id INT, n INT",
        f"shard: {{column: shop, value: table}}, columns: {{mask: {{mail: {SALTED}}}}}",
        f"{hashed('mail')}, id, n, 'shards'",
        "mail, id, n, shop",
    ),
}
WRITES = (
    "UPDATE {0} SET mail = LOWER(mail), n = 100 WHERE id = 1",
    "UPDATE {0} SET mail = CONCAT('new-', mail) WHERE id IN (2, 3)",
    "UPDATE {0} SET mail = 'Mail-1@x' WHERE id = 1",
    "DELETE FROM {0} WHERE id = 4",
    "INSERT INTO {0} (mail, id, n) VALUES ('Mail-4@x', 400, 4)",
    "REPLACE INTO {0} (mail, id, n) VALUES ('MAIL-5@X', 5, 55)",
    "UPDATE {0} SET mail = 'there' WHERE id = 6",
    "UPDATE {0} SET mail = 'Mail-6@x' WHERE id = 7",
    "UPDATE {0} SET mail = 'Mail-7@x' WHERE id = 6",
    "DELETE FROM {0} WHERE id = 8",
    "INSERT INTO {0} (mail, id, n) VALUES ('mail-8@x', 8, 8)",
)
"""Keys that change their case, move, trade places, and come again as others are spelled."""

MOVES = (
    "UPDATE {0} SET mail = UPPER(mail), n = n + 1 WHERE id = {1}",
    "UPDATE {0} SET mail = LOWER(mail) WHERE id = {1}",
    "UPDATE {0} SET mail = 'Mail-{2}@x' WHERE id = {1}",
    "DELETE FROM {0} WHERE id = {1}",
    "INSERT INTO {0} (mail, id, n) VALUES ('mail-{2}@X', {1}, {2})",
    "REPLACE INTO {0} (mail, id, n) VALUES ('MAIL-{2}@x', {1}, {2})",
)


class Keyed:
    """A shop with these tables, twenty rows in each."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        shop.environment["SHOP_SALT"] = SALT
        lines = [f'  "{shop.database}.{name}": {{{t.in_file}}}\n' for name, t in TABLES.items()]
        text = FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
        text += "snapshot: {split_rows: 5}\n"
        shop.path.write_text(text + "tables:\n" + "".join(lines))
        rows = ", ".join(f"('Mail-{n}@x', {n}, {n})" for n in range(1, 21))
        for name, table in TABLES.items():
            shop.at_source(f"CREATE TABLE {name} ({table.definition})")
            shop.at_source(f"INSERT INTO {name} (mail, id, n) VALUES {rows}")

    def write(self, statements: Sequence[str]) -> None:
        for name in TABLES:
            for statement in statements:
                self.shop.at_source(statement.format(name))

    def plant(self, *statements: str) -> None:
        for name in TABLES:
            for statement in statements:
                self.shop.sink.execute(statement.format(name), database=self.shop.target)

    def unequal(self) -> list[str]:
        """Return the tables that differ, by dumps of both sides."""
        return [name for name in TABLES if not self._is_equal(name, TABLES[name])]

    def _is_equal(self, name: str, table: KeyedTable) -> bool:
        wanted = self.shop.source.execute(
            f"SELECT {table.at_source} FROM {name}", database=self.shop.database
        )
        assert wanted
        at_sink = self.shop.sink_rows(f"SELECT {table.at_sink} FROM {name} WHERE {table.living}")
        return Counter(at_sink) == Counter(wanted)

    def verified(self) -> VerifyReport:
        return verify(self.shop.run(), settle_s=5, values=True)


@pytest.fixture
def keyed(empty_shop: Shop) -> Keyed:
    return Keyed(empty_shop)


def test_a_row_follows_its_key_by_the_hash(keyed: Keyed) -> None:
    assert not check(keyed.shop.run()).blocks
    catch_up(keyed.shop)
    assert keyed.unequal() == []
    keyed.write(WRITES)
    catch_up(keyed.shop)
    assert keyed.unequal() == []
    assert keyed.verified().equal


def test_differences_are_found_by_the_hash_alone_and_mended(keyed: Keyed) -> None:
    catch_up(keyed.shop)
    keyed.plant("DELETE FROM {0} WHERE {0}.mail IS NOT NULL LIMIT 3")
    report = keyed.verified()
    assert {each.table.table: each.missing for each in report.tables} == dict.fromkeys(TABLES, 3)
    shown = " ".join(str(each) for table in report.tables for each in table.samples)
    assert not re.search(r"mail-\d", shown, re.IGNORECASE)
    run = keyed.shop.run()
    assert len(ask_repairs(run, repairs(run, report))) == len(TABLES)
    keyed.write(WRITES)
    catch_up(keyed.shop)
    assert keyed.unequal() == []


def test_all_rows_are_read_again_beside_the_stream(keyed: Keyed) -> None:
    catch_up(keyed.shop)
    keyed.plant("UPDATE {0} SET " + "{0}.mail = {0}.mail", "DELETE FROM {0} LIMIT 5")
    names = [str(TableId(keyed.shop.database, name)) for name in TABLES]
    ask_resync(keyed.shop.run(), resync_scope(keyed.shop.run(), names))
    keyed.write(WRITES)
    catch_up(keyed.shop)
    assert keyed.unequal() == []


def test_rows_are_right_that_are_written_while_they_are_read(keyed: Keyed) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    rng, shop = random.Random(seed), keyed.shop

    with closing(shop.source.connect(database=shop.database)) as connection:

        def write() -> None:
            name, number = rng.choice([*TABLES]), rng.randrange(1, 21)
            statement = rng.choice(MOVES).format(name, number, rng.randrange(1000))
            with suppress(IntegrityError):  # another row has that key
                connection.cursor().execute(statement)
            connection.commit()

        with beside(write):
            catch_up(shop)
        catch_up(shop)
        assert keyed.unequal() == []
        names = [str(TableId(shop.database, name)) for name in TABLES]
        keyed.plant("DELETE FROM {0} LIMIT 7")
        ask_resync(shop.run(), resync_scope(shop.run(), names))
        with beside(write):
            catch_up(shop)
    catch_up(shop)
    assert keyed.unequal() == []
    assert keyed.verified().equal


@pytest.mark.parametrize("mask", ["{first: 3}", "{last: 2}", '{fixed: "x"}', "null"])
def test_masks_that_make_two_keys_one_are_refused(keyed: Keyed, mask: str) -> None:
    shop = keyed.shop
    shop.path.write_text(shop.path.read_text().replace(f"mail: {SALTED}", f"mail: {mask}"))
    with pytest.raises((PipelineFileError, CdcError), match="of the masks sha256 alone keeps"):
        catch_up(shop)


def test_a_table_that_no_reader_can_keep_is_refused_and_not_cut(keyed: Keyed) -> None:
    shop = keyed.shop
    shop.path.write_text(shop.path.read_text().replace("{split_rows: 5}", "{max_split_mb: 1}", 1))
    shop.at_source("CREATE TABLE wide (mail VARCHAR(40) PRIMARY KEY, t LONGTEXT)")
    shop.path.write_text(
        shop.path.read_text().replace(
            "tables:\n",
            f'tables:\n  "{shop.database}.wide": {{columns: {{mask: {{mail: {SALTED}}}}}}}\n',
        )
    )
    shop.at_source("INSERT INTO wide VALUES ('a', REPEAT('x', 700000)), ('b', REPEAT('y', 700000))")
    with pytest.raises(CdcError, match="the sink has hashes of its key, so its rows are read") as e:
        catch_up(shop)
    assert "raise snapshot.max_split_mb" in e.value.remedy


@pytest.mark.parametrize("form", FORMS)
def test_a_lake_has_the_hashes(empty_shop: Shop, form: str) -> None:
    shop = empty_shop
    shop.environment["SHOP_SALT"] = SALT
    text = FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
    names = ("words", "numbers")
    lines = [f'  "{shop.database}.{name}": {{{TABLES[name].in_file}}}\n' for name in names]
    shop.path.write_text(f"{text}tables:\n{''.join(lines)}")
    rows = ", ".join(f"('Mail-{n}@x', {n}, {n})" for n in range(1, 21))
    for name in names:
        shop.at_source(f"CREATE TABLE {name} ({TABLES[name].definition})")
        shop.at_source(f"INSERT INTO {name} (mail, id, n) VALUES {rows}")
    lake = Lake.of(shop, form)

    def unequal() -> list[str]:
        return [name for name in names if not is_equal(lake, name)]

    lake.catch_up()
    assert unequal() == []
    for statement in (statement for statement in WRITES if "REPLACE" not in statement):
        for name in names:
            shop.at_source(statement.format(name))
    lake.catch_up()
    assert unequal() == []
    lake.unlogged("UPDATE words SET n = -1 WHERE id = 9", "DELETE FROM words WHERE id = 10")
    tables = [f"{shop.database}.{name}" for name in names]
    ask_resync(shop.run(), resync_scope(shop.run(), tables))
    shop.at_source("UPDATE numbers SET mail = UPPER(mail), id = id + 1000 WHERE n % 2")
    shop.at_source("DELETE FROM numbers WHERE n = 12")
    lake.catch_up()
    assert unequal() == []


def test_a_change_log_has_the_hashes(empty_shop: Shop) -> None:
    shop = empty_shop
    shop.environment["SHOP_SALT"] = SALT
    text = FILE.format(name=f"p_{shop.database}", source=shop.database, sink=shop.target)
    shop.path.write_text(
        f'{text}tables: {{"{shop.database}.numbers": {{{TABLES["numbers"].in_file}}}}}\n'
    )
    shop.at_source(f"CREATE TABLE numbers ({TABLES['numbers'].definition})")
    shop.at_source("INSERT INTO numbers VALUES ('a', 1, 1), ('b', 2, 2), ('c', 3, 3)")
    logged = Logged.of(shop)
    logged.catch_up()
    shop.at_source("UPDATE numbers SET id = id + 10 WHERE n > 1")
    shop.at_source("DELETE FROM numbers WHERE n = 3")
    logged.catch_up()
    assert logged.operations("numbers") == "rrrdcdcd"
    assert {event["key"]["customer"] for event in logged.events("numbers")} == {
        sha256(f"{SALT}{number}".encode()).hexdigest() for number in (1, 2, 3, 12, 13)
    }
    found = sorted((row["mail"], row["m"]) for row in rows_of(logged.events("numbers")))
    assert found == [("a", 1), ("b", 2)]


def is_equal(lake: Lake, name: str) -> bool:
    """Compare a table's current rows with the source's, by dumps and by verify."""
    masked = ("mail", "id")[name == "numbers"]
    found = lake.shop.source.execute(f"SELECT mail, id, n FROM {name}", database=lake.shop.database)
    wanted = [
        tuple(
            sha256(f"{SALT}{value}".encode()).hexdigest() if column == masked else str(value)
            for column, value in zip(("mail", "id", "n"), row, strict=True)
        )
        for row in found
    ]
    assert Counter(lake.current(name)) == Counter(wanted)
    return lake.verified(name).equal
