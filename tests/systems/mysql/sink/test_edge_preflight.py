"""What preflight says of numbers where both nodes give them out."""

from __future__ import annotations

import pytest

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.preflight.edges import edge_findings
from airflow_cdc_provider.systems.mysql.preflight.own_log import OwnLogCode
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
