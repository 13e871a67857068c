"""How the files of a table are laid out, at a sink whose tables are files: partitions and an order.

A file has rows of one partition: those for which the partition's fields have the same values. So
readers that ask for one day, or one region, open its files alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

_BY_COLUMN = re.compile(r"(year|month|day|hour)\s*\(\s*(\S(?:.*\S)?)\s*\)", re.DOTALL)
_BY_NUMBER = re.compile(r"(bucket|truncate)\s*\(\s*(\d+)\s*,\s*(\S(?:.*\S)?)\s*\)", re.DOTALL)
_MOST = 2**31 - 1


class Transform(StrEnum):
    """What is made of a column's value to choose the partition; Iceberg's specification has them.

    NULL stays NULL.
    """

    IDENTITY = "identity"
    """The value itself."""
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"
    BUCKET = "bucket"
    """A number below the one given, by a hash of the value."""
    TRUNCATE = "truncate"
    """Whole numbers: rounded down to a multiple of the number. Texts: so many first characters."""

    @property
    def has_number(self) -> bool:
        """Tell whether a number belongs to it."""
        return self in {Transform.BUCKET, Transform.TRUNCATE}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One of the values that rows of a partition share."""

    column: str
    """Of the sink's table."""
    transform: Transform = Transform.IDENTITY
    number: int = 0
    """Of `Transform.BUCKET` and `TRUNCATE`, from 1 on."""

    def __str__(self) -> str:
        if self.transform is Transform.IDENTITY:
            return self.column
        number = f"{self.number}, " if self.transform.has_number else ""
        return f"{self.transform}({number}{self.column})"

    @classmethod
    def parse(cls, text: str) -> PartitionField:
        """Read `region`, `day(created_at)` or `bucket(16, id)`; `ValueError` says what is wrong."""
        text = text.strip()
        if found := _BY_COLUMN.fullmatch(text):
            return cls(found[2], Transform(found[1]))
        if found := _BY_NUMBER.fullmatch(text):
            number = int(found[2])
            if not 1 <= number <= _MOST:
                raise ValueError(f"the number of {text} is not between 1 and {_MOST}")
            return cls(found[3], Transform(found[1]), number)
        if not text or text.endswith(")"):
            raise ValueError(
                f"{text!r} is no column and none of year, month, day, hour(column), "
                "bucket(number, column), truncate(number, column)"
            )
        return cls(text)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Partitions of a table, and the order of rows in its files."""

    partitions: tuple[PartitionField, ...] = ()
    order: tuple[str, ...] = ()
    """The columns of the sink's table that the rows of a file are sorted by, ascending."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the sink's table that it names."""
        return (*(each.column for each in self.partitions), *self.order)

    def to_json(self) -> Mapping[str, Any]:
        """Return the layout as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> TableLayout:
        """Read a layout from its JSON."""
        fields: Sequence[Mapping[str, Any]] = form.get("partitions", ())
        partitions = (
            PartitionField(each["column"], Transform(each["transform"]), each["number"])
            for each in fields
        )
        return cls(tuple(partitions), tuple(form.get("order", ())))


NO_LAYOUT = TableLayout()
