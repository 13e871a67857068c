"""The sink behaviours' world in memory: no server is needed to say what `engine.sink` decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_cdc_provider.engine.sink.port import Owner
from tests.behaviours.sink_world import Row, SinkWorld
from tests.engine.sink.memory_sink import Memory, MemorySink


@dataclass
class MemoryWorld(SinkWorld):
    """A sink in memory, with one writer slot or more."""

    writers: int = 1

    def make_tables(self) -> None:
        self.memory = Memory(self.pipeline)

    def under(self, generation: int, *, fuse: int | None = None, **_: Any) -> Any:
        plans = {plan.schema.table: plan for plan in (self.orders, self.seats)}
        owner = Owner(self.pipeline, generation)
        return MemorySink(self.memory, owner, plans, self.writers, fuse)

    def held(self, table: str = "orders") -> list[Row]:
        rows = self.memory.content.rows.get(getattr(self, table).sink_table, {})
        return [rows[key] for key in sorted(rows)]
