"""Addresses and UUIDs are written for a whole column as they are one by one."""

from __future__ import annotations

import random
import uuid

import numpy as np
import pytest

from airflow_cdc_provider.columns.numpy_types import ByteArray
from airflow_cdc_provider.systems.mysql.binlog.rows.address_cells import (
    inet4_texts,
    inet6_texts,
    uuid_texts,
)
from airflow_cdc_provider.systems.mysql.dialect.addresses import canonical_text

WRITERS = {"uuid": uuid_texts, "inet4": inet4_texts, "inet6": inet6_texts}


def written(kind: str, value: bytes) -> str:
    """Write a value out whole, in no server's form."""
    if kind == "uuid":
        return str(uuid.UUID(bytes=value))
    if kind == "inet4":
        return ".".join(map(str, value))
    return ":".join(value[at : at + 2].hex() for at in range(0, 16, 2))


def cells(values: list[bytes]) -> ByteArray:
    width = len(values[0])
    return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), width)


@pytest.mark.parametrize(("kind", "width"), [("uuid", 16), ("inet4", 4), ("inet6", 16)])
def test_the_texts_of_a_column_are_those_of_its_values(kind: str, width: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    parts = (0, 0, 0, 1, 9, 10, 16, 99, 100, 255)
    values = [bytes(source.choice(parts) for _ in range(width)) for _ in range(3000)]
    for zeros in range(256) if kind == "inet6" else ():
        groups = (b"\0\0" if zeros >> at & 1 else source.randbytes(2) for at in range(8))
        values.append(b"".join(groups))
    values += [bytes(width), b"\xff" * width]
    if kind == "inet6":
        values += [bytes(10) + head + source.randbytes(4) for head in (b"\xff\xff", b"\0\0")]
    nulls = np.array([source.random() < 0.1 for _ in values])
    texts = WRITERS[kind](cells(values), nulls).to_pylist()
    expected = [
        None if null else canonical_text(kind, written(kind, value))
        for value, null in zip(values, nulls.tolist(), strict=True)
    ]
    assert texts == expected
    assert WRITERS[kind](cells(values), None).null_count == 0


@pytest.mark.parametrize(("kind", "width"), [("uuid", 16), ("inet4", 4), ("inet6", 16)])
def test_a_column_without_rows_has_no_texts(kind: str, width: int) -> None:
    assert WRITERS[kind](np.empty((0, width), np.uint8), None).to_pylist() == []
