"""A definition that changes while rows are read again: they are read with the new one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.lifecycle import TablePhase
from airflow_cdc_provider.core.requests import Request, RequestKind, RequestStatus
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.backfilling import backfill_scope
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync, resync_scope
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from tests.pipeline.altered_tables import catch_up, is_equal
from tests.pipeline.changes_while_read import make
from tests.pipeline.conftest import Shop
from tests.pipeline.joins_watched import Moments
from tests.servers.given import SqlServer

FOLLOWED = {
    "a new column": ["ALTER TABLE orders ADD COLUMN more INT NOT NULL DEFAULT 7"],
    "another name": ["ALTER TABLE orders CHANGE note remark VARCHAR(60)"],
    "another name of the key": ["ALTER TABLE orders CHANGE id number INT NOT NULL"],
    "a wider type": ["ALTER TABLE orders MODIFY note TEXT"],
    "all rows taken away": ["TRUNCATE TABLE orders"],
}
READ_AGAIN = {
    "other values": ["UPDATE orders SET note = flag", "ALTER TABLE orders MODIFY note INT"],
    "another table in its place": [
        "CREATE TABLE orders_new LIKE orders",
        "INSERT INTO orders_new SELECT id + 1, 'new', flag FROM orders",
        "RENAME TABLE orders TO orders_old, orders_new TO orders",
    ],
    "dropped and made again": [
        "DROP TABLE orders",
        "CREATE TABLE orders (id INT PRIMARY KEY, flag INT, more TEXT)",
        "INSERT INTO orders VALUES (1, 2, 'three'), (40, 5, 'six')",
    ],
}
"""The stream asks for all of the table's rows then."""
CHANGES = FOLLOWED | READ_AGAIN
EXPECTED = {
    RequestKind.RESYNC: {RequestStatus.DONE},
    RequestKind.BACKFILL: {RequestStatus.DONE},
    RequestKind.ADD: {RequestStatus.DONE, RequestStatus.CANCELLED},
}
"""How requests end that read rows."""
MOMENTS = (1, 2)
"""Before which of a table's splits joins: it is read by then."""
AT_ANY_TIME = ("a new column", "all rows taken away", "another table in its place")


@pytest.fixture
def moments(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Moments:
    return Moments.of(shop, monkeypatch)


def ask(shop: Shop, kind: RequestKind, names: Sequence[str]) -> None:
    """Ask for all rows of tables, whose rows at the sink have drifted."""
    run, tables = shop.run(), [f"{shop.database}.{name}" for name in names]
    if kind is RequestKind.ADD:
        reset_tables(run, [TableId(shop.database, name) for name in names if name != "whole"])
        return
    for name in names:
        shop.sink.execute(f"UPDATE {name} SET note = '0'", database=shop.target)
    if kind is RequestKind.RESYNC:
        ask_resync(run, resync_scope(run, tables))
        return
    for table in tables:
        ask_resync(run, backfill_scope(run, table, "flag", start="-9", end="100000"))


class ReadAgain:
    """What is so from any family of servers."""

    @pytest.mark.parametrize("kind", EXPECTED)
    @pytest.mark.sample(1)
    def test_rows_are_read_with_the_definition_that_they_have_by_then(
        self,
        shop: Shop,
        moments: Moments,
        kind: RequestKind,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        at = [*((1, case) for case in CHANGES), *((2, case) for case in AT_ANY_TIME)]
        cases = {f"orders{number}": case for number, case in enumerate(at)}
        make(shop, [*cases, "whole"])
        catch_up(shop)
        ask(shop, kind, [*cases, "whole"])
        moments.at = {name: (moment, CHANGES[case]) for name, (moment, case) in cases.items()}
        catch_up(shop)
        run = catch_up(shop)
        assert {case for name, case in cases.items() if not is_equal(shop, name)} == set()
        assert is_equal(shop, "whole")
        assert {state.phase for state in run.store.tables(run.name)} == {TablePhase.CONSISTENT}
        assert {request.status for request in of_kind(run, kind)} == EXPECTED[kind]
        assert re.search(r"tried again \(failure 1, for 0 of at most 300 s\): CDC-", caplog.text)
        assert "`reset`" not in caplog.text


class TestMySql(ReadAgain):
    @pytest.mark.parametrize(
        "statement",
        [
            "ALTER TABLE orders DROP COLUMN flag",
            "ALTER TABLE orders CHANGE flag other INT NOT NULL",
        ],
    )
    @pytest.mark.parametrize("moment", MOMENTS)
    def test_a_backfill_of_a_column_that_is_gone_fails_by_name(
        self, shop: Shop, moments: Moments, moment: int, statement: str
    ) -> None:
        make(shop, ["orders1", "whole"])
        catch_up(shop)
        ask(shop, RequestKind.BACKFILL, ["orders1", "whole"])
        moments.at = {"orders1": (moment, [statement])}
        moments.writes = False
        run = catch_up(shop)
        gone, whole = of_kind(run, RequestKind.BACKFILL)
        assert gone.status is RequestStatus.FAILED
        assert "has no column flag any more" in str(gone.error)
        assert whole.status is RequestStatus.DONE
        assert is_equal(shop, "whole")


class TestFromMariaDb(ReadAgain):
    @pytest.fixture
    def mysql_server(self, mariadb_server: SqlServer) -> SqlServer:
        return mariadb_server


def of_kind(run: Run, kind: RequestKind) -> list[Request]:
    return [request for request in run.store.requests(run.name) if request.kind is kind]
