"""Log that the server purged before it was applied: named, and the way back from it."""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError, LogPurgedError
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.jobs import SparkOptions
from airflow_cdc_provider.pipeline.steps.overrides import accept_source, source_to_accept
from airflow_cdc_provider.pipeline.steps.table_membership import reset_tables
from airflow_cdc_provider.systems.mysql.source.log_end import MySqlLogEnd
from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.pipeline.test_accepted_source import TABLES, copied, equal_tables, names, target
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer
from tests.systems.mysql.law_10_lineage import whole_position

__all__ = ["target"]
_NO_GTIDS = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
KINDS = [
    pytest.param("mysql", marks=pytest.mark.mysql),
    pytest.param("mysql without GTIDs", marks=pytest.mark.mysql),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]
_PURGED_WITHIN_S = 30.0


def server_with_gap(kind: str) -> tuple[AbstractContextManager[SqlServer], str]:
    """Return a server, and how it names the three transactions that were purged."""
    match kind:
        case "mysql":
            return MySqlServer(), r"purged transactions we have not read: [0-9a-f-]{36}:\d+-\d+"
        case "mysql without GTIDs":
            return MySqlServer(_NO_GTIDS), r"has purged bin\.000001; we stopped at bin\.000001:\d+"
        case _:
            return MariaDbServer(), r"have not read: of domain 0 the numbers (\d+) to (\d+)"


def purge(server: SqlServer) -> None:
    """Purge all files but the last; a dump that is about to end may hold one for a moment."""
    server.execute("FLUSH BINARY LOGS")
    until = time.monotonic() + _PURGED_WITHIN_S
    while len(files := server.execute("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < until, files
        server.execute(f"PURGE BINARY LOGS TO '{files[-1][0]}'")


@pytest.mark.parametrize("kind", KINDS)
def test_purged_log_is_named_and_all_tables_are_read_again_if_a_person_says_so(
    kind: str, mysql_sink: SqlServer, target: str, tmp_path: Path
) -> None:
    made, gap = server_with_gap(kind)
    with made as source, copied(source, mysql_sink, target, tmp_path) as shop:
        for number in (5, 6, 7):
            shop.at_source(f"INSERT INTO others VALUES ({number}, {number})")
        purge(source)
        shop.at_source("DELETE FROM orders WHERE id = 1")
        refused = _refused(shop)
        found = re.search(gap, refused.what)
        assert found is not None, refused.what
        if found.groups():
            assert int(found[2]) - int(found[1]) == 2
        assert "`accept`" in refused.remedy
        with pytest.raises(LogPurgedError, match="`accept`"):
            reset_tables(shop.run(), [TableId("shop", "orders")])
        # it has not left the stream, which cannot go on without it either
        assert names(source_to_accept(shop.run())) == sorted(TABLES)
        accept_source(shop.run(), reason="the disk was full")
        shop.at_source("UPDATE orders SET v = 8 WHERE id = 2")
        # how much log lies behind a position of GTIDs alone is not known, so Spark reads it
        run_until_caught_up(shop.run(), SparkOptions(log_folder=tmp_path / "logs"))
        assert equal_tables(shop) == set(TABLES)
        shop.at_source("UPDATE orders SET v = 9 WHERE id = 2")
        catch_up(shop)
        assert equal_tables(shop) == set(TABLES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_position_is_outside_the_log_only_if_what_follows_it_is_gone(kind: str) -> None:
    with server_with_gap(kind)[0] as server:
        server.execute("CREATE DATABASE d")
        with closing(MySqlLogEnd(Endpoint.parse(server.dsn()), purpose="test")) as log_end:
            placed = whole_position(server)
            known = [placed, log_end.now(), log_end.seen()]
            if placed.gtids is not None:
                known.append(replace(placed, binlog=None))
            assert [log_end.reach(each).is_outside for each in known] == [False] * len(known)
            purge(server)
            for each in known:
                # nothing came behind it: by its GTIDs the stream goes on, by its place it cannot
                assert log_end.reach(each).is_outside == (each.gtids is None)
            server.execute("CREATE DATABASE e")
            purge(server)
            for each in known:
                assert log_end.reach(each).applied_bytes is None
                assert log_end.reach(each).is_outside


def _refused(shop: Shop) -> CdcError:
    with pytest.raises(LogPurgedError) as refused:
        catch_up(shop)
    return refused.value
