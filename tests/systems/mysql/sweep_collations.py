"""Every collation that both families have: their real order against what we say of it.

It takes many minutes: `make sweep`. A few are compared in every run, in `test_collation_order`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from airflow_cdc_provider.systems.mysql.dialect.collation_order import (
    IN_MARIADB,
    NOT_THE_SAME,
    SAME_IN_BOTH,
)
from tests.servers.given import SqlServer
from tests.systems.mysql.collations import order_of, samples

_PAIRS = sorted([*((name, name) for name in SAME_IN_BOTH), *IN_MARIADB.items()])


@pytest.mark.parametrize(("name", "other"), _PAIRS, ids=[name for name, _ in _PAIRS])
def test_a_counterpart_has_the_same_order_and_equality(
    name: str,
    other: str,
    mysql_server: SqlServer,
    mariadb_server: SqlServer,
    fresh_database: Callable[[SqlServer], str],
) -> None:
    texts = _samples_of(mysql_server, name.split("_", 1)[0])
    here = order_of(mysql_server, fresh_database(mysql_server), name, texts)
    there = order_of(mariadb_server, fresh_database(mariadb_server), other, texts)
    assert here == there


@cache
def _samples_of(server: SqlServer, charset: str) -> list[bytes]:
    return samples(server, charset)


def test_every_name_that_both_families_have_is_judged(
    mysql_server: SqlServer, mariadb_server: SqlServer
) -> None:
    ask = "SELECT collation_name FROM information_schema.collations"
    ours, theirs = (
        {str(name) for (name,) in server.execute(ask) if name}
        for server in (mysql_server, mariadb_server)
    )
    assert ours & theirs - SAME_IN_BOTH - {"binary"} == NOT_THE_SAME
