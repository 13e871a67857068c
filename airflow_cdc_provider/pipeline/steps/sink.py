"""Open what the steps need of the sink."""

from __future__ import annotations

from typing import Protocol

from airflow_cdc_provider.columns.sink_port import Owner, SinkLedger, TableBuilder, Targets
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.systems.mysql.sink.mysql_sink import Sink, open_sink


class Ledger(SinkLedger, Protocol):
    """A ledger that holds a connection."""

    def close(self) -> None:
        """Let go of the connection."""


class Builder(TableBuilder, Protocol):
    """A table builder that holds a connection."""

    def close(self) -> None:
        """Let go of the connection."""


class Claims(Targets, Protocol):
    """The claims of a pipeline, over a connection."""

    def close(self) -> None:
        """Let go of the connection."""


def open_ledger(run: Run) -> Ledger:
    """Open the ledger; it may write once it has been taken over."""
    return _sink(run).open_ledger()


def open_table_builder(run: Run) -> Builder:
    """Open what makes the sink's tables."""
    return _sink(run).open_tables()


def open_targets(run: Run, generation: int = 0) -> Claims:
    """Open what tells whose the tables are; only under a generation that owns may it write."""
    return _sink(run, generation).open_targets()


def _sink(run: Run, generation: int = 0) -> Sink:
    return open_sink(run.model.sink.type, run.servers.sink, Owner(run.name, generation), ())
