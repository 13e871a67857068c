"""A table without a key of many types, which is written to at random."""

from __future__ import annotations

import random
from collections import Counter

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.pipeline.steps.verifying import verify
from tests.pipeline.conftest import Shop

NOTES = """CREATE TABLE notes (
  n INT, big BIGINT UNSIGNED, small DECIMAL(30,10), f FLOAT, d DOUBLE, yes BIT(9),
  word VARCHAR(20) CHARACTER SET utf8mb4, latin VARCHAR(20) CHARACTER SET latin1,
  fixed CHAR(9) CHARACTER SET latin1, long_word TEXT, bytes VARBINARY(20), padded BINARY(4),
  heap BLOB, day DATE, at DATETIME(6), stamp TIMESTAMP(3) NULL, clock TIME(6), y YEAR,
  kind ENUM('a', 'b', ''), flags SET('x', 'y', 'z'), doc JSON, spot POINT,
  twice INT AS (n * 2) STORED)"""
VALUES = {
    "n": ["1", "2", "-3"],
    "big": ["18446744073709551615", "0"],
    "small": ["0.0000000001", "-12345678901234567890.5"],
    "f": ["1.1", "0e0", "-0e0", "3.4e38", "1e-40"],
    "d": ["1.1", "0e0", "-0e0", "1.7976931348623157e308", "5e-324"],
    "yes": ["b'1'", "b'100000000'"],
    "word": ["'a'", "'A'", "'a '", "'ä'", "''", "'o''clock \\\\'", "'\U0001f600'"],
    "latin": ["'a'", "'A'", "'é'", "'€'"],
    "fixed": ["'b'", "'B'", "'ß'"],
    "long_word": ["REPEAT('ä', 3000)", "REPEAT('Ä', 3000)", "'X'", "'x'", "'x '"],
    "bytes": ["x'00'", "x''", "x'ff27'"],
    "padded": ["x'01'", "x'0100'", "x'61'"],
    "heap": ["REPEAT(x'00ff', 9000)", "x'00ff'", "'blob'"],
    "day": ["'1970-01-01'", "'9999-12-31'"],
    "at": ["'2001-02-03 04:05:06.000007'", "'2001-02-03 04:05:06'"],
    "stamp": ["'2001-02-03 04:05:06.007'", "'2030-01-01 00:00:00'"],
    "clock": ["'-838:59:59'", "'00:00:00.000001'"],
    "y": ["2001", "0"],
    "kind": ["'a'", "'b'", "''"],
    "flags": ["'x,z'", "''", "'y'"],
    "doc": ["'1'", "'1.0'", '\'[1, {"a": "é"}]\'', "'null'"],
    "spot": ["POINT(1, 2)", "POINT(-0e0, 2.5)"],
}


class Notes:
    """A table that has no key at the source, and is written to at random."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.table = TableId(shop.database, "notes")
        self.names = [*VALUES]
        seed = random.randrange(1 << 32)
        print(f"seed: {seed}")
        self.rng = random.Random(seed)

    def row(self) -> str:
        picked = [self.rng.choice([*VALUES[name], "NULL"]) for name in self.names]
        if self.rng.random() < 0.4:  # one of few, so that rows are there twice
            picked = [VALUES[name][0] for name in self.names]
            picked[0] = str(self.rng.randrange(3))
        return f"({', '.join(picked)})"

    def insert(self, rows: int) -> None:
        values = ", ".join(self.row() for _ in range(rows))
        names = ", ".join(self.names)
        self.shop.at_source(f"INSERT INTO notes ({names}) VALUES {values}")

    def write(self) -> None:
        """Change some rows, one of several equal ones among them."""
        name = self.rng.choice(self.names)
        value = self.rng.choice([*VALUES[name], "NULL"])
        for statement in self.rng.sample(
            (
                f"DELETE FROM notes LIMIT {self.rng.randrange(3)}",
                f"UPDATE notes SET {name} = {value} LIMIT {self.rng.randrange(4)}",
                f"UPDATE notes SET n = n + 1 WHERE n < 5 LIMIT {self.rng.randrange(9)}",
                f"DELETE FROM notes WHERE n = {self.rng.randrange(5)} LIMIT 2",
            ),
            k=2,
        ):
            self.shop.at_source(statement)
        self.insert(self.rng.randrange(1, 6))

    def at_sink(self, sql: str) -> None:
        self.shop.sink.execute(sql, database=self.shop.target)

    def is_equal(self) -> bool:
        """Compare dumps of both sides, and our own comparison."""
        (verdict,) = verify(self.shop.run(), tables=[self.table], settle_s=5).tables
        dumped = self.dumped_at_source() == self.dumped_at_sink()
        assert verdict.equal == dumped, verdict
        return dumped

    def dumped_at_source(self) -> Counter[tuple[object, ...]]:
        return Counter(self.shop.source.execute(self._dump(), database=self.shop.database))

    def dumped_at_sink(self) -> Counter[tuple[object, ...]]:
        return Counter(self.shop.sink_rows(self._dump()))

    def _dump(self) -> str:
        as_texts = {name: f"HEX({name})" for name in self.names}
        as_texts |= {name: f"HEX(CONCAT({name} + 0e0))" for name in ("f", "d")}
        as_texts["doc"] = "HEX(CAST(doc AS CHAR))"
        return f"SELECT {', '.join(as_texts.values())}, twice FROM notes"
