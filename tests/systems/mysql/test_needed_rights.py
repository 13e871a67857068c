"""The grants that are printed for an account are those of the page of rights, right by right."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.server_look import Part
from airflow_cdc_provider.systems.registry import rights_at
from tests.servers.accounts import MARIADB_SOURCE, MYSQL_SOURCE, SINK, WITHOUT_GTIDS, Right, rights
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer
from tests.servers.throwaway import MySqlServer

if TYPE_CHECKING:
    import pytest

_GRANT = re.compile(r"GRANT (.+) ON (\S+) TO '[^']*'@'[^']*';")


def printed(server: SqlServer, part: Part, database: str) -> set[Right]:
    """Return what the statements for a server's account grant."""
    found: set[Right] = set()
    for statement in rights_at(Endpoint.parse(server.dsn()), part, [database]):
        match = _GRANT.fullmatch(statement)
        assert match is not None, statement
        found |= {Right(each.strip(), match[2]) for each in match[1].split(",")}
    return found


def page(*headings: str) -> set[Right]:
    return {right for heading in headings for right in rights(heading)}


def but(found: Iterable[Right], privilege: str) -> set[Right]:
    return {right for right in found if right.privilege != privilege}


@FAMILIES
def test_a_sources_grants_are_those_of_the_page(
    family: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(f"{family}_server")
    heading = MARIADB_SOURCE if family == "mariadb" else MYSQL_SOURCE
    assert printed(server, Part.SOURCE, "shop") == page(heading)


def test_a_source_without_gtids_is_granted_what_the_page_says_besides() -> None:
    with MySqlServer({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        assert printed(server, Part.SOURCE, "shop") == page(MYSQL_SOURCE, WITHOUT_GTIDS)


@FAMILIES
def test_a_sinks_grants_are_those_of_the_page(family: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(f"{family}_server")
    found, wanted = printed(server, Part.SINK, "dr_shop"), page(SINK)
    # MariaDB shows triggers to whoever may read the table
    assert found == (but(wanted, "TRIGGER") if family == "mariadb" else wanted)
