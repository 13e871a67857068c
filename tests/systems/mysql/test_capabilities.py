"""What a server can do is one value; what is not safe is not offered."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.systems.mysql.preflight.hidden_tables import hidden_findings
from airflow_cdc_provider.systems.mysql.preflight.log_settings import name_findings
from airflow_cdc_provider.systems.mysql.server.capabilities import (
    Capabilities,
    Flavour,
    WatermarkMode,
    read_capabilities,
)
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.server.privileges import parse_grants
from tests.servers.given import SqlServer
from tests.systems.mysql.sessions import source


def capabilities(
    flavour: Flavour = Flavour.MYSQL,
    version: tuple[int, int, int] = (8, 4, 0),
    settings: Mapping[str, str] | None = None,
) -> Capabilities:
    return Capabilities(
        flavour=flavour,
        version=version,
        version_text="",
        server_uuid="u",
        server_id=1,
        settings={"log_bin": "ON", "gtid_mode": "ON", **(settings or {})},
    )


def test_mysql_is_known_by_its_uuid(mysql_server: SqlServer) -> None:
    with source(mysql_server) as connection:
        found = read_capabilities(connection)
        (uuid,) = query(connection, "SELECT @@server_uuid")[0]
        query(connection, found.status_statement)
        query(connection, found.replicas_statement)
        query(connection, found.replica_status_statement)
    assert (found.flavour, found.server_uuid) == (Flavour.MYSQL, uuid)
    assert found.watermark_modes == (WatermarkMode.GTID_EXECUTED,)


def test_mariadb_is_known_by_its_id_and_host(mariadb_server: SqlServer) -> None:
    with source(mariadb_server) as connection:
        found = read_capabilities(connection)
        number, host = query(connection, "SELECT @@server_id, @@hostname")[0]
        query(connection, found.status_statement)
        query(connection, found.replicas_statement)
        query(connection, found.replica_status_statement)
    assert found.server_uuid == f"server_id-{number}@{host}"
    assert found.watermark_modes == (WatermarkMode.CONSISTENT_SNAPSHOT,)
    assert found.has_gtids


@pytest.mark.parametrize(
    ("found", "modes"),
    [
        (capabilities(settings={"log_bin": "OFF"}), ()),
        (capabilities(settings={"wsrep_on": "ON"}), ()),
        (capabilities(settings={"aurora_version": "3.04"}), ()),
        (capabilities(Flavour.MARIADB, settings={"wsrep_on": "ON"}), ()),
        (
            capabilities(settings={"gtid_mode": "ON_PERMISSIVE"}),
            (WatermarkMode.LOG_STATUS, WatermarkMode.LOG_FILE_START),
        ),
    ],
)
def test_only_safe_watermarks_are_offered(
    found: Capabilities, modes: tuple[WatermarkMode, ...]
) -> None:
    assert found.watermark_modes == modes


def test_statements_have_the_name_the_server_knows() -> None:
    assert capabilities(version=(8, 0, 36)).status_statement == "SHOW MASTER STATUS"
    assert capabilities(version=(8, 4, 0)).status_statement == "SHOW BINARY LOG STATUS"
    assert capabilities(Flavour.MARIADB, (11, 4, 2)).status_statement == "SHOW MASTER STATUS"


@pytest.mark.parametrize(("value", "blocks"), [("0", 0), ("1", 0), ("2", 1), ("3", 1)])
def test_a_source_whose_log_may_spell_names_otherwise_is_refused(value: str, blocks: int) -> None:
    seen = capabilities(settings={"lower_case_table_names": value})
    found = [*name_findings(seen, "source")]
    assert [each.level for each in found] == [Level.BLOCK] * blocks
    assert all(f"lower_case_table_names = {value}" in each.observed for each in found)


@pytest.mark.parametrize(
    ("pattern", "granted", "seen"),
    [
        ("/shop_[0-9]+/.*", "`shop\\_%`.*", True),
        ("/shop_[0-9]+/.*", "`sh%`.*", True),
        ("/shop_?[0-9]+/.*", "`shop%`.*", True),
        ("/shop_?[0-9]+/.*", "`shop\\_%`.*", False),
        ("/shop_1|crm/.*", "`shop\\_%`.*", False),
        ("/shop_1|crm/.*", "*.*", True),
        ("/(?i)shop/.*", "`shop`.*", False),
        ("/shop/./a|b/", "`shop`.*", True),
        ("shop_*.*", "`shop\\_%`.*", True),
        ("shop./a|b/", "`shop`.*", True),
        ("shop./a|b/", "`shop`.`a`", False),
        ("shop.`a*b`", "`other`.*", True),
    ],
)
def test_a_pattern_is_refused_where_the_rights_do_not_cover_it(
    pattern: str, granted: str, seen: bool
) -> None:
    grants = parse_grants([f"GRANT SELECT ON {granted} TO `a`@`%`"], "a")
    patterns = [TablePattern.parse(pattern)]
    found = [*hidden_findings(grants, capabilities(), "source", patterns)]
    assert (not found) is seen
    for each in found:
        given = parse_grants([each.fix.partition(";")[0]], "a")
        assert not [*hidden_findings(given, capabilities(), "source", patterns)], each.fix


def test_cascades_are_logged_only_where_the_server_does_them_itself() -> None:
    assert capabilities(version=(9, 6, 0)).logs_cascades
    assert not capabilities(version=(9, 5, 0)).logs_cascades
    assert not capabilities(
        version=(9, 7, 0), settings={"innodb_native_foreign_keys": "ON"}
    ).logs_cascades
    assert not capabilities(Flavour.MARIADB, (11, 8, 0)).logs_cascades
