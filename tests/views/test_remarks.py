"""What `status` says of rows that no snapshot read, and of conflicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase, TablePhase, Wanted
from airflow_cdc_provider.core.records import PipelineState, TableState
from airflow_cdc_provider.views.remarks import remark_lines
from airflow_cdc_provider.views.status import PipelineStatus, TableStatus
from tests.behaviours.state_behaviours import plan_of

SHOP = PipelineName("shop")


def seen(*tables: TableStatus, conflicts: int | None = None) -> PipelineStatus:
    state = PipelineState(SHOP, Wanted.RUN, Phase.STREAMING, 1)
    return PipelineStatus(state, tables, None, (), 0, conflicts=conflicts)


def table(phase: TablePhase, *requests: str) -> TableStatus:
    state = TableState(plan_of(), phase, planning_done=True)
    return replace(TableStatus.of(state), requests=requests)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (table(TablePhase.PLANNED, "add-1"), "its rows are read by add-1"),
        (table(TablePhase.CONSISTENT, "resync-1"), "its rows are read by resync-1"),
        (table(TablePhase.PLANNED), "its rows wait for a request that reads them"),
    ],
)
def test_rows_that_no_snapshot_reads_say_which_request_reads_them(
    shown: TableStatus, said: str
) -> None:
    (line,) = remark_lines(seen(shown))
    assert line.startswith(f"  {shown.source}: {said}")


@pytest.mark.parametrize("phase", [TablePhase.CONSISTENT, TablePhase.FAILED])
def test_rows_that_came_beside_the_stream_need_no_remark(phase: TablePhase) -> None:
    assert remark_lines(seen(table(phase))) == []


@pytest.mark.parametrize(("count", "said"), [(1, "1 conflict was"), (2, "2 conflicts were")])
def test_one_conflict_is_no_conflicts(count: int, said: str) -> None:
    assert remark_lines(seen(conflicts=count)) == [f"  {said} settled: `conflicts` lists them"]
