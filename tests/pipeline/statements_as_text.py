"""What several tests need of `test_statements_as_text`."""

from __future__ import annotations

from contextlib import closing

from tests.pipeline.conftest import Shop


def as_text(shop: Shop, *statements: str) -> None:
    with closing(shop.source.connect(shop.database)) as connection, connection.cursor() as cursor:
        for statement in ("SET SESSION binlog_format = 'STATEMENT'", *statements):
            cursor.execute(statement)
