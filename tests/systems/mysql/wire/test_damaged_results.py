"""Damage to the rows of a SELECT is refused by name or decoded, never anything else.

There is no checksum on a connection without TLS but TCP's own, which is weak.
"""

from __future__ import annotations

import random

import pytest

from airflow_cdc_provider.core.errors import CdcError, IntegrityError
from airflow_cdc_provider.core.identifiers import quote_table
from airflow_cdc_provider.core.table_schema import TableSchema
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_protocol import RowFramer
from tests.servers.given import SqlServer
from tests.systems.mysql.binlog.captured import flavour_of
from tests.systems.mysql.binlog.damage import damage_bytes, within
from tests.systems.mysql.wire.raw_select import select_chunks
from tests.systems.mysql.wire.selected_rows import fill_every_type
from tests.systems.mysql.wire.text_packets import END, packets, row
from tests.systems.mysql.wire.type_cases import every_type_schema

TRIES = 400


def decode(stream: bytes, decoder: TextDecoder, step: int) -> None:
    """Decode what can be; what comes out must be whole."""
    framer = RowFramer(len(decoder.columns), chunk_bytes=1 << 16)
    for place in range(0, len(stream), step):
        if not framer.finished:
            framer.feed(stream[place : place + step])
        while (chunk := framer.chunk()) is not None:
            decoder.to_arrow(chunk).validate(full=True)


def stream_of(server: SqlServer, database: str) -> tuple[bytes, TableSchema]:
    """Return the rows of every type as a server sent them, and their table."""
    flavour = flavour_of(server)
    schema = every_type_schema(fill_every_type(server, database, flavour), flavour)
    # long texts only hide the other columns from damage
    short = f"SELECT {TextDecoder(schema).select_list} FROM {quote_table(schema.table)}"
    chunks = select_chunks(server, short)
    rows = [
        bytes(chunk.buffer[start:end])
        for chunk in chunks
        for start, end in zip(chunk.edges[:-1], chunk.edges[1:], strict=True)
    ]
    return b"".join(each for each in rows if len(each) < 1 << 14) + packets(END), schema


def test_damage_to_a_result_of_mysql_is_refused_by_name(
    mysql_server: SqlServer, mysql_database: str
) -> None:
    damage_rows(*stream_of(mysql_server, mysql_database))


def test_damage_to_a_result_of_mariadb_is_refused_by_name(
    mariadb_server: SqlServer, mariadb_database: str
) -> None:
    damage_rows(*stream_of(mariadb_server, mariadb_database))


def damage_rows(stream: bytes, schema: TableSchema) -> None:
    """Decode the rows again and again, a part of them damaged."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    refused = 0
    for _ in range(TRIES):
        damaged = bytearray(stream)
        place = source.randrange(len(stream))
        part = damaged[place : place + 200]
        damage_bytes(part, source)
        damaged[place : place + 200] = part
        try:
            with within(20):
                decode(
                    bytes(damaged),
                    TextDecoder(schema, zero_dates=source.choice(list(ZeroDates))),
                    source.choice((1 << 12, 1 << 15, 1 << 20)),
                )
        except CdcError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"bytes {place} to {place + 200}: {part.hex()}") from error
    assert refused > TRIES // 10


def test_a_length_that_leads_back_is_refused() -> None:
    framer = RowFramer(3, chunk_bytes=64)
    back = b"\xfe" + (-(1 << 40) & (1 << 64) - 1).to_bytes(8, "little")
    framer.feed(row(b"1", b"2", b"3") + packets(b"\1x" + back + b"\1y") + packets(END))
    chunk = framer.chunk()
    assert chunk is not None
    with pytest.raises(IntegrityError, match="length is out of bounds"):
        chunk.fields()


@pytest.mark.parametrize("step", [1, 4, 1 << 12])
def test_an_empty_packet_before_the_end_of_the_rows_is_refused(step: int) -> None:
    framer = RowFramer(1, chunk_bytes=64)
    stream = row(b"1") + packets(b"") + b"\xfe\x00\x00\x03\xfe" + packets(END)

    def read() -> None:
        for place in range(0, len(stream), step):
            framer.feed(stream[place : place + step])
            framer.chunk()

    with pytest.raises(IntegrityError, match="a row is an empty packet"):
        read()
