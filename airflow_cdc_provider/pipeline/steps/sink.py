"""Open what the steps need of the sink."""

from __future__ import annotations

from typing import Protocol

from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.sinks.ports import SinkLedger, TableBuilder


class Ledger(SinkLedger, Protocol):
    """A ledger that holds a connection."""

    def close(self) -> None:
        """Let go of the connection."""


class Builder(TableBuilder, Protocol):
    """A table builder that holds a connection."""

    def close(self) -> None:
        """Let go of the connection."""
