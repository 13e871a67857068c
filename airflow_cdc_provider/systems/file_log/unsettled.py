"""Tables of the source that are being read while the log goes on: their files wait for that.

Readers of a table would find it half empty else. Where several tables of the source go to one, all
of its files behind the first one wait: they are in one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.core.identifiers import TableId


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Where a table of the source has begun, or begun again, and is still being read."""

    table: TableId
    first: int
    """The first of its folder's files of changes that counts only once all rows are there."""


def begun(
    waiting: Iterable[Unsettled], table: TableId, count: int, *, is_shard: bool
) -> tuple[Unsettled, ...]:
    """Return what waits once a table begins, or begins again, with a folder's file `count`.

    A shard has others beside it.
    """
    own, others = [Unsettled(table, count)], list[Unsettled]()
    for each in waiting:
        (others if is_shard and each.table != table else own).append(each)
    return (*others, Unsettled(table, min(each.first for each in own)))


def unsettled_to(found: Mapping[str, tuple[Unsettled, ...]]) -> dict[str, Any]:
    """Return as JSON, by folder, what waits: one pair, or a list of them."""
    forms = {
        folder: [[str(each.table), each.first] for each in waiting]
        for folder, waiting in found.items()
    }
    return {folder: form[0] if len(form) == 1 else form for folder, form in forms.items()}


def unsettled_from(form: Mapping[str, Any]) -> dict[str, tuple[Unsettled, ...]]:
    """Read from JSON, by folder, what waits."""
    return {
        folder: tuple(
            Unsettled(TableId.parse(table), first)
            for table, first in ([said] if isinstance(said[0], str) else said)
        )
        for folder, said in form.items()
    }
