"""Where a command looks connections up: in the environment, or in Airflow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_cdc_provider.pipeline.connections import DsnOf, MasterOf


@dataclass(frozen=True, slots=True)
class Lookup:
    """What turns the pipeline file's references into servers."""

    dsn_of: DsnOf
    master_of: MasterOf
    begin_run: Callable[[str], str] | None = None
    """Begins a run of a pipeline's DAG and says which; None outside Airflow."""
    in_airflow: bool = False
    """Whether a state that the file does not name is under Airflow's home."""
