"""Moments of commits as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import as_arrow

if TYPE_CHECKING:
    from airflow_cdc_provider.columns.numpy_types import IntArray

MOMENT = pa.timestamp("us")
"""A date and time in UTC, as the columns of such moments have no zone."""


def moments_of(committed_us: IntArray) -> pa.Array:
    """Return commit times in microseconds since the epoch as moments; NULL where it is 0."""
    unknown = committed_us <= 0
    return as_arrow(committed_us, unknown if unknown.any() else None, MOMENT)
