"""A look that was denied is never taken for "fine".

The accounts have the documented grants. Each grant is taken away in turn, and each statement that a
check sends is denied in turn; what then cannot be seen is told, and blocks where rows are at risk.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.findings import Finding, FindingCode, Level
from airflow_cdc_provider.pipeline.connections import EnvironmentDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, open_run
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.tables import captured_tables
from tests.pipeline.conftest import Shop
from tests.servers.accounts import (
    MARIADB_SOURCE,
    MYSQL_SOURCE,
    SINK,
    WITHOUT_GTIDS,
    Account,
    Right,
    least_privileged,
    rights,
    sink_account,
    source_account,
)
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer

FILE = """\
pipeline: looks
source: {{dsn_env: SHOP_DSN, tables: ["{source}.*"], server_id: 5400-5499}}
sink: {{dsn_env: DR_DSN, route: {{"{source}.*": "{sink}.*"}}}}
"""
EXAMPLES = {"`shop`.*", "`dr_shop`.*"}
"""The databases of the page's example."""
NEVER_ASKED_FOR = {"mariadb": {"REFERENCES", "TRIGGER"}}
"""MariaDB makes foreign keys without REFERENCES, and shows triggers to who may write."""


class Refused(FindingCode):
    """An error that refuses the pipeline, as if it were found."""

    REFUSED = ("pipeline.refused", "block", "it was refused with an error")


@dataclass
class World:
    """Two servers, accounts with the documented grants, and the pipeline between them."""

    source: Account
    sink: Account
    database: str
    target: str
    run: Run

    def findings(self) -> tuple[Finding, ...]:
        """Check the pipeline; an error that refuses it is a blocking finding too."""
        try:
            return check(self.run).findings
        except CdcError as error:
            code = Refused.REFUSED
            return (Finding(code, Level.BLOCK, error.where, error.what, fix=error.remedy),)

    def blocks(self) -> tuple[Finding, ...]:
        return tuple(each for each in self.findings() if each.level is Level.BLOCK)

    @contextmanager
    def lacking(self, account: Account, right: Right) -> Iterator[None]:
        """Take away what the page grants; on the test's databases, where it names its example's."""
        held = [each for each in account.rights if is_of(each, right)]
        assert held
        for each in held:
            account.revoke(each)
        yield
        for each in held:
            account.grant(each)


def is_of(held: Right, right: Right) -> bool:
    if held.privilege != right.privilege:
        return False
    of_example = right.level in EXAMPLES and held.level not in {"*.*", "`airflow_cdc`.*"}
    return of_example or held.level == right.level


def make_tables(server: SqlServer, database: str) -> None:
    for definition in (
        "parents (id INT PRIMARY KEY)",
        "children (id INT PRIMARY KEY, p INT, note VARCHAR(20) DEFAULT 'what?', "
        "kind ENUM('a?', 'b'), CONSTRAINT fk FOREIGN KEY (p) REFERENCES parents (id))",
    ):
        server.execute(f"CREATE TABLE {definition} DEFAULT CHARSET utf8mb4", database=database)


@contextmanager
def world(source: Account, sink: Account, database: str, folder: Path) -> Iterator[World]:
    target = next(each.level.strip("`.*") for each in sink.rights if each.privilege == "TRIGGER")
    path = folder / "looks.yaml"
    path.write_text(FILE.format(source=database, sink=target))
    dsns = EnvironmentDsns({"SHOP_DSN": source.dsn, "DR_DSN": sink.dsn})
    with least_privileged(source, sink), open_run(load_pipeline(path), dsns, owner="test") as run:
        yield World(source, sink, database, target, run)


@pytest.fixture
def pair(
    request: pytest.FixtureRequest,
    family: str,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
) -> Iterator[World]:
    here = request.getfixturevalue(f"{family}_server")
    there = here if family == "mariadb" else request.getfixturevalue("mysql_sink")
    database, target = fresh_database(here), fresh_database(there)
    make_tables(here, database)
    source, sink = source_account(here, database), sink_account(there, target)
    with world(source, sink, database, tmp_path) as made:
        yield made


@FAMILIES
def test_readmes_grants_are_enough(pair: World) -> None:
    assert pair.blocks() == ()


def is_named(found: tuple[Finding, ...], right: Right) -> bool:
    return any(right.privilege in each.fix or right.privilege in each.observed for each in found)


@FAMILIES
def test_each_right_at_a_source_is_missed(pair: World, family: str) -> None:
    for right in rights(MYSQL_SOURCE if family == "mysql" else MARIADB_SOURCE):
        with pair.lacking(pair.source, right):
            assert is_named(pair.blocks(), right), right


