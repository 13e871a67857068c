"""`<pipeline>__backfill` in a real Airflow: each run reads the rows of its own interval again."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import CronDataIntervalTimetable
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred
from airflow.utils.types import DagRunType  # noqa: TID251 - as Airflow's tasks are given it

from airflow_cdc_provider.core.requests import RequestStatus
from airflow_cdc_provider.operators.backfill import CdcBackfillOperator, CdcWindowOperator
from airflow_cdc_provider.operators.backfill_dag import backfill_dag
from airflow_cdc_provider.operators.dags import cdc_dags
from airflow_cdc_provider.operators.log_errors import CdcTaskFailure
from airflow_cdc_provider.pipeline.steps.carrying_out import carry_out
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from tests.airflow.asking import Copied, copied, task_context
from tests.airflow.shop import known
from tests.airflow.test_request_operators import given_back, owned

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.given import SqlServer

pytestmark = [
    pytest.mark.usefixtures("airflow_db"),
    # Tasks run in this process, and a warning of Airflow's own would be an error in them.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(180),
]
BACKFILL = """
backfill:
  "{database}.c_visits": {{column: at, timezone: Europe/Berlin}}
  "{database}.c_clicks": {{column: at}}
"""
TABLES = ("c_visits", "c_clicks")
DAY = timedelta(days=1)
FIRST = datetime(2026, 10, 24, tzinfo=UTC)  # the day before Berlin's clocks are put back


@pytest.fixture(scope="module")
def copy(
    request: pytest.FixtureRequest,
    mysql_sink: SqlServer,
    airflow_db: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Copied]:
    """A shop with two more tables: a row for each hour of four days, on the wall and in UTC."""
    family = getattr(request, "param", "mysql")
    server = request.getfixturevalue(f"{family}_server")
    folder = tmp_path_factory.mktemp("windows")
    with copied(server, mysql_sink, folder, f"again_{secrets.token_hex(3)}") as made:
        database = made.shop.source_database
        for table, kind in zip(TABLES, ("DATETIME", "TIMESTAMP"), strict=True):
            columns = f"id INT PRIMARY KEY, at {kind} NOT NULL, note VARCHAR(9)"
            server.execute(f"CREATE TABLE {table} ({columns})", database=database)
            hours = ", ".join(
                f"({hour}, '{FIRST - DAY + hour * timedelta(hours=1):%Y-%m-%d %H:%M}', 'right')"
                for hour in range(5 * 24)
            )
            sql = f"SET time_zone = '+00:00'; INSERT INTO {table} VALUES {hours}"
            with closing(server.connect(database=database)) as connection:
                for statement in sql.split("; "):
                    connection.cursor().execute(statement)
                connection.commit()
        with made.path.open("a") as file:
            file.write(BACKFILL.format(database=database))
        with made.opened() as run:
            run_until_caught_up(run)
        yield made


@pytest.fixture
def drifted(copy: Copied) -> Copied:
    """All rows of the sink are wrong."""
    for table in TABLES:
        sql = f"UPDATE {table} SET note = 'wrong'"
        copy.shop.sink.execute(sql, database=copy.shop.sink_database)
    return copy


def right(copy: Copied, table: str) -> set[int]:
    """Return the hours whose rows at the sink are right, counted from a day before the first."""
    sql = f"SELECT id FROM {table} WHERE note = 'right'"
    return {row[0] for row in copy.shop.sink.execute(sql, database=copy.shop.sink_database)}


def ran(copy: Copied, day: datetime | None, **conf: str) -> dict[str, str]:
    """Run the DAG, made anew, for the day that begins then; return its tasks' states.

    A run by hand has the interval that ended last before its date.
    """
    dag = known(backfill_dag(copy.path, default_args={"retry_delay": 0, "retries": 0}))
    run = dag.test(logical_date=None if day is None else day + DAY, run_conf=conf)
    return {task.task_id: str(task.state) for task in run.get_task_instances()}


def tasks(copy: Copied) -> set[str]:
    return {f"{copy.shop.source_database}.{table}" for table in TABLES}


@pytest.mark.parametrize("copy", ["mysql", "mariadb"], indirect=True)
def test_runs_of_days_that_follow_each_other_leave_out_no_row_over_a_change_of_the_clocks(
    drifted: Copied,
) -> None:
    for number in range(3):
        states = ran(drifted, FIRST + number * DAY)
        assert states == dict.fromkeys({"window", *tasks(drifted)}, "success")
    utc = set(range(24, 4 * 24))
    assert right(drifted, "c_clicks") == utc
    # Berlin is two hours ahead before the change and one after it
    assert right(drifted, "c_visits") == set(range(24 + 2, 4 * 24 + 1))


def test_the_same_day_again_ends_the_same_and_reads_rows_that_went_wrong_since(
    drifted: Copied,
) -> None:
    for _ in range(2):
        assert set(ran(drifted, FIRST).values()) == {"success"}
        assert right(drifted, "c_clicks") == set(range(24, 48))
        sql = "UPDATE c_clicks SET note = 'wrong'"
        drifted.shop.sink.execute(sql, database=drifted.shop.sink_database)


def test_a_run_by_hand_reads_what_its_form_says(drifted: Copied) -> None:
    window = {"from": "2026-10-25T02:30:00+02:00", "to": "2026-10-25T02:30:00+01:00"}
    assert set(ran(drifted, None, **window).values()) == {"success"}
    assert right(drifted, "c_clicks") == {24 + 25}  # 01:00 in UTC
    assert right(drifted, "c_visits") == {24 + 26}  # 02:00 on the wall


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({}, "the run has no window of time"),
        ({"from": "2026-10-25T00:00:00Z"}, "one end of it is missing"),
        ({"from": "2026-10-25T00:00:00Z", "to": "2026-10-25T00:00:00+01:00"}, "ends after it"),
        ({"form": "2026-10-25T00:00:00Z"}, "did you mean 'from'?"),
        ({"from": "2026-10-25 00:00:00", "to": "2026-10-26T00:00:00Z"}, "has no offset"),
    ],
)
def test_a_run_that_says_no_window_reads_nothing_and_says_what_to_write(
    copy: Copied, conf: dict[str, str], words: str
) -> None:
    params = dict.fromkeys(("from", "to"))
    context = task_context("window") | {
        "dag": SimpleNamespace(params=params),
        "dag_run": SimpleNamespace(conf=conf),
        "params": {**params, **conf},
    }
    with pytest.raises(CdcTaskFailure, match=words):
        CdcWindowOperator(task_id="window", pipeline=str(copy.path)).execute(context)


def test_a_backfill_whose_runs_would_all_read_one_window_is_refused(copy: Copied) -> None:
    """Airflow's dialog asks for its own dates just above the fields of the form."""
    window = {"from": "2026-10-25T00:00:00+00:00", "to": "2026-10-26T00:00:00+00:00"}
    context = task_context("window") | {
        "dag": SimpleNamespace(params=window),
        "dag_run": SimpleNamespace(conf=window, run_type=DagRunType.BACKFILL_JOB),
        "params": window,
    }
    with pytest.raises(CdcTaskFailure, match="run the backfill without them"):
        CdcWindowOperator(task_id="window", pipeline=str(copy.path)).execute(context)


