"""Few changes, read and written value by value, are the same as in columns: for every type.

Random small transactions on tables of every column type, as a column and as a key, go from a real
log into a real sink. Each batch is decoded both ways and compared; the sink's tables are compared
with the source's, byte for byte.
"""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest
from pymysql.err import MySQLError

from airflow_cdc_provider.columns.few_changes import FewMerged, FewTables
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.keys import KeyRange
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.splits import FinishedSplit, SnapshotSplit
from airflow_cdc_provider.core.stream_split import StreamSplit, hand_off
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates, arrow_schemas
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, own
from airflow_cdc_provider.systems.mysql.server.capabilities import read_capabilities
from airflow_cdc_provider.systems.mysql.server.connection import connect
from airflow_cdc_provider.systems.mysql.server.introspection import read_schema
from airflow_cdc_provider.systems.mysql.sink.commit_script import RowStatement
from airflow_cdc_provider.systems.mysql.sink.few_statements import FewStatements
from airflow_cdc_provider.systems.mysql.source.log_reader import LogReader
from airflow_cdc_provider.systems.mysql.source.snapshot_reader import SnapshotReader
from airflow_cdc_provider.systems.registry import open_sink
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import all_said, in_columns
from tests.systems.mysql.wire.round_trips import different
from tests.systems.mysql.wire.type_cases import TypeCase, cases_for

ROUNDS = 250
IN_COLUMNS = {"c_uuid", "c_inet4", "c_inet6", "c_geostd8", "c_tis620"}
"""Types whose values may all be left to the columns."""
EQUAL_KEYS = (
    ("FLOAT", ("0", "'-0'", "1")),
    ("DOUBLE", ("0", "'-0'", "1")),
    ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", ("'a'", "'A'", "'á'")),
    ("INT", ("1", "2", "3")),
)
"""Types of a key with values that are one for the server, and the plainest."""
_IDS = 6
_TEMPORAL = {"date", "datetime", "timestamp"}


@dataclass(frozen=True)
class Kept:
    """A table of one type: `(id, v)` with `id` the key, or with `v` in the key."""

    table: TableId
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"`{self.table.database}`.`{self.table.table}`"

    def each_value(self) -> Iterator[str]:
        """Write a statement for each value; the first makes the table known to a reader."""
        yield f"REPLACE INTO {self.name} (id, v, n) VALUES (99, {self.values[0]}, 0)"
        for number, value in enumerate(self.values * 2):
            yield f"REPLACE INTO {self.name} (id, v, n) VALUES ({100 + number}, {value}, 0)"

    def statement(self, rng: random.Random) -> str:
        """Write a statement that changes a row or a few."""
        value, number = rng.choice(self.values), rng.randrange(_IDS)
        match rng.randrange(6):
            case 0 | 1:
                return f"REPLACE INTO {self.name} (id, v, n) VALUES ({number}, {value}, 1)"
            case 2:
                return f"UPDATE IGNORE {self.name} SET v = {value} WHERE id = {number}"
            case 3:
                return f"UPDATE IGNORE {self.name} SET id = id + {_IDS} WHERE id = {number}"
            case 4:
                return f"UPDATE {self.name} SET n = n + 1 WHERE id < {number}"
            case _:
                return f"DELETE FROM {self.name} WHERE id IN ({number}, {number + _IDS})"


def values_of(case: TypeCase, *, in_key: bool) -> tuple[str, ...]:
    """Return a type's values as SQL, but for those that no pipeline copies unasked."""
    plain = [sql for sql, value in case.values if _is_plain(case, value, in_key=in_key)]
    return tuple(plain) if in_key else (*plain, "NULL")


def _is_plain(case: TypeCase, value: object, *, in_key: bool) -> bool:
    """Tell whether a value is no zero date, and in a key no index 0 of an ENUM."""
    if in_key and case.type.name == "enum" and value == case.type.no_member:
        return False
    return not (case.type.name in _TEMPORAL and isinstance(value, str))


def made(server: SqlServer, database: str, family: str) -> list[Kept]:
    """Make the tables."""
    found = []
    for number, case in enumerate(cases_for(family)):
        plain = Kept(TableId(database, f"t{number}"), values_of(case, in_key=False))
        key = Kept(TableId(database, f"k{number}"), values_of(case, in_key=True))
        _run(server, f"CREATE TABLE {plain.name} (id INT PRIMARY KEY, v {case.declared}, n INT)")
        found.append(plain)
        if not key.values:
            continue
        columns = f"v {case.declared} NOT NULL, id INT, n INT"
        try:
            _run(server, f"CREATE TABLE {key.name} ({columns}, PRIMARY KEY (v, id))")
        except MySQLError:  # no type of a key
            continue
        found.append(key)
    for number, (declared, values) in enumerate(EQUAL_KEYS):
        equal = Kept(TableId(database, f"x{number}"), values)
        columns = f"v {declared} NOT NULL, id INT, n INT, KEY (id)"
        _run(server, f"CREATE TABLE {equal.name} ({columns}, PRIMARY KEY (v))")
        found.append(equal)
    return found


