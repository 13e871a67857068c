"""Texts have the same weight exactly where the server takes them for equal, by any collation."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.systems.mysql.dialect.column_types import mysql_type
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.text_weights import TextWeights
from tests.servers.families import FAMILIES
from tests.servers.given import SqlServer

if TYPE_CHECKING:
    import pytest

PARTS = [
    *"aAäÄáeosßSzZyüUkKﬁfi  \t\0\x01",
    *"かカガ\u3099ー水\u200b\u0301\u00ad\u0130\u0131\u1e9eœæøØÅ\u212b",
    *"\U0001f600\U0001f60e",
    "ss",
    "oe",
    "ae",
]
"""What collations see in ways of their own: case, accents, width, ligatures, nothing at all."""
PAIRS = 60


def pairs(choose: random.Random, charset: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of texts that differ in one place, of characters that a charset has."""
    codec = {"latin1": "cp1252", "utf8mb4": "utf-8", "utf8mb3": "utf-8", "gbk": "gbk"}[charset]
    fits = [
        part
        for part in PARTS
        if part.encode(codec, "ignore").decode(codec, "ignore") == part
        and (charset != "utf8mb3" or max(part) < "\U00010000")
    ]
    for _ in range(PAIRS):
        one = choose.choices(fits, k=choose.randrange(4))
        other = list(one)
        at = choose.randrange(len(one) + 1)
        other[at : at + choose.randrange(2)] = choose.choices(fits, k=choose.randrange(3))
        yield "".join(one), "".join(other)


@FAMILIES
def test_weights_are_the_same_where_the_server_says_equal(
    request: pytest.FixtureRequest, family: str
) -> None:
    server: SqlServer = request.getfixturevalue(f"{family}_server")
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    choose = random.Random(seed)
    collations = server.execute(
        "SELECT DISTINCT c.collation_name, c.character_set_name "
        "FROM information_schema.collation_character_set_applicability c "
        "WHERE c.character_set_name IN ('utf8mb4', 'utf8mb3', 'latin1', 'gbk')"
    )
    assert len(collations) > 40
    equal = 0
    with closing(SinkSession.open(Endpoint.parse(server.dsn()), purpose="test")) as session:
        for name, charset in collations:
            full = str(name) if str(name).startswith(str(charset)) else f"{charset}_{name}"
            kind = mysql_type("varchar", charset=str(charset), collation=full)
            tried = list(pairs(choose, str(charset)))
            stored = [
                [f"CONVERT({literal(text)} USING {charset}) COLLATE {full}" for text in pair]
                for pair in tried
            ]
            (said,) = session.rows(f"SELECT {', '.join(f'{a} = {b}' for a, b in stored)}")
            weights = TextWeights(session).of(kind, [text for pair in tried for text in pair])
            ours = [weights[at] == weights[at + 1] for at in range(0, len(weights), 2)]
            for pair, by_server, by_us in zip(tried, said, ours, strict=True):
                assert bool(by_server) == by_us, (full, pair)
            equal += sum(ours)
    assert equal > PAIRS
