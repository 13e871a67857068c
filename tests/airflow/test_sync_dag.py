"""`<pipeline>__sync` from its first task to its last, in a real Airflow and on real servers."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.state.store import open_store
from tests.airflow.lineage_listener import listening, names, said
from tests.airflow.shop import ROWS, TABLES, Shop, known_dag, open_shop
from tests.airflow.sync_dag import MONDAY, TUESDAY, WEDNESDAY, Run
from tests.airflow.sync_dags import stored
from tests.servers.given import SqlServer
from tests.servers.template import PASSWORD

if TYPE_CHECKING:
    from airflow.sdk import DAG

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("airflow_db"),
    # Tasks run in this process, and a warning of Airflow's own would be an error in them.
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(900),
]
FORMS = {PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD), quote_plus(PASSWORD)}


class Runs:
    """The runs of this module, each made when the first test asks for it."""

    def __init__(self, shop: Shop, dag: DAG) -> None:
        self.shop = shop
        self.dag = dag
        self.made: dict[str, Run] = {}
        self.events = shop.folder / "lineage.json"
        self.shown = ""
        self.arguments: set[bytes] = set()

    def first(self, capfd: pytest.CaptureFixture[str]) -> Run:
        """Make the run that copies everything; what it shows is kept."""
        if "first" not in self.made:
            capfd.readouterr()
            with arguments_of_processes(self.arguments), listening(self.events):
                self.made["first"] = Run(self.dag, MONDAY)
            self.shown = "".join(capfd.readouterr())
            require_success(self.made["first"], self.shown)
        return self.made["first"]

    def cleared(self, capfd: pytest.CaptureFixture[str]) -> Run:
        """Clear the snapshot and all after it, after some changes, and let them run again."""
        self.first(capfd)
        if "cleared" not in self.made:
            self.shop.change(1)
            self.made["cleared"] = Run(self.dag, MONDAY, mark_success_pattern="preflight|plan")
        return self.made["cleared"]

    def second(self, capfd: pytest.CaptureFixture[str]) -> Run:
        """Run the DAG once more, after some changes."""
        self.first(capfd)
        if "second" not in self.made:
            self.shop.change(2)
            capfd.readouterr()
            self.made["second"] = Run(self.dag, TUESDAY)
            require_success(self.made["second"], "".join(capfd.readouterr()))
        return self.made["second"]


def require_success(run: Run, shown: str) -> None:
    """Fail with the states of all tasks, and the last lines that tell of an error."""
    errors = [line for line in shown.splitlines() if "rror" in line or "CDC-" in line]
    assert run.state == "success", f"{run.states}: " + " / ".join(errors[-12:])


@contextmanager
def arguments_of_processes(seen: set[bytes]) -> Iterator[None]:
    """Collect the arguments of all processes there are in the meantime."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(path.read_bytes())
                except OSError:
                    continue  # it has ended

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


@pytest.fixture(scope="module")
def runs(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    airflow_db: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Runs]:
    # made anew where other tests come in between: the sink's ledger knows the one before
    name, folder = f"synced_{secrets.token_hex(3)}", tmp_path_factory.mktemp("shop")
    with open_shop(mysql_server, mysql_sink, folder, name) as shop:
        path = shop.write_pipeline()
        path.write_text(
            path.read_text().replace("spark.ui.enabled: false", "spark.ui.enabled: true")
        )
        yield Runs(shop, known_dag(path))


def plan_of(runs: Runs) -> str:
    store = open_store(f"sqlite:///{runs.shop.folder}/state.db")
    try:
        state = store.pipeline(PipelineName(runs.shop.name))
        return "" if state is None else state.plan_id
    finally:
        store.close()


def generation_of(shop: Shop) -> int:
    store = open_store(f"sqlite:///{shop.folder}/state.db")
    try:
        state = store.pipeline(PipelineName(shop.name))
        assert state is not None
        return state.generation
    finally:
        store.close()


