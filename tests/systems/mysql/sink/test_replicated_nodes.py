"""An edge's preflight sees whether its sink natively replicates from the other node."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pymysql.cursors
import pytest

from airflow_cdc_provider.columns.source_port import PreflightQuestion
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.findings import Finding, Level
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.topology import Topology
from airflow_cdc_provider.engine.sink.port import Owner, SinkSettings
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.preflight.own_log import OwnLogCode
from airflow_cdc_provider.systems.mysql.preflight.preflight import SourceFacts, source_look
from tests.servers.given import SqlServer
from tests.servers.replication import PATIENCE_S, server_of

EDGE = Topology("shops", "a", "b", TableId("airflow_cdc", "marker"))


@dataclass(frozen=True)
class Nodes:
    """A source and a sink, of one family; the sink replicates nothing."""

    family: str
    source: SqlServer
    sink: SqlServer

    def facts(self) -> SourceFacts:
        facts = source_look(Endpoint.parse(self.source.dsn()), PreflightQuestion(())).facts
        assert isinstance(facts, SourceFacts)
        return facts

    def found(
        self, facts: SourceFacts | None = None, *, account: str | None = None
    ) -> tuple[Finding, ...]:
        """Return an edge's findings about the sink."""
        sink = MySqlSink(
            Endpoint.parse(self.sink.dsn(account, account)),
            Owner(PipelineName("shop"), 1),
            settings=SinkSettings(edge=EDGE),
        )
        look = source_look(Endpoint.parse(self.source.dsn()), PreflightQuestion(()))
        return sink.preflight((), replace(look, facts=facts or look.facts))

    def replicated(self, facts: SourceFacts | None = None) -> Finding | None:
        found = [each for each in self.found(facts) if each.code is OwnLogCode.REPLICATED]
        assert len(found) <= 1
        return found[0] if found else None

    @contextmanager
    def channel(self, *names: str, start: str = "IO", port: int = 0) -> Iterator[None]:
        """Have the sink receive the source's log from its end on, and apply none of it."""
        for name in names or ("",):
            self._configure(name, port or self.source.port)
        try:
            for name in names or ("",):
                if start:
                    self._start(name, start)
            yield
        finally:
            if self.family == "mysql":
                self.sink.execute("STOP REPLICA")
                self.sink.execute("RESET REPLICA ALL")
            else:
                self.sink.execute("STOP ALL SLAVES")
                for name in {row["Connection_name"] for row in self.status()}:
                    self.sink.execute(f"RESET SLAVE '{name}' ALL")

    def _configure(self, name: str, port: int) -> None:
        account = (self.source.user, self.source.password)
        if self.family == "mysql":
            file, end = self.source.execute("SHOW BINARY LOG STATUS")[0][:2]
            self.sink.execute(
                f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, "
                "SOURCE_USER = %s, SOURCE_PASSWORD = %s, SOURCE_LOG_FILE = %s, "
                "SOURCE_LOG_POS = %s, SOURCE_AUTO_POSITION = 0, GET_SOURCE_PUBLIC_KEY = 1 "
                f"FOR CHANNEL '{name}'",
                (*account, file, end),
            )
            return
        file, end = self.source.execute("SHOW MASTER STATUS")[0][:2]
        self.sink.execute(
            f"CHANGE MASTER '{name}' TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, "
            "MASTER_USER = %s, MASTER_PASSWORD = %s, MASTER_LOG_FILE = %s, MASTER_LOG_POS = %s, "
            "MASTER_USE_GTID = no",
            (*account, file, end),
        )

    def _start(self, name: str, threads: str) -> None:
        if self.family == "mysql":
            self.sink.execute(f"START REPLICA {threads}_THREAD FOR CHANNEL '{name}'")
        else:
            self.sink.execute(f"START SLAVE '{name}' {threads}_THREAD")
        if threads == "IO":
            self._wait_for_an_identity(name)

    def _wait_for_an_identity(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not any(
            row.get("Channel_Name", row.get("Connection_name")) == name
            and row.get("Source_UUID", row.get("Master_Server_Id"))
            for row in self.status()
        ):
            assert time.monotonic() < deadline, "the replica has not met its source"
            time.sleep(0.05)

    def status(self) -> list[dict[str, Any]]:
        statement = "SHOW REPLICA STATUS" if self.family == "mysql" else "SHOW ALL SLAVES STATUS"
        connection = self.sink.connect(cursorclass=pymysql.cursors.DictCursor)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    @contextmanager
    def filter(self, table: str) -> Iterator[None]:
        """Have the sink leave a table out of what it replicates."""
        name = "Replicate_Wild_Ignore_Table"
        if self.family == "mysql":
            self.sink.execute(f"CHANGE REPLICATION FILTER {name} = ('{table}')")
        else:
            self.sink.execute(f"SET GLOBAL {name.lower()} = '{table}'")
        try:
            yield
        finally:
            if self.family == "mysql":
                self.sink.execute(f"CHANGE REPLICATION FILTER {name} = ()")
            else:
                self.sink.execute(f"SET GLOBAL {name.lower()} = ''")

    def seen_at(self, host: str, **settings: str) -> SourceFacts:
        """Return the source's facts as if it had another address and other settings."""
        facts = self.facts()
        merged: Mapping[str, str] = MappingProxyType(
            {**facts.capabilities.settings, "hostname": "elsewhere", **settings}
        )
        capabilities = replace(facts.capabilities, settings=merged)
        return replace(facts, host=host, port=1, capabilities=capabilities)


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    family: str = request.param
    # a source of its own: it notices late that a replica has gone, which others would see there
    with server_of(family) as source, server_of(family) as sink:
        yield Nodes(family, source, sink)


def test_a_sink_that_replicates_nothing_is_fine(nodes: Nodes) -> None:
    assert nodes.replicated() is None


def test_a_sink_that_replicates_from_the_source_is_blocked_until_the_fix_is_run(
    nodes: Nodes,
) -> None:
    with nodes.channel():
        finding = nodes.replicated()
        assert finding is not None
        assert finding.level is Level.BLOCK
        assert f"replicates natively from the other node (from 127.0.0.1:{nodes.source.port}" in (
            finding.observed
        )
        for statement in finding.fix.partition(" or leave")[0].split(";")[:-1]:
            nodes.sink.execute(statement)
        assert nodes.replicated() is None


def test_each_channel_is_looked_at_and_ended_by_its_name(nodes: Nodes) -> None:
    names = ["one", "two"] if nodes.family == "mysql" else ["one"]  # MariaDB takes one a source
    with nodes.channel(*names):
        fixes = [each.fix for each in nodes.found() if each.code is OwnLogCode.REPLICATED]
    assert len(fixes) == len(names)
    assert all(any(f"'{name}'" in fix for fix in fixes) for name in names)


def test_replication_with_a_filter_is_a_warning_that_names_it(nodes: Nodes) -> None:
    with nodes.filter("shop.%"), nodes.channel():
        finding = nodes.replicated()
    assert finding is not None
    assert finding.level is Level.WARN
    assert "shop.%" in finding.observed


def test_replication_that_is_stopped_is_a_warning_for_a_restart_begins_it(nodes: Nodes) -> None:
    with nodes.channel():
        nodes.sink.execute("STOP REPLICA" if nodes.family == "mysql" else "STOP ALL SLAVES")
        finding = nodes.replicated()
    assert finding is not None
    assert finding.level is Level.WARN
    assert "stopped for now" in finding.observed


def test_replication_from_another_server_is_fine(nodes: Nodes) -> None:
    other = nodes.seen_at("db9", server_uuid="another")
    other = replace(other, capabilities=replace(other.capabilities, server_id=7))
    with nodes.channel():
        assert nodes.replicated(other) is None


def test_a_server_id_that_agrees_alone_blocks_nothing(nodes: Nodes) -> None:
    """MySQL's UUID decides; on MariaDB another server may have the same id."""
    with nodes.channel():
        finding = nodes.replicated(nodes.seen_at("db9", server_uuid="another"))
    if nodes.family == "mysql":
        assert finding is None
    else:
        assert finding is not None
        assert finding.level is Level.WARN
        assert "may replicate" in finding.observed


def test_a_source_that_has_its_own_name_and_port_is_known_by_them(nodes: Nodes) -> None:
    """The pipeline reaches it by another address than the replica does."""
    with nodes.channel():
        finding = nodes.replicated(nodes.seen_at("tunnel", hostname="127.0.0.1"))
    assert finding is not None
    assert finding.level is Level.BLOCK


def test_a_replica_that_was_never_connected_is_a_warning_if_its_address_agrees(
    nodes: Nodes,
) -> None:
    with nodes.channel("new", start=""):
        finding = nodes.replicated()
    assert finding is not None
    assert finding.level is Level.WARN
    assert "may replicate" in finding.observed
    assert "server id not known" in finding.observed
    with nodes.channel("newer", start="", port=1):
        assert nodes.replicated() is None


def test_an_account_that_may_not_look_is_told_so_and_nothing_else(nodes: Nodes) -> None:
    nodes.sink.execute("CREATE USER blind IDENTIFIED BY 'blind'")
    try:
        nodes.sink.execute("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO blind")
        with nodes.channel():
            found = nodes.found(account="blind")
    finally:
        nodes.sink.execute("DROP USER blind")
    assert OwnLogCode.REPLICATED not in {each.code for each in found}
    unseen = [each.observed for each in found if each.code is OwnLogCode.UNSEEN]
    assert any("whether this server is a replica" in each for each in unseen)