@FAMILIES
def test_each_right_at_a_sink_is_missed(pair: World, family: str) -> None:
    for right in rights(SINK):
        if right.privilege not in NEVER_ASKED_FOR.get(family, set()):
            with pair.lacking(pair.sink, right):
                assert is_named(pair.blocks(), right), right


def test_without_gtids_readmes_grants_are_enough_and_each_is_missed(
    mysql_sink: SqlServer, fresh_database: Callable[[SqlServer], str], tmp_path: Path
) -> None:
    target = fresh_database(mysql_sink)
    with MySqlServer({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        server.execute("CREATE DATABASE shop")
        make_tables(server, "shop")
        source = source_account(server, "shop", gtids=False)
        with world(source, sink_account(mysql_sink, target), "shop", tmp_path) as made:
            found = made.findings()
            assert [each for each in found if each.level is Level.BLOCK] == []
            assert "source.backup_admin" not in {each.code for each in found}
            (mode,) = [each.observed for each in found if each.code == "source.watermark"]
            assert "log_status" in mode
            for right in rights(WITHOUT_GTIDS):
                with made.lacking(made.source, right):
                    found = made.findings()
                slower = [each.code for each in found if right.privilege in each.fix]
                if right.privilege == "XA_RECOVER_ADMIN":
                    assert is_named(tuple(f for f in found if f.level is Level.BLOCK), right)
                else:  # no row is at risk, and it is said
                    assert "source.backup_admin" in slower, right


# --- each statement denied in turn -------------------------------------------------------------


SETS_NOTHING_AT_RISK = (
    # whether XA transactions are prepared matters without GTIDs only: see above
    ("XA RECOVER", "source.unseen"),
    ("information_schema.INNODB_TRX", "source.unseen"),
    ("SHOW REPLICAS", "source.unseen"),
    ("SHOW SLAVE HOSTS", "source.unseen"),
    ("information_schema.DISKS", "sink.unseen"),
    # the servers of these tests log what they replicate, or would, where that is asked
    ("SHOW REPLICA STATUS", "source.unseen"),
    # whether a '?' is one: told, and the sink refuses the row if it is not
    ("MAX_EXECUTION_TIME", "table.members"),
    ("SET STATEMENT max_statement_time", "table.members"),
    # only asked for where it would be wrong; without it fewer texts of warnings are kept
    ("SET SESSION max_error_count", ""),
)
"""Statements that may be denied without harm, and the finding that tells of it all the same."""


class Denying:
    """Denies one of the statements that are sent, as a server denies it; notes all of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: dict[str, None] = {}
        self.denied = ""
        send = pymysql.connections.Connection.query

        def query(connection: Any, sql: str | bytes, unbuffered: bool = False) -> Any:
            text = shape(sql)
            self.sent[text] = None
            if text == self.denied:
                raise pymysql.err.OperationalError(1227, "Access denied; you need something")
            return send(connection, sql, unbuffered)

        monkeypatch.setattr(pymysql.connections.Connection, "query", query)


def shape(sql: str | bytes) -> str:
    """Return a statement without the values that differ from run to run."""
    return re.sub(r"x'[0-9a-f]*'", "x''", sql if isinstance(sql, str) else sql.decode())


@FAMILIES
def test_no_denied_statement_leaves_a_check_fine(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    denying = Denying(monkeypatch)
    assert pair.blocks() == ()
    sent = [text for text in denying.sent if not text.startswith(("COMMIT", "ROLLBACK"))]
    assert len(sent) > 30
    for text in sent:
        denying.denied = text
        found = pair.findings()
        told = {str(each.code) for each in found if each.level is Level.BLOCK} or {
            code
            for part, code in SETS_NOTHING_AT_RISK
            if part in text and (not code or code in {each.code for each in found})
        }
        assert told, text


@FAMILIES
def test_a_trigger_at_the_sink_is_seen_with_or_without_trigger(pair: World, family: str) -> None:
    for name, definition in (("children", "id INT PRIMARY KEY, p INT"),):
        pair.sink.server.execute(
            f"CREATE TABLE {pair.target}.{name} ({definition}, note VARCHAR(20), "
            "kind ENUM('a?', 'b')) DEFAULT CHARSET utf8mb4"
        )
        pair.sink.server.execute(
            f"CREATE TRIGGER {pair.target}.tr BEFORE INSERT ON {pair.target}.{name} "
            "FOR EACH ROW SET NEW.p = 1"
        )
    assert "sink.trigger" in {each.code for each in pair.blocks()}
    pair.sink.revoke(Right("TRIGGER", f"`{pair.target}`.*"))
    wanted = {"mysql": "sink.privileges", "mariadb": "sink.trigger"}[family]
    assert wanted in {each.code for each in pair.blocks()}


# --- looks that a server answers with less, without an error -----------------------------------


@FAMILIES
def test_a_table_of_which_only_some_columns_may_be_read_is_refused(pair: World) -> None:
    server, database = pair.source.server, pair.database
    pair.source.revoke(Right("SELECT", f"`{pair.database}`.*"))
    server.execute(f"GRANT SELECT (id), INSERT (id) ON {database}.children TO {pair.source.user}")
    server.execute(f"GRANT SELECT ON {database}.parents TO {pair.source.user}")
    found = pair.blocks()
    assert any("children" in str(each) and "SELECT" in each.fix for each in found), found


@FAMILIES
def test_a_pattern_is_refused_where_tables_may_be_hidden_from_the_account(pair: World) -> None:
    pair.source.revoke(Right("SELECT", f"`{pair.database}`.*"))
    pair.source.server.execute(f"GRANT SELECT ON {pair.database}.parents TO {pair.source.user}")
    (found,) = pair.blocks()
    assert found.code == "table.hidden"
    assert f"GRANT SELECT ON `{pair.database}`.* TO" in found.fix


@pytest.mark.mariadb
@pytest.mark.parametrize("family", ["mariadb"])
def test_cascades_are_seen_by_an_account_that_may_only_read(pair: World) -> None:
    pair.source.server.execute(
        "CREATE TABLE grandchildren (id INT PRIMARY KEY, c INT, "
        "FOREIGN KEY (c) REFERENCES children (id) ON DELETE CASCADE)",
        database=pair.database,
    )
    (found,) = pair.blocks()
    assert (found.code, found.subject) == ("table.cascade", f"{pair.database}.grandchildren")


# --- a replica that does not log what it replicates --------------------------------------------


@pytest.fixture(scope="module")
def silent_replica() -> Iterator[tuple[MariaDbServer, str]]:
    """A MariaDB replica with `log_slave_updates = OFF`, the default, and what it replicates."""
    with MariaDbServer() as primary, MariaDbServer({"log-slave-updates": "OFF"}) as replica:
        file, place, *_ = primary.execute("SHOW MASTER STATUS")[0]
        replica.execute(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %s, MASTER_USER = %s, "
            "MASTER_PASSWORD = %s, MASTER_LOG_FILE = %s, MASTER_LOG_POS = %s",
            (primary.port, primary.user, primary.password, file, place),
        )
        replica.execute("START SLAVE")
        primary.execute("CREATE DATABASE shop")
        make_tables(primary, "shop")
        deadline = time.monotonic() + 30
        while not replica.execute(
            "SELECT 1 FROM information_schema.tables WHERE table_name = 'children'"
        ):
            assert time.monotonic() < deadline, "the replica does not follow"
            time.sleep(0.05)
        yield replica, "shop"


@pytest.mark.mariadb
@pytest.mark.parametrize("may_look", [True, False])
def test_a_replica_that_logs_nothing_is_refused(
    silent_replica: tuple[MariaDbServer, str],
    mysql_sink: SqlServer,
    fresh_database: Callable[[SqlServer], str],
    tmp_path: Path,
    may_look: bool,
) -> None:
    replica, database = silent_replica
    source = source_account(replica, database)
    sink = sink_account(mysql_sink, fresh_database(mysql_sink))
    if not may_look:
        source.revoke(Right("SLAVE MONITOR", "*.*"))
    with world(source, sink, database, tmp_path) as made:
        (found,) = made.blocks()
    if may_look:
        assert found.code == "source.log_replica_updates"
    else:
        assert found.code == "source.unseen"
        assert found.fix.startswith("GRANT SLAVE MONITOR ON *.* TO 'least_")


def test_a_source_that_lets_nobody_in_is_told_as_preflight(shop: Shop) -> None:
    source = Endpoint.parse(shop.environment["SHOP_DSN"])
    shop.environment["SHOP_DSN"] = f"mysql://cdc:wrong@{source.host}:{source.port}/"
    with pytest.raises(CdcError) as refused:
        check(shop.run())
    assert refused.value.where.startswith("connecting for preflight at ")
    with pytest.raises(CdcError) as refused:
        captured_tables(shop.run())  # as requests, a plan and verify do
    assert refused.value.where.startswith("connecting for a look at the tables at ")