def test_the_first_run_copies_catches_up_and_proves_it(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    first = runs.first(capfd)
    assert set(first.states.values()) == {"success"}
    assert first.returned("snapshot")["ran"] is True
    assert first.returned("snapshot")["splits"] > 2
    assert first.returned("verify")["equal"] is True
    if not {"cleared", "second"} & set(runs.made):
        assert runs.shop.is_equal()


def test_the_sinks_unique_keys_are_there_after_the_consistent_point(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    runs.first(capfd)
    keys = runs.shop.sink.execute("SHOW KEYS FROM customers", database=runs.shop.sink_database)
    assert "name" in {row[2] for row in keys}


def test_tasks_that_are_cleared_in_the_middle_do_only_what_is_left(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    cleared = runs.cleared(capfd)
    assert cleared.states.pop("verify") == "skipped"  # the first run has proven the tables equal
    assert set(cleared.states.values()) == {"success"}
    assert cleared.returned("snapshot")["ran"] is False
    if "second" not in runs.made:
        assert runs.shop.is_equal()


def test_a_second_run_only_streams(runs: Runs, capfd: pytest.CaptureFixture[str]) -> None:
    runs.first(capfd)
    before = plan_of(runs)
    second = runs.second(capfd)
    assert second.ran == {"preflight", "stream", "finish"}
    assert second.skipped == {"plan", "snapshot", "hand_off", "verify"}
    assert second.state == "success"
    assert second.returned("preflight")["pipeline"] == runs.shop.name
    assert plan_of(runs) == before
    assert runs.shop.is_equal()


def test_a_task_that_was_left_out_runs_when_it_is_cleared(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    runs.second(capfd)
    again = Run(runs.dag, TUESDAY, mark_success_pattern="preflight|stream|finish")
    assert {"plan", "snapshot", "hand_off"} <= again.ran
    assert again.returned("plan")["is_new"] is False
    assert again.returned("snapshot")["ran"] is False


def test_samples_tell_of_every_row_of_the_snapshot_and_of_the_streams_changes(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    runs.second(capfd)
    store = open_store(f"sqlite:///{runs.shop.folder}/state.db")
    samples = store.samples(PipelineName(runs.shop.name), 0)
    store.close()
    assert sum(sample.rows for sample in samples) == len(TABLES) * ROWS
    assert max(sample.changes or 0 for sample in samples) > 0
    assert any(sample.lag_us is not None for sample in samples)


def test_every_run_takes_a_new_generation(runs: Runs, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = runs.first(capfd), runs.second(capfd)
    assert second.returned("stream")["generation"] > first.returned("stream")["generation"]
    assert generation_of(runs.shop) >= second.returned("stream")["generation"]


def test_other_tasks_find_references_and_summaries_in_xcom_and_no_rows(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    first = runs.first(capfd)
    returned = {name: first.returned(name) for name in first.xcom}
    assert {value["pipeline"] for value in returned.values()} == {runs.shop.name}
    assert len(str(returned)) < 10_000
    assert "customer 17" not in str(returned)
    handed_off = returned["hand_off"]["tables"][f"{runs.shop.source_database}.orders"]
    assert handed_off["splits"] == returned["snapshot"]["splits"] // 2


def test_each_target_tables_asset_tells_the_consistent_point(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    """One of the tables is named in the file, the other picked by a pattern."""
    runs.first(capfd)
    where = f"cdc://shop_sink/{runs.shop.sink_database}"
    mine = f"JOIN asset a ON a.id = asset_id AND a.uri LIKE '{where}/%'"
    told = stored(f"SELECT a.uri, e.extra FROM asset_event e {mine}")
    extras = {uri: json.loads(extra) for uri, extra in told}
    assert set(extras) == {f"{where}/orders", f"{where}/customers"}
    for extra in extras.values():
        assert extra["pipeline"] == runs.shop.name
        assert "bin." in extra["position"]
    points = stored(f"SELECT value FROM asset_state_store s {mine} WHERE key = 'watermark'")
    (mirrored,) = points
    assert "bin." in mirrored[0]


def test_the_snapshot_tells_openlineage_its_tables_columns_and_rows(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    runs.first(capfd)
    told = said(runs.events, runs.dag.dag_id, "snapshot")
    source, sink = (
        {f"mysql://{server.host}:{server.port} {database}.{table}" for table in TABLES}
        for server, database in (
            (runs.shop.source, runs.shop.source_database),
            (runs.shop.sink, runs.shop.sink_database),
        )
    )
    assert set(told) == {"START", "COMPLETE"}
    done = told["COMPLETE"]
    assert (names(done["inputs"]), names(done["outputs"])) == (source, sink)
    columns = {"orders": ["id", "customer", "total"], "customers": ["id", "name"]}
    for dataset in (*done["inputs"], *done["outputs"]):
        fields = dataset["facets"]["schema"]["fields"]
        assert [field["name"] for field in fields] == columns[dataset["name"].partition(".")[2]]
    for dataset in done["outputs"]:
        statistics = dataset["outputFacets"]["outputStatistics"]
        assert (statistics["rowCount"], statistics["size"] > 0) == (ROWS, True)
        changed = dataset["facets"]["lifecycleStateChange"]["lifecycleStateChange"]
        assert changed == "OVERWRITE"
        assert dataset["facets"]["columnLineage"]["fields"]


def test_a_run_that_brings_nothing_sends_no_event(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    runs.second(capfd)
    where = f"cdc://shop_sink/{runs.shop.sink_database}"
    sent = (
        f"SELECT count(*) FROM asset_event JOIN asset a ON a.id = asset_id AND uri LIKE '{where}/%'"
    )
    before = stored(sent)[0][0]
    assert before >= 4
    idle = Run(runs.dag, WEDNESDAY)
    assert idle.state == "success"
    assert idle.ran == {"preflight", "finish"}
    assert idle.skipped == {"plan", "snapshot", "hand_off", "stream", "verify"}
    assert idle.returned("finish")["tables"] == 0
    assert stored(sent)[0][0] == before


def test_a_task_with_a_job_links_to_its_spark(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    links = runs.first(capfd).spark_links
    assert links["snapshot"].startswith("http://127.0.0.1:")
    assert not links["plan"]


def test_the_password_is_in_no_log_no_xcom_and_no_argument(
    runs: Runs, capfd: pytest.CaptureFixture[str]
) -> None:
    runs.first(capfd)
    assert "snapshot job started" in runs.shown or "job started" in runs.shown
    assert [argument for argument in runs.arguments if b"spark.main" in argument]
    logs = list(runs.shop.folder.rglob("*.log"))
    assert logs
    kept = [Path(os.environ["AIRFLOW_HOME"]), runs.shop.folder]
    files = [path for folder in kept for path in folder.rglob("*") if path.is_file()]
    for form in FORMS:
        assert form not in runs.shown
        assert not [argument for argument in runs.arguments if form.encode() in argument]
        assert not [path for path in files if form.encode() in path.read_bytes()]