def test_the_fields_of_the_form_are_not_named_as_those_of_airflows_backfill(copy: Copied) -> None:
    fields = backfill_dag(copy.path).params
    schemas = [fields.get_param(name).schema for name in fields]
    assert [schema["title"] for schema in schemas] == ["Window from", "Window to"]
    assert all(schema["section"] for schema in schemas)


def test_before_the_snapshot_there_is_nothing_to_read_again(copy: Copied, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    text = copy.path.read_text().replace(f"pipeline: {copy.shop.name}", "pipeline: just_new")
    new.write_text(text)
    context = task_context("window") | {"dag": SimpleNamespace(params={}), "params": {}}
    context |= {"data_interval_start": FIRST, "data_interval_end": FIRST + DAY}
    with pytest.raises(AirflowSkipException, match="snapshot of just_new is not done"):
        CdcWindowOperator(task_id="window", pipeline=str(new)).execute(context)


def test_windows_at_once_beside_whoever_is_at_work_are_carried_out_by_it(drifted: Copied) -> None:
    """The tasks defer, and whoever owns the pipeline reads both windows."""
    owned(drifted)
    for number in range(2):
        task = CdcBackfillOperator(
            task_id="again",
            pipeline=str(drifted.path),
            table=f"{drifted.shop.source_database}.c_clicks",
            start=(FIRST + number * DAY).isoformat(),
            end=(FIRST + (number + 1) * DAY).isoformat(),
        )
        with pytest.raises(TaskDeferred):
            task.execute(task_context("again", run_id=f"day {number}"))
    given_back(drifted)
    assert right(drifted, "c_clicks") == set()
    with drifted.opened("a stream") as run:
        asked = [each for each in run.store.requests(run.name) if each.status.is_open]
        assert [each.status for each in asked] == [RequestStatus.ASKED] * 2
        carry_out(run)
    assert right(drifted, "c_clicks") == set(range(24, 72))


def test_a_file_with_backfill_has_the_dag_and_another_has_none(copy: Copied) -> None:
    made = cdc_dags(copy.path.parent, {}, backfill_schedule="30 * * * *")
    dag = made[f"{copy.shop.name}__backfill"]
    assert isinstance(dag.schedule, CronDataIntervalTimetable)
    assert (dag.catchup, dag.max_active_runs) == (False, 1)
    text = copy.path.read_text()
    try:
        copy.path.write_text(text[: text.index("backfill:\n")])
        assert f"{copy.shop.name}__backfill" not in cdc_dags(copy.path.parent, {})
    finally:
        copy.path.write_text(text)
