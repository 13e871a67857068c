"""What preflight says of two nodes that are both written to: of numbers, and of JSON."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.preflight.edges import edge_findings
from airflow_cdc_provider.systems.mysql.preflight.own_log import OwnLogCode
from tests.servers.given import SqlServer
from tests.servers.throwaway import MariaDbServer, MySqlServer, ThrowawayServer
from tests.systems.mysql.splits import schema_of


@pytest.mark.parametrize("kind", [MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def test_nodes_that_may_give_out_the_same_numbers_are_a_warning(
    kind: type[ThrowawayServer],
) -> None:
    with kind() as server:
        server.execute("CREATE DATABASE d")
        server.execute("CREATE TABLE d.counted (id INT AUTO_INCREMENT PRIMARY KEY)")
        schema = schema_of(server, TableId("d", "counted"))
        plan = TablePlan.alike(schema, schema.table, 0)
        endpoint = Endpoint.parse(server.dsn())
        (found,) = edge_findings(endpoint, [plan], None)
        assert (found.code, found.level) == (OwnLogCode.NUMBERS, Level.WARN)
        server.execute("SET GLOBAL auto_increment_increment = 2")
        assert not [*edge_findings(endpoint, [plan], None)]


@pytest.mark.parametrize("source", [MySqlServer, MariaDbServer], ids=["mysql", "mariadb"])
def test_documents_of_which_one_node_keeps_the_text_are_a_warning(
    source: type[ThrowawayServer], mysql_server: SqlServer, mariadb_server: SqlServer
) -> None:
    nodes = {MySqlServer: mysql_server, MariaDbServer: mariadb_server}
    here = nodes.pop(source)
    (there,) = nodes.values()
    here.execute("CREATE DATABASE edge_json")
    try:
        here.execute("CREATE TABLE edge_json.docs (id INT PRIMARY KEY, doc JSON, t LONGTEXT)")
        schema = schema_of(here, TableId("edge_json", "docs"))
        plan = TablePlan.alike(schema, schema.table, 0)
        (found,) = edge_findings(Endpoint.parse(there.dsn()), [plan], None)
        assert (found.code, found.level) == (OwnLogCode.JSON, Level.WARN)
        assert (found.subject, found.observed.split(":")[0]) == ("edge_json.docs", "doc")
        assert not [*edge_findings(Endpoint.parse(here.dsn()), [plan], None)]
    finally:
        here.execute("DROP DATABASE edge_json")
