"""A sink from plain values: what a job names, opened where it is used.

`Sink` holds no connection, so it travels to executors as it is. Each part it opens has a
connection of its own and is closed by who asked for it. What writes rows is imported where it is
opened: it brings Arrow, and who only asks the ledger or makes tables needs none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.sink_port import Owner
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.jobspec import ApplyMode
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.systems.mysql.dialect.column_types import ZeroDates
from airflow_cdc_provider.systems.mysql.sink.ledger import MySqlLedger
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession
from airflow_cdc_provider.systems.mysql.sink.table_builder import MySqlTableBuilder
from airflow_cdc_provider.systems.mysql.sink.targets import MySqlTargets

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.sink.change_sink import MySqlChangeSink
    from airflow_cdc_provider.systems.mysql.sink.split_sink import MySqlSplitSink

SINK_TYPES = ("mysql",)
"""`mysql` is whatever speaks its protocol; MariaDB too."""


@dataclass(frozen=True, slots=True)
class Sink:
    """One pipeline's sink under one generation."""

    endpoint: Endpoint
    owner: Owner
    plans: tuple[TablePlan, ...]
    apply: ApplyMode = ApplyMode.TRANSACTIONS
    writers: int = 1
    """Parallel writers of `ApplyMode.MERGED`."""
    zero_dates: ZeroDates = ZeroDates.FAIL
    local_files: bool = True
    """LOAD DATA LOCAL is used where the sink allows it."""

    def open_ledger(self) -> MySqlLedger:
        """Open the ledger."""
        return MySqlLedger(self._session("ledger"), self.owner)

    def open_targets(self) -> MySqlTargets:
        """Open what tells whose the tables are."""
        return MySqlTargets(self._session("claiming tables"), self.owner)

    def open_tables(self) -> MySqlTableBuilder:
        """Open what makes the tables."""
        return MySqlTableBuilder(self._session("making tables"), self.owner)

    def open_splits(self) -> MySqlSplitSink:
        """Open what publishes splits."""
        from airflow_cdc_provider.systems.mysql.sink.split_sink import (  # noqa: PLC0415
            MySqlSplitSink,
        )

        session = self._session("publishing splits")
        return MySqlSplitSink(session, self.owner, self.plans, zero_dates=self.zero_dates)

    def open_changes(self) -> MySqlChangeSink:
        """Open what applies changes."""
        from airflow_cdc_provider.systems.mysql.sink.change_sink import (  # noqa: PLC0415
            MySqlChangeSink,
        )

        slots = self.writers if self.apply is ApplyMode.MERGED else 1
        return MySqlChangeSink(
            lambda: self._session("applying changes"),
            self.owner,
            self.plans,
            slots=slots,
            zero_dates=self.zero_dates,
        )

    def _session(self, purpose: str) -> SinkSession:
        return SinkSession.open(self.endpoint, purpose=purpose, local_files=self.local_files)


def open_sink(  # noqa: PLR0913 - the fields of a job that concern its sink
    sink_type: str,
    endpoint: Endpoint,
    owner: Owner,
    plans: Sequence[TablePlan],
    *,
    apply: ApplyMode = ApplyMode.TRANSACTIONS,
    writers: int = 1,
    zero_dates: ZeroDates | str = ZeroDates.FAIL,
    local_files: bool = True,
) -> Sink:
    """Return the sink of a type; nothing is connected yet."""
    if sink_type not in SINK_TYPES:
        raise RefusedError(
            f"sink type {sink_type!r} is not known",
            where=f"sink of {owner.pipeline}",
            remedy=f"use one of {', '.join(SINK_TYPES)}",
        )
    return Sink(
        endpoint=endpoint,
        owner=owner,
        plans=tuple(plans),
        apply=apply,
        writers=writers,
        zero_dates=ZeroDates(zero_dates),
        local_files=local_files,
    )
