"""Reading tables again whose definition changed meanwhile, until it stays the same."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from airflow_cdc_provider.core.backoff import BackOff
from airflow_cdc_provider.core.errors import SchemaMovedError

log = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE = BackOff(first_s=0.1, longest_s=2.0, give_up_s=20.0)
"""A table that several statements change, one after the other, stands still within seconds."""


def retry_while_schema_moves(look: Callable[[], T], patience: BackOff | None = None) -> T:
    """Repeat `look` while it raises `SchemaMovedError`, for some seconds at most.

    Default of `patience` is `PATIENCE`.
    """
    patience, began, failures = patience or PATIENCE, time.monotonic(), 0
    while True:
        try:
            return look()
        except SchemaMovedError as moved:
            failures += 1
            if patience.is_over(time.monotonic() - began):
                raise
            log.info("looked at again: cause=%s", moved.what)
            time.sleep(patience.wait_s(failures))
