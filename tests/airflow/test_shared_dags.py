"""One DAG of a kind for several pipelines, in a real Airflow: a run is told which one is meant."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import ParamValidationError
from airflow.serialization.serialized_objects import DagSerialization

from airflow_cdc_provider.operators.dags import cdc_dags
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from tests.airflow.asking import Copied, copied
from tests.airflow.shop import known
from tests.airflow.sync_dags import stored

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import DAG

    from tests.servers.given import SqlServer

pytestmark = [
    pytest.mark.usefixtures("airflow_db"),
    # Tasks run in this process, and a warning of Airflow's own would be an error in them.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(180),
]
OTHER = """\
pipeline: never_run
source: {conn_id: shop_source, tables: ["nowhere.*"]}
sink: {conn_id: shop_sink}
state: {conn_id: shop_state}
"""
WRONG = """\
pipeline: misspelt
source: {conn_id: shop_source, tabels: ["nowhere.*"]}
"""
_days = itertools.count()


@pytest.fixture(scope="module")
def copy(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    airflow_db: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Copied]:
    folder = tmp_path_factory.mktemp("shared")
    with copied(mysql_server, mysql_sink, folder, f"one_{secrets.token_hex(3)}") as made:
        database = made.shop.source_database
        columns = "id INT PRIMARY KEY, at TIMESTAMP NOT NULL, note VARCHAR(9)"
        mysql_server.execute(f"CREATE TABLE c_visits ({columns})", database=database)
        rows = ", ".join(f"({day}, '2026-10-0{day}', 'right')" for day in (1, 2, 3))
        mysql_server.execute(f"INSERT INTO c_visits VALUES {rows}", database=database)
        (made.path.parent / "never_run.yaml").write_text(OTHER)
        (made.path.parent / "wrong.yaml").write_text(WRONG)
        with made.path.open("a") as file:
            file.write(f'backfill: {{"{database}.c_visits": {{column: at}}}}\n')
        with made.opened() as run:
            run_until_caught_up(run)
        yield made


def made(folder: Path, **options: Any) -> dict[str, DAG]:
    dags: dict[str, Any] = {"__file__": str(folder / "dags.py")}
    arguments = {"default_args": {"retry_delay": 0, "retries": 0}, **options}
    return cdc_dags(".", dags, shared=True, backfill_schedule=None, **arguments)


class Ran:
    """One run of a shared DAG, which is made for it: a run here leaves its params in it."""

    def __init__(self, copy: Copied, kind: str, **conf: Any) -> None:
        dag = known(made(copy.path.parent)[f"cdc__{kind}"])
        day = datetime(2026, 5, 1, tzinfo=UTC) + timedelta(days=next(_days))
        run = dag.test(logical_date=day, run_conf={"pipeline": copy.shop.name, **conf})
        self.states = {task.task_id: str(task.state) for task in run.get_task_instances()}


def test_pipelines_have_one_dag_of_a_kind_with_a_field_for_those_that_can_be_chosen(
    copy: Copied,
) -> None:
    dags = made(copy.path.parent)
    kinds = {"backfill", "resync", "tables", "verify"}
    syncs = {f"{name}__sync" for name in (copy.shop.name, "never_run", "misspelt")}
    assert {dag_id for dag_id in dags if not dag_id.endswith("__changes")} == {
        *syncs,
        *(f"cdc__{kind}" for kind in kinds),
    }
    for kind in kinds:
        names = [copy.shop.name] if kind == "backfill" else sorted([copy.shop.name, "never_run"])
        dag = DagSerialization.from_dict(DagSerialization.to_dict(dags[f"cdc__{kind}"]))
        field = dag.params.get_param("pipeline")
        assert field.schema["enum"] == names
        assert next(iter(dag.params)) == "pipeline"


def test_what_has_a_schedule_keeps_a_dag_for_each_pipeline(copy: Copied) -> None:
    dags: dict[str, Any] = {"__file__": str(copy.path)}
    found = cdc_dags(".", dags, shared=True, verify_schedule="0 4 * * *")
    assert {f"{copy.shop.name}__verify", f"{copy.shop.name}__backfill", "cdc__verify"} <= {*found}


def test_rows_of_the_chosen_pipeline_are_read_again(copy: Copied) -> None:
    copy.drift()
    ran = Ran(copy, "resync", tables=[copy.table], dry_run=False)
    assert set(ran.states.values()) == {"success"}
    assert copy.is_equal


def test_the_chosen_pipeline_is_compared_and_repaired_and_its_own_asset_tells_of_it(
    copy: Copied,
) -> None:
    copy.drift()
    ran = Ran(copy, "verify", repair="always")
    assert ran.states["repair"] == "success"
    assert ran.states["verdict"] == "success"
    assert copy.is_equal
    sql = "SELECT e.extra FROM asset_event e JOIN asset a ON a.id = asset_id WHERE a.name = "
    told = [json.loads(extra) for (extra,) in stored(f"{sql} 'cdc-verify/{copy.shop.name}'")]
    assert [event["equal"] for event in told] == [False, True]


def test_a_window_of_the_chosen_pipeline_is_read_again(copy: Copied) -> None:
    Ran(copy, "resync", tables=[copy.table], dry_run=False)
    day = datetime(2026, 10, 2, tzinfo=UTC)
    database = copy.shop.sink_database
    copy.shop.sink.execute("UPDATE c_visits SET note = 'wrong' WHERE id > 1", database=database)
    ends = {"from": day.isoformat(), "to": (day + timedelta(days=1)).isoformat()}
    ran = Ran(copy, "backfill", **ends)
    assert ran.states == {"window": "success", "backfill": "success"}
    rows = copy.shop.sink.execute("SELECT id, note FROM c_visits ORDER BY id", database=database)
    assert [tuple(row) for row in rows] == [(1, "right"), (2, "right"), (3, "wrong")]


def test_a_table_of_the_chosen_pipeline_is_paused_and_resumed(copy: Copied) -> None:
    for action in ("pause", "resume"):
        ran = Ran(copy, "tables", action=action, tables=[copy.table])
        assert ran.states == {"change": "success"}


def test_a_run_that_chooses_no_pipeline_or_another_is_refused_by_its_form(copy: Copied) -> None:
    for chosen in ({"pipeline": "misspelt"}, {"pipeline": None}):
        with pytest.raises((ParamValidationError, ValueError)):
            Ran(copy, "resync", tables=[copy.table], **chosen)
