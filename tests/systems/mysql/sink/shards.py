"""Two tables of a real source that share one of a real sink, their stream in a test's hands."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from airflow_cdc_provider.columns.shaping import shaped_rows
from airflow_cdc_provider.columns.source_port import LogReading, SplitReading
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.keys import Key, KeyRange
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.splits import FinishedSplit
from airflow_cdc_provider.core.stream_split import hand_off
from airflow_cdc_provider.core.table_shape import OutputColumn, TableShape
from airflow_cdc_provider.core.verify_report import VerifyReport
from airflow_cdc_provider.engine.requests.joined_rows import joined_rows, shaped_join
from airflow_cdc_provider.engine.sink.port import JoinedRows, Owner, SinkSettings, SplitSink
from airflow_cdc_provider.engine.verify.verify import verify
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from tests.servers.given import SqlServer
from tests.systems.mysql.sink.joins import OPTIONS
from tests.systems.mysql.splits import schema_of, split_of

Row = tuple[Any, ...]
NORTH, SOUTH = "north", "south"
SHOPS = (NORTH, SOUTH)
COLUMNS = {NORTH: "id, name, mail", SOUTH: "id, name, extra"}
MADE = {
    NORTH: "id INT PRIMARY KEY, name VARCHAR(60), mail VARCHAR(60), UNIQUE KEY mail (mail)",
    SOUTH: "id INT PRIMARY KEY, name VARCHAR(60), extra INT",
}
TARGET = (
    "shop VARCHAR(129) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, id INT, "
    "name VARCHAR(60), mail VARCHAR(60), extra INT, PRIMARY KEY (shop, id)"
)


def shard_of(shop: str, **options: Any) -> TableShape:
    """Return the shape of a shop's table."""
    shop_column = OutputColumn("shop", constant=shop)
    return TableShape((shop_column,), others=True, shard="shop", **options)


