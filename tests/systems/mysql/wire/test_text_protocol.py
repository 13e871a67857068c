"""Packets become rows however they were cut on their way, and errors are never an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc_provider.core.errors import IntegrityError, ResultAbortedError
from airflow_cdc_provider.systems.mysql.wire.text_protocol import TextChunk
from airflow_cdc_provider.systems.mysql.wire.text_values import gathered
from tests.servers.given import SqlServer
from tests.systems.mysql.wire.raw_select import select_chunks
from tests.systems.mysql.wire.text_packets import END, LARGEST, framed, packets, row

OK_AS_END = b"\xfe\x00\x00\x02\x00\x03\x00"


def values(chunks: list[TextChunk]) -> list[tuple[bytes | None, ...]]:
    """Read the fields of all rows."""
    found = []
    for chunk in chunks:
        columns = [gathered(chunk.buffer, located).to_pylist() for located in chunk.fields()]
        found += list(zip(*columns, strict=True))
    return found


FIELDS = st.none() | st.binary(max_size=9) | st.sampled_from([b"x" * 250, b"y" * 251, b"\xfe" * 9])


@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS, FIELDS), max_size=20),
    step=st.integers(1, 300),
    chunk_bytes=st.integers(8, 500),
)
def test_rows_are_the_same_however_the_stream_is_cut(
    rows: list[tuple[bytes | None, ...]], step: int, chunk_bytes: int
) -> None:
    stream = b"".join(row(*fields) for fields in rows) + packets(END)
    framer, chunks = framed(stream, 3, step=step, chunk_bytes=chunk_bytes)
    assert framer.finished
    assert framer.rows == len(rows)
    assert values(chunks) == rows


@given(
    rows=st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=9),
    long_rows=st.lists(st.tuples(st.integers(0, 2999), st.integers(238, 70_000)), max_size=3),
    step=st.integers(5_000, 90_000),
    chunk_bytes=st.sampled_from([1 << 12, 1 << 16, 1 << 20]),
)
def test_long_rows_between_thousands_of_short_ones_change_nothing(
    rows: list[tuple[bytes | None, ...]],
    long_rows: list[tuple[int, int]],
    step: int,
    chunk_bytes: int,
) -> None:
    many = [rows[i % len(rows)] for i in range(3000)]
    for place, size in long_rows:
        many[place] = (b"a", b"\x05\0\0\0\xfe" + b"z" * size)
    stream = b"".join(row(*fields) for fields in many) + packets(END)
    framer, chunks = framed(stream, 2, step=step, chunk_bytes=chunk_bytes)
    assert framer.finished
    assert values(chunks) == many


@pytest.mark.parametrize("size", [240, 250, 251, 252, 253, 254, 255, 256, 257, 511, 512, 0x10000])
def test_a_row_about_as_long_as_a_byte_tells_is_found_among_short_ones(size: int) -> None:
    rows = [(b"1",)] * 5000 + [(b"y" * size,)] + [(b"2",)] * 5000
    stream = b"".join(row(*fields) for fields in rows) + packets(END)
    framer, chunks = framed(stream, 1, chunk_bytes=1 << 20)
    assert framer.finished
    assert values(chunks) == rows


def test_an_end_before_thousands_of_rows_is_refused() -> None:
    with pytest.raises(IntegrityError, match="follow the end"):
        framed(row(b"1") * 3000 + packets(END) + row(b"1") * 9000, 1, chunk_bytes=1 << 20)


def test_an_error_before_thousands_of_rows_is_raised() -> None:
    error = b"\xff" + (1317).to_bytes(2, "little") + b"#70100Query execution was interrupted"
    with pytest.raises(ResultAbortedError, match="error 1317"):
        framed(row(b"1") * 3000 + packets(error) + row(b"1") * 9000, 1, chunk_bytes=1 << 20)


@pytest.mark.parametrize("size", [0xFFFF, 0x10000, LARGEST - 5, LARGEST - 4, LARGEST, 40_000_000])
def test_a_row_of_any_size_is_whole(size: int) -> None:
    rows = [(b"a", None), (b"1", b"z" * size), (b"z" * size, b"2"), (b"b", b"")]
    stream = b"".join(row(*fields) for fields in rows) + packets(END)
    framer, chunks = framed(stream, 2, step=3_000_000, chunk_bytes=1 << 20)
    assert framer.finished
    assert values(chunks) == rows


def test_a_stream_that_stops_before_its_end_is_not_finished() -> None:
    framer, _chunks = framed(row(b"1") + packets(END)[:-1], 1)
    assert not framer.finished


def test_the_end_may_be_an_ok_packet_and_tells_the_warnings() -> None:
    framer, _chunks = framed(row(b"1") + packets(OK_AS_END), 1)
    assert framer.finished
    assert framer.warnings == 3


def test_an_error_after_rows_is_raised_with_the_servers_words() -> None:
    error = b"\xff" + (1317).to_bytes(2, "little") + b"#70100Query execution was interrupted"
    with pytest.raises(ResultAbortedError, match="error 1317, Query execution was interrupted"):
        framed(row(b"1") + packets(error), 1)


def test_bytes_behind_the_end_are_refused() -> None:
    with pytest.raises(IntegrityError, match="follow the end"):
        framed(packets(END) + b"\0", 1)


@pytest.mark.parametrize("fields", [(b"1",), (b"1", b"2", b"3")])
def test_a_row_with_another_number_of_fields_is_refused(fields: tuple[bytes, ...]) -> None:
    _framer, chunks = framed(row(*fields) + packets(END), 2)
    with pytest.raises(IntegrityError):
        chunks[0].fields()


def test_a_length_beyond_its_row_is_refused() -> None:
    _framer, chunks = framed(packets(b"\x09abc") + row(b"x" * 9) + packets(END), 1)
    with pytest.raises(IntegrityError):
        chunks[0].fields()


def test_rows_over_16_mib_come_whole_from_a_server(mysql_server: SqlServer) -> None:
    sql = (
        "SELECT 1, REPEAT('a', 20000000), 'x' UNION ALL SELECT 2, NULL, 'y' "
        "UNION ALL SELECT 3, REPEAT('b', 33554430), 'z'"
    )
    expected = [(b"1", 20_000_000, b"x"), (b"2", None, b"y"), (b"3", 33_554_430, b"z")]
    found = values(select_chunks(mysql_server, sql))
    sizes = [(key, None if text is None else len(text), end) for key, text, end in found]
    assert sizes == expected
    assert found[0][1] == b"a" * 20_000_000


def test_a_server_error_in_mid_result_is_not_the_end(mysql_server: SqlServer) -> None:
    sql = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
        "SELECT i, REPEAT('x', 100), 1 / 1, CAST(EXP(i) AS CHAR) FROM n"
    )
    with pytest.raises(ResultAbortedError, match="error 1690"):
        select_chunks(mysql_server, sql)
