"""Where a command looks connections up: in the environment, or in Airflow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.connections import DsnOf, MasterOf


class BeginRun(Protocol):
    """Starts a run of a pipeline's DAG, and returns a text that names it."""

    def __call__(self, pipeline: str, *, is_stopped: bool) -> str:
        """Start a run; `is_stopped`: a run that is under way is about to end."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """How a command finds connections: in the environment or in Airflow."""

    dsn_of: DsnOf
    master_of: MasterOf
    begin_run: BeginRun | None = None
    """None outside Airflow."""
    in_airflow: bool = False
    """Whether a state that the file does not name is under Airflow's home."""
