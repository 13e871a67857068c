"""`<pipeline>__tables` in a real Airflow: single tables come, go and begin again by a form."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cdc_provider.core.requests import RequestKind, RequestStatus
from airflow_cdc_provider.operators.tables_dag import tables_dag
from tests.airflow.asking import Copied, copied
from tests.airflow.shop import known
from tests.airflow.test_control_operator import run_it

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.given import SqlServer

pytestmark = [
    pytest.mark.usefixtures("airflow_db"),
    # Tasks run in this process, and a warning of Airflow's own would be an error in them.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def copy(
    mysql_server: SqlServer, mysql_sink: SqlServer, airflow_db: None, tmp_path: Path
) -> Iterator[Copied]:
    with copied(mysql_server, mysql_sink, tmp_path, "tables") as made:
        yield made


def state_of(copy: Copied, **conf: Any) -> str:
    dag = tables_dag(copy.path, default_args={"retry_delay": 0, "retries": 0})
    return str(known(dag).test(run_conf=conf).state)


def closed(copy: Copied) -> dict[RequestKind, RequestStatus]:
    with closing(copy.store()) as store:
        return {each.kind: each.status for each in store.requests(copy.name)}


def test_a_form_resets_removes_and_adds_tables(copy: Copied) -> None:
    copy.drift()
    assert state_of(copy, action="reset", tables=[copy.table]) == "success"
    assert closed(copy)[RequestKind.RESET] is RequestStatus.DONE
    run_it(copy)
    assert copy.is_equal
    text = copy.path.read_text()
    copy.path.write_text(text.replace(f'"{copy.table}", ', "", 1))
    assert state_of(copy, action="remove", tables=[copy.table], drop_target=True) == "success"
    assert closed(copy)[RequestKind.DROP] is RequestStatus.DONE
    left = copy.shop.sink.execute("SHOW TABLES LIKE 'orders'", database=copy.shop.sink_database)
    assert list(left) == []
    copy.path.write_text(text)
    assert state_of(copy, action="add") == "success"
    run_it(copy)
    assert copy.is_equal


@pytest.mark.parametrize(
    "conf",
    [
        {"action": "remove"},
        {"action": "drop", "tables": ["shop.orders"]},
        {"action": "add", "tables": ["orders"]},
        {"action": "add", "table": ["shop.orders"]},
    ],
)
def test_a_form_that_is_wrong_changes_nothing(copy: Copied, conf: dict[str, Any]) -> None:
    try:
        state = state_of(copy, **conf)
    except ValueError:  # Airflow refuses what the form does not offer
        state = "failed"
    assert state == "failed"
    assert not closed(copy)
