"""Offsets of the stream as Spark sees them: log positions in one canonical JSON.

Spark compares offsets as text and never orders them, so the same place must always be written the
same way, and a place that would go back is refused by whoever tells the log's end. An offset only
paces the micro-batches: where reading really starts is what the sink's ledger says.
"""

from __future__ import annotations

import json

from airflow_cdc_provider.core.codec import Json, dumps, position_from_json, position_to_json
from airflow_cdc_provider.core.positions import LogPosition


def offset_of(position: LogPosition) -> dict[str, Json]:
    """Write a position as an offset; the order of its parts never varies.

    What the log held before it is left out: one place has one text.
    """
    offset: dict[str, Json] = json.loads(dumps(position_to_json(position.bare())))
    return offset


def position_of(offset: dict[str, Json]) -> LogPosition:
    """Read an offset."""
    return position_from_json(offset)
