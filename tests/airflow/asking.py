"""A pipeline that has rows and whose owners end, for tests of what tasks ask of it; no Spark."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.hooks.dsn import AirflowDsns
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, open_run
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from tests.airflow.conftest import TaskInstance, TaskState
from tests.airflow.shop import Shop, open_shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.given import SqlServer


@dataclass
class Copied:
    """A shop whose tables are in the sink."""

    shop: Shop
    path: Path

    @property
    def table(self) -> str:
        return f"{self.shop.source_database}.orders"

    @property
    def name(self) -> PipelineName:
        return PipelineName(self.shop.name)

    def drift(self) -> None:
        """Make rows of the sink wrong: changed, gone and too many."""
        for sql in (
            "UPDATE orders SET total = 0.01 WHERE id % 3 = 0",
            "DELETE FROM orders WHERE id % 7 = 0",
            "REPLACE INTO orders VALUES (777777, 1, 1)",
        ):
            self.shop.sink.execute(sql, database=self.shop.sink_database)

    @property
    def is_equal(self) -> bool:
        return self.shop.is_equal()

    @contextmanager
    def opened(self, owner: str = "somebody") -> Iterator[Run]:
        """Open the pipeline as somebody else."""
        with open_run(load_pipeline(self.path), AirflowDsns(), owner=owner) as run:
            yield run

    def store(self) -> SqlStateStore:
        return open_store(f"sqlite:///{self.shop.folder}/state.db")


@contextmanager
def copied(
    source: SqlServer, sink: SqlServer, folder: Path, name: str, *, mode: str = "bounded"
) -> Iterator[Copied]:
    """Copy a shop once, with least-privileged accounts and Airflow's connections.

    Each has a name of its own: the sink's ledger remembers what was there before.
    """
    with open_shop(source, sink, folder, f"{name}_{secrets.token_hex(3)}") as shop:
        path = shop.write_pipeline(mode)
        path.write_text(path.read_text().replace("always: true", "always: false"))
        made = Copied(shop, path)
        with made.opened("the first run") as run:
            run_until_caught_up(run)
        yield made


def task_context(task_id: str = "resync", *, run_id: str = "manual__1") -> Any:
    """Return the context of one task of one run; its tries share it."""
    ti = TaskInstance("shop__resync", task_id, run_id=run_id)
    return {"task_state_store": TaskState(), "ti": ti, "dag_run": SimpleNamespace()}