@dataclass
class ShardWorld:
    """Each shop has a database with the table `orders`; the sink has one for both."""

    source_server: SqlServer
    sink_server: SqlServer
    databases: dict[str, str]
    sink_database: str
    local_files: bool = True
    writers: int = 1
    numbers: Iterator[int] = field(default_factory=lambda: count(2))
    stack: ExitStack = field(default_factory=ExitStack)
    owner: Owner = field(
        default_factory=lambda: Owner(PipelineName(f"p_{secrets.token_hex(6)}"), 1)
    )

    def make(self, *, made: dict[str, str] = MADE, target: str = TARGET, **options: Any) -> None:
        """Make the tables, those of the source with three rows of the same keys each."""
        for shop in SHOPS:
            named = [f"({number}, '{shop} {number}', NULL)" for number in (1, 2, 3)]
            self.at_source(
                shop,
                f"CREATE TABLE orders ({made[shop]}) CHARACTER SET utf8mb4",
                f"INSERT INTO orders VALUES {', '.join(named)}",
            )
        self.at_sink(f"CREATE TABLE orders ({target}) CHARACTER SET utf8mb4")
        self.plan(**options)

    def plan(self, **options: Any) -> None:
        """Plan the tables as they are."""
        self.plans = {shop: self._plan(shop, shard_of(shop, **options)) for shop in SHOPS}
        self.source = MySqlSource(Endpoint.parse(self.source_server.dsn()))
        self.schemas = {plan.schema.table: plan.schema for plan in self.plans.values()}
        self.reading = SplitReading(self.schemas, 0, True, 1 << 24, OPTIONS)

    def _plan(self, shop: str, shape: TableShape) -> TablePlan:
        schema = schema_of(self.source_server, TableId(self.databases[shop], "orders"))
        empty = MySqlSink(Endpoint.parse(self.sink_server.dsn()), self.owner)
        target = empty.target_of(schema, TableId(self.sink_database, "orders"), shape)
        return TablePlan(schema, target, 0, shape)

    def begin(self) -> None:
        """Become the owner of the pipeline."""
        self.ledger = self.opened(self.sink().open_ledger())
        self.ledger.take_over(1)

    def start(self) -> None:
        """Copy the tables, and hand them to the stream."""
        self.begin()
        self.ledger.store_stream(hand_off([self.copy(shop) for shop in SHOPS]))
        log = LogReading(self.schemas, 1, options=OPTIONS)
        self.log = self.opened(self.source.log_reader(self.ledger.stream(), log))
        self.changes = self.opened(self.sink().open_changes(self.source.change_columns(log)))
        self.advance()

    def copy(self, shop: str, *, splits: SplitSink | None = None) -> FinishedSplit:
        """Publish all of a shop's rows as one split, over a session of its own or the one given."""
        if splits is None:
            with closing(self.sink().open_splits()) as own:
                return self.copy(shop, splits=own)
        plan = self.plans[shop]
        split = split_of(plan.schema)
        with closing(self.source.split_reader(self.reading)) as reader:
            rows, report = reader.read(split)
        stamp = RowStamp.of_read(report.high, report.high)
        splits.publish(split, shaped_rows(rows, plan, stamp), report)
        backfilled = split.is_backfilled(wanted=self.reading.backfill)
        return FinishedSplit.of(split, report, backfilled=backfilled)

    def join(self, shop: str, start: Key | None = None, end: Key | None = None) -> None:
        """Read a range of a shop's rows again, and join it."""
        plan, sink, number = (
            self.plans[shop],
            self.opened(self.sink().open_joins()),
            next(self.numbers),
        )
        reader = self.opened(self.source.split_reader(replace(self.reading, reader=number)))
        split = split_of(plan.schema, start, end, number)
        rows, report = reader.read(split)
        self.advance()

        def rows_at(position: LogPosition) -> JoinedRows:
            changes = reader.changes(split, report, position)
            stamp = RowStamp.of_read(position, report.high)
            return shaped_join(joined_rows(rows, changes, plan.schema, split), plan, stamp)

        epoch = sink.begin("r1", [plan.schema.table])
        assert sink.join("r1", split, report, rows_at, epoch=epoch) is not None

    def advance(self) -> None:
        """Apply the log up to its end."""
        with closing(self.source.log_end(purpose="test")) as log_end:
            end = log_end.now()
        for batch in self.log.read_up_to(end, batch_s=1.0):
            self.changes.apply(batch)
        if self.changes.quiet is not None:
            self.ledger.pass_over(self.changes.quiet)
            self.changes.quiet = None

    def verify(self, **options: Any) -> VerifyReport:
        return verify(self.source, self.sink(), [*self.plans.values()], **options)

    def count(self, shop: str, keys: KeyRange) -> int:
        """Count a shop's rows at the sink as an estimate does."""
        plan = self.plans[shop]
        with closing(self.sink().open_side()) as side:
            there = side.definition(plan.sink_table)
            assert there is not None
            return side.counts(there, ("id",), shard=plan.shard).count(keys, most=99)

    # --- both sides ---------------------------------------------------------------------------

    def at_source(self, shop: str, *statements: str) -> None:
        for statement in statements:
            self.source_server.execute(statement, database=self.databases[shop])

    def in_one_transaction(self, *statements: str) -> None:
        """Run statements in one transaction; `{north}` and `{south}` are the tables."""
        tables = {shop: f"`{self.databases[shop]}`.orders" for shop in SHOPS}
        with closing(self.source_server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for statement in statements:
                cursor.execute(statement.format(**tables))
            cursor.execute("COMMIT")

    def at_sink(self, *statements: str) -> None:
        for statement in statements:
            self.sink_server.execute(statement, database=self.sink_database)

    def held(self, where: str = "TRUE", *, columns: str = "*") -> list[Row]:
        sql = f"SELECT {columns} FROM orders WHERE {where} ORDER BY shop, id"
        return [tuple(row) for row in self.sink_server.execute(sql, database=self.sink_database)]

    def wanted(self) -> list[Row]:
        """Return what the sink is to hold: the rows of all shops, with NULL for what one lacks."""
        north, south = (f"`{self.databases[shop]}`.orders" for shop in SHOPS)
        sql = (
            f"SELECT '{NORTH}' AS shop, id, name, mail, NULL FROM {north} UNION ALL "
            f"SELECT '{SOUTH}', id, name, NULL, extra FROM {south} ORDER BY shop, id"
        )
        return [tuple(row) for row in self.source_server.execute(sql)]

    def sink(self) -> MySqlSink:
        apply = ApplyMode.MERGED if self.writers > 1 else ApplyMode.TRANSACTIONS
        settings = SinkSettings(apply=apply, writers=self.writers, local_files=self.local_files)
        endpoint = Endpoint.parse(self.sink_server.dsn())
        return MySqlSink(endpoint, self.owner, tuple(self.plans.values()), settings)

    def opened(self, thing: Any) -> Any:
        self.stack.callback(thing.close)
        return thing