def case_of(family: str, table: TableId) -> str:
    """Name a table's type, and whether it is in the key."""
    if table.table.startswith("x"):
        return "a plain key"
    case = list(cases_for(family))[int(table.table[1:])]
    return f"{case.name} as key" if table.table.startswith("k") else case.name


class Followed:
    """A log that is read as it comes, value by value and in columns, and applied."""

    def __init__(self, server: SqlServer, schemas: dict[TableId, TableSchema], to: str) -> None:
        self._server, self._schemas = server, schemas
        self._endpoint = endpoint = Endpoint.parse(server.dsn())
        with closing(connect(endpoint, purpose="tests")) as connection:
            self._status = read_capabilities(connection).status_statement
        plans = [
            TablePlan.alike(schema, TableId(to, table.table), 0)
            for table, schema in schemas.items()
        ]
        owner = Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)
        self._sink = open_sink("mysql", endpoint, owner, plans, SinkSettings())
        start = own(self._handed_off(plans).start)
        few, columns = (self._log(server_id, start) for server_id in (9301, 9302))
        in_columns(columns._decoder)
        self._logs = few, columns
        self._changes = self._sink.open_changes(arrow_schemas(schemas.values(), ZeroDates.FAIL))
        self.few: Counter[TableId] = Counter()
        """Batches of each table that were read value by value."""

    def close(self) -> None:
        for each in (*self._logs, self._changes):
            each.close()

    def follow(self) -> None:
        """Apply what came since the last time, and compare what both ways read of it."""
        file, offset = self._server.execute(self._status)[0][:2]
        end = BinlogPosition.of(file, offset)
        few, columns = (list(log.read_to(end)) for log in self._logs)
        assert all_said(few) == all_said(columns)
        for batch in few:
            self.few.update(
                table.table
                for table in (batch.tables.few if isinstance(batch.tables, FewTables) else ())
            )
            self._changes.apply(batch)

    def _handed_off(self, plans: Sequence[TablePlan]) -> StreamSplit:
        finished = []
        with closing(self._sink.open_ledger()) as ledger:
            ledger.take_over(1)
            with closing(self._sink.open_tables()) as builder:
                builder.create_missing(plans)
            reader = SnapshotReader(self._endpoint, self._schemas, server_id=9303)
            with closing(reader), closing(self._sink.open_splits()) as splits:
                for table, schema in self._schemas.items():
                    split = SnapshotSplit(
                        table, 0, schema.primary_key, schema.key_kinds, KeyRange()
                    )
                    rows, report = reader.read(split)
                    splits.publish(split, rows, report)
                    finished.append(FinishedSplit.of(split, report, backfilled=True))
            stream = hand_off(finished)
            ledger.store_stream(stream)
        return stream

    def _log(self, server_id: int, start: Any) -> LogReader:
        return LogReader(
            self._endpoint,
            server_id=server_id,
            start=start,
            captured=frozenset(self._schemas),
            schemas=self._schemas.get,
        )


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Counter[TableId]:
    """Count the commits that were written value by value, by table."""
    found: Counter[TableId] = Counter()
    of = FewStatements.of

    def counted(self: FewStatements, merged: FewMerged) -> list[RowStatement] | None:
        statements = of(self, merged)
        if statements is not None:
            found[self.plan.schema.table] += 1
        return statements

    monkeypatch.setattr(FewStatements, "of", counted)
    return found


@FAMILIES
@pytest.mark.sample(1)
def test_small_transactions_of_every_type_arrive_as_in_columns(
    family: str,
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    written: Counter[TableId],
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed: {seed}")
    rng = random.Random(seed)
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    database, to = fresh_database(server), fresh_database(server)
    tables = made(server, database, family)
    with closing(connect(Endpoint.parse(server.dsn()), purpose="tests")) as connection:
        schemas = {
            each.table: read_schema(connection, each.table, with_statement=True) for each in tables
        }
    followed = Followed(server, schemas, to)
    with closing(followed), closing(server.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for statement in chain.from_iterable(each.each_value() for each in tables):
            cursor.execute(statement)
            connection.commit()
            followed.follow()
        for number in range(ROUNDS):
            some = {tables[number % len(tables)], *rng.sample(tables, rng.randrange(3))}
            for each in some:
                for _ in range(rng.choice((1, 1, 2, 3))):
                    cursor.execute(each.statement(rng))
            if rng.random() < 0.05:
                connection.rollback()
            else:
                connection.commit()
            followed.follow()
    with closing(connect(Endpoint.parse(server.dsn()), purpose="tests")) as connection:
        for table, schema in schemas.items():
            copy = read_schema(connection, TableId(to, table.table))
            assert different(server, schema, copy) == [], table
    for counted in (followed.few, written):
        never = {case_of(family, table) for table in schemas if not counted[table]}
        assert {name.removesuffix(" as key") for name in never} <= IN_COLUMNS


def _run(server: SqlServer, statement: str) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
