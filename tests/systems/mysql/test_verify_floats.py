"""Verify tells floating-point numbers apart by every bit, on all servers and between them."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Collection, Sequence

import pytest

from airflow_cdc_provider.core.verify_report import DifferenceKind
from tests.servers.given import SqlServer
from tests.systems.mysql.verify import FROM_MARIADB, MYSQL, TO_MARIADB, Pair

SERVERS = pytest.mark.parametrize(("here", "there"), [MYSQL, TO_MARIADB, FROM_MARIADB])
DOUBLES = [
    -8.068416701529296e-191,
    2.0812302803867832e195,
    -1.7976931348623157e308,
    2.2250738585072014e-308,
    -4.450147717014403e-308,
    5e-324,
    1.09978e-15,
    1e15,
    -1e16,
    9007199254740993.0,
    0.1 + 0.2,
    0.0,
]
SINGLES = [1.09978e-15, -1e-45, 1.17549435e-38, 3.40282346e38, -16777216.0, 0.1, 1e10, 0.0]


def single(bits: bytes) -> float:
    return float(struct.unpack("<f", bits)[0])


def pairs_of_numbers() -> list[tuple[float, float]]:
    """Return finite doubles and singles: nasty ones, and some of every exponent."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    generator = random.Random(seed)
    doubles = [struct.unpack("<d", generator.randbytes(8))[0] for _ in range(600)]
    singles = [single(generator.randbytes(4)) for _ in range(600)]
    doubles = DOUBLES + [each for each in doubles if math.isfinite(each)]
    singles = [single(struct.pack("<f", each)) for each in SINGLES] + singles
    return list(zip(doubles, (each for each in singles if math.isfinite(each)), strict=False))


def double_beside(number: float) -> float:
    return math.nextafter(number, 0.0) if number else 5e-324


def single_beside(number: float) -> float:
    bits = int.from_bytes(struct.pack("<f", number), "little")
    return single((bits - 1 if number else 1).to_bytes(4, "little"))


def listed(rows: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"({at}, '{double!r}', '{half!r}')" for at, (double, half) in enumerate(rows))


def listed_keys(keys: Collection[float]) -> str:
    return ", ".join(f"('{key!r}', 0)" for key in keys)


@pytest.fixture(params=[False, True], ids=["the servers' digest", "by columns"])
def between(
    request: pytest.FixtureRequest,
    fresh_database: Callable[[SqlServer], str],
    here: str,
    there: str,
) -> Pair:
    left, right = request.getfixturevalue(here), request.getfixturevalue(there)
    databases = fresh_database(left), fresh_database(right)
    return Pair(left, right, *databases, by_columns=request.param)


@SERVERS
def test_floats_are_equal_exactly_if_all_their_bits_are(between: Pair) -> None:
    rows = pairs_of_numbers()
    between.both("CREATE TABLE {} (id INT PRIMARY KEY, d DOUBLE, f FLOAT)")
    between.both(f"INSERT INTO {{}} VALUES {listed(rows)}")
    report = between.verify()
    assert report.equal, report.tables[0].samples
    for moved in (
        [(double_beside(double), half) for double, half in rows],
        [(double, single_beside(half)) for double, half in rows],
    ):
        between.at_sink(f"REPLACE INTO {{}} VALUES {listed(moved)}")
        assert between.verify().tables[0].different == len(rows)


@SERVERS
@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_rows_are_found_by_a_key_of_any_bits(between: Pair, kind: str) -> None:
    keys = {half if kind == "FLOAT" else double for double, half in pairs_of_numbers()}
    between.both(f"CREATE TABLE {{}} (k {kind} PRIMARY KEY, v INT)")
    between.both(f"INSERT INTO {{}} VALUES {listed_keys(keys)}")
    between.both("INSERT INTO {} VALUES (1.25, 0)")
    assert between.verify().equal
    between.at_sink("UPDATE {} SET v = 1 WHERE k = 1.25")
    table = between.verify().tables[0]
    assert [(each.kind, each.key) for each in table.samples] == [(DifferenceKind.DIFFERENT, "1.25")]


@SERVERS
def test_minus_zero_and_zero_are_one_value(between: Pair) -> None:
    between.both("CREATE TABLE {} (id INT PRIMARY KEY, d DOUBLE, f FLOAT)")
    between.at_source("INSERT INTO {} VALUES (1, -0e0, -1e-30 * 1e-30)")
    between.at_sink("INSERT INTO {} VALUES (1, 0, 0)")
    assert between.verify().equal
    between.at_sink("UPDATE {} SET d = -0e0, f = -1e-30 * 1e-30")
    between.at_source("UPDATE {} SET d = 0, f = 0")
    assert between.verify().equal
    between.at_sink("UPDATE {} SET d = 5e-324")
    assert between.verify().tables[0].different == 1
