"""An Airflow to which everything is done: pipelines of both kinds, and a writer that never rests.

`flowing` streams without end. All others read a snapshot once, which can be made to take as long as
a test needs: their way to the source is slow until it is let go. Each has accounts of its own, so
that its connections can be counted, and a database of its own in the one sink.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
import pymysql

from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.records import PipelineState
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from tests.end_to_end.airflow_server import AirflowServer
from tests.end_to_end.compare import differences
from tests.servers.accounts import Account, least_privileged, sink_account, source_account
from tests.servers.patience import StandstillError, wait_while_working
from tests.servers.proxy import NONE, CuttingProxy, Fault

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.given import SqlServer
    from tests.servers.postgres import SqlDatabase

FLOWING = "flowing"
READING = ("killed", "marked", "paused", "served")
STALE_S = 15.0
"""Patience of the stream's watcher with a heartbeat that does not come."""
_MOST_S = 300.0
"""No wait of a test takes longer."""
_SLOW = Fault(delay_s=0.15)
_ROWS = 30_000
_PIPELINE = """
pipeline: {name}
source: {{conn_id: {name}_source, tables: [{tables}], server_id: {first_id}-{last_id}}}
sink: {{conn_id: {name}_sink, route: {{"harsh.*": "harsh_{name}.*"}}}}
state: {{conn_id: harsh_state}}
snapshot: {{split_rows: 300, max_connections: 2}}
stream: {{mode: {mode}}}
spark: {{conf: {{spark.master: "local[2]", spark.ui.enabled: false}}}}
"""
_DAGS = """
from airflow_cdc_provider.operators.dags import cdc_dags
cdc_dags(
    ".", globals(), schedule=None, changes_every_s=None, resync=False,
    default_args={"retry_delay": 2.0, "stale_s": STALE_S, "poke_interval": 2.0},
)
"""
_SETTINGS = {
    "CORE__PARALLELISM": "8",
    "WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "DAG_PROCESSOR__REFRESH_INTERVAL": "3",
    "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
    "DAG_PROCESSOR__STALE_DAG_THRESHOLD": "6",
    "DAG_PROCESSOR__PARSING_CLEANUP_INTERVAL": "3",
}
_SERVICES = {"scheduler": "airflow scheduler", "triggerer": "airflow triggerer"}
_SERVICES["api-server"] = "airflow api_server"
_FORKED = ("airflow worker -- ", "airflow serve-logs")
"""Processes of a scheduler that outlive it."""


class Writing:
    """Changes all tables from one thread, except while somebody compares."""

    def __init__(self, server: SqlServer) -> None:
        self._server = server
        self._rng = random.Random(9)
        self._over = threading.Event()
        self._may_write = threading.Lock()
        self._thread = threading.Thread(target=self._write, name="harsh-writer", daemon=True)

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Write nothing meanwhile."""
        with self._may_write:
            yield

    def _write(self) -> None:
        with self._server.connect("harsh", autocommit=False) as connection:
            while not self._over.wait(0.1):
                with self._may_write, connection.cursor() as cursor, suppress(pymysql.MySQLError):
                    for statement in self._statements():
                        cursor.execute(statement)
                    connection.commit()

    def _statements(self) -> Iterator[str]:
        some = self._rng.randrange
        table = self._rng.choice(["orders", "big"])
        yield f"REPLACE INTO {table} VALUES ({some(2 * _ROWS)}, 'written {some(_ROWS)}')"
        yield f"UPDATE {table} SET note = CONCAT('u', id) WHERE id BETWEEN {some(_ROWS)} AND 99"
        yield f"UPDATE IGNORE {table} SET id = id + {_ROWS} WHERE id = {some(_ROWS)}"
        yield f"DELETE FROM {table} WHERE id = {some(_ROWS)}"


@dataclass
class HarshAirflow:
    """One Airflow, its servers, and what is asked of them."""

    source: SqlServer
    sink: SqlServer
    airflow: AirflowServer
    folder: Path
    store: SqlStateStore
    writing: Writing
    slow: CuttingProxy
    """The way to the source of all pipelines that read a snapshot."""
    state_way: CuttingProxy
    """The way to the state store of all of Airflow."""
    accounts: Mapping[str, tuple[Account, Account]]
    metadata: Callable[[str], list[Any]]
    """Asks Airflow's own database."""
    runs: dict[str, str] = field(default_factory=dict)
    """The last run of each pipeline."""

    # --- what is asked of Airflow ---

    def trigger(self, name: str) -> str:
        """Begin a run that does not verify."""
        self.runs[name] = self.airflow.trigger(_dag_id(name), {"verify": False})
        return self.runs[name]

    def mark(self, name: str, task_id: str, state: str) -> None:
        """Mark a task as a person does: `success` or `failed`."""
        path = f"{self._run_path(name)}/taskInstances/{task_id}"
        self.airflow.call("PATCH", path, {"new_state": state})

    def mark_run(self, name: str, state: str) -> None:
        """Mark the last run."""
        self.airflow.call("PATCH", self._run_path(name), {"state": state})

    def clear(self, name: str, *task_ids: str) -> None:
        """Clear tasks of the last run with all that come after them; all if none is named."""
        body = {"dry_run": False, "dag_run_id": self.runs[name], "only_failed": False}
        some = {"task_ids": list(task_ids), "include_downstream": True} if task_ids else {}
        path = f"/api/v2/dags/{_dag_id(name)}/clearTaskInstances"
        self.airflow.call("POST", path, {**body, **some})

    def pause_dag(self, name: str, *, is_paused: bool) -> None:
        """Pause a DAG, or let it go on; its pipeline is not asked."""
        self.airflow.call("PATCH", f"/api/v2/dags/{_dag_id(name)}", {"is_paused": is_paused})

    def task(self, name: str, task_id: str) -> tuple[str, int]:
        """Return the state of a task of the last run, and the number of its try."""
        found = self.airflow.get(f"{self._run_path(name)}/taskInstances/{task_id}")
        return str(found["state"]), int(found["try_number"])

    def run_state(self, name: str, run_id: str = "") -> str:
        """Return the state of a run, the last one if none is named."""
        return self.airflow.run_state(_dag_id(name), run_id or self.runs[name])

    def log(self, name: str, task_id: str) -> str:
        """Return what a person reads of all tries of a task, in the order it was told."""
        folder = f"dag_id={_dag_id(name)}/run_id={self.runs[name]}/task_id={task_id}"
        told = []
        for file in self.airflow.home.rglob(f"{folder}/*.log*"):
            for line in file.read_text(errors="replace").splitlines():
                with suppress(ValueError):
                    fact = json.loads(line)
                    told.append((str(fact.get("timestamp")), str(fact.get("event"))))
        return "\n".join(event for _, event in sorted(told))

    def _run_path(self, name: str) -> str:
        return f"/api/v2/dags/{_dag_id(name)}/dagRuns/{self.runs[name]}"

    # --- what is to be seen ---

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Look until something is so; fail where Airflow comes to a stop, or after `_MOST_S`.

        Its services log something all the time, also while a run is stuck.
        """
        began = time.monotonic()

        def is_so() -> bool:
            if until():
                return True
            if time.monotonic() - began > _MOST_S:
                raise StandstillError(f"{what} did not come about: {self.told()}")
            return False

        wait_while_working(is_so, what, signs=self.airflow.signs, told=self.told)

    def told(self) -> str:
        """Return each run's unfinished tasks in one line, and the newest logs below it."""
        return "\n".join(["; ".join(map(self._progress, self.runs)), self.airflow.log_tail()])

    def _progress(self, name: str) -> str:
        tasks = self.airflow.get(f"{self._run_path(name)}/taskInstances")["task_instances"]
        open_ = [
            f"{task['task_id']}: {task['state']} (try {task['try_number']})"
            for task in tasks
            if task["state"] not in {"success", "skipped"}
        ]
        return f"{name} is {self.run_state(name)} [{', '.join(open_)}]"

    def state(self, name: str) -> PipelineState:
        return self.store.ensure(PipelineName(name))

    def is_leased(self, name: str) -> bool:
        return self.state(name).lease_until_us > self.store.now_us()

    def connections(self, name: str) -> tuple[int, int]:
        """Count a pipeline's connections to the source and to the sink."""
        sql = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = %s"
        found = [account.server.execute(sql, (account.user,)) for account in self.accounts[name]]
        return int(found[0][0][0]), int(found[1][0][0])

    def jobs(self, name: str) -> list[psutil.Process]:
        """Return the processes of a pipeline's Spark jobs."""
        return [each for each, words in self._commands() if f"/jobs/{name}/" in words]

    def differences(self, name: str) -> list[str]:
        """Compare both sides whole, row by row; returns what differs."""
        tables = {f"harsh.{each}": f"harsh_{name}.{each}" for each in _tables(name)}
        return differences(self.source, self.sink, tables)

    def _commands(self) -> Iterator[tuple[psutil.Process, str]]:
        for each in self.airflow.processes():
            with suppress(psutil.Error):
                yield each, " ".join(each.cmdline())

    # --- a snapshot that reads ---

    def read(self, name: str) -> None:
        """Begin a run, and return while its snapshot reads, which takes until it is let go."""
        self.trigger(name)
        self.wait(lambda: self._splits_read(name) > 0, f"the first split of {name}")
        self.slow.fault = _SLOW

    def await_reading(self, name: str, *, attempt: int) -> None:
        """Wait until a try of the snapshot reads."""

        def is_reading() -> bool:
            return self.task(name, "snapshot") == ("running", attempt) and self.is_leased(name)

        self.wait(is_reading, f"try {attempt} of the snapshot of {name}")

    def await_nothing(self, name: str) -> None:
        """Wait until nobody is at work: no process, no connection, no lease."""
        self.wait(lambda: not self.jobs(name), f"the end of the jobs of {name}")
        self.wait(lambda: self.connections(name) == (0, 0), f"the end of connections of {name}")
        self.wait(lambda: not self.is_leased(name), f"the end of the lease of {name}")

    def ends_equal(self, name: str) -> None:
        """Let the run go to its end while nothing is written, and compare."""
        with self.writing.resting():
            self.slow.fault = NONE
            self.wait(lambda: self.run_state(name) != "running", f"the end of the run of {name}")
            assert self.run_state(name) == "success", self.airflow.log_tail()
            assert self.differences(name) == []
        self.await_nothing(name)

    def _splits_read(self, name: str) -> int:
        splits = self.store.splits(PipelineName(name))
        return sum(each.status.value == "finished" for each in splits)

    # --- a stream that goes on ---

    def flow(self) -> int:
        """See to it that the stream runs and is watched; returns its generation."""
        if FLOWING not in self.runs or self.run_state(FLOWING) != "running":
            self.trigger(FLOWING)
        self.await_watched()
        return self.state(FLOWING).generation

    def await_watched(self, *, than: int = 0) -> None:
        """Wait until a stream of a later generation runs and is watched."""

        def is_watched() -> bool:
            state, stream = self.state(FLOWING), self.store.stream(PipelineName(FLOWING))
            is_its = stream is not None and stream.generation == state.generation > than
            is_heard = is_its and stream is not None and stream.heartbeat_us > 0
            if not is_heard or state.phase is not Phase.STREAMING:
                return False
            told = self.log(FLOWING, "follow")  # a trigger tells its first look
            is_looked_at = told.rfind(f"watching {FLOWING}") > told.rfind("as DEFERRED")
            return is_looked_at and self.task(FLOWING, "follow")[0] == "deferred"

        self.wait(is_watched, "the stream, and who watches it")

    def flows_equal(self) -> None:
        """Stop writing, and wait until the stream has brought the sink to the source."""
        with self.writing.resting():
            self.wait(lambda: self.differences(FLOWING) == [], "the equality of both sides")

    def flows_alone(self) -> None:
        """See that one stream is left: one process, its connections, and no others."""
        self.wait(lambda: len(self.jobs(FLOWING)) == 1, "the end of an older stream")
        most = (3, 2)  # who reads, who looks for the log's end and definitions; who writes, twice

        def is_alone() -> bool:
            found = self.connections(FLOWING)
            return found[0] <= most[0] and found[1] <= most[1]

        self.wait(is_alone, "the end of the connections of an older stream")

    # --- what befalls it ---

    def kill_task(self, name: str, task_id: str) -> None:
        """Kill the process of a task, as a lack of memory does."""
        found = self.airflow.get(f"{self._run_path(name)}/taskInstances/{task_id}")
        (task,) = self._titled(f"airflow worker -- {found['id']}")
        task.kill()

    def kill_worker(self, name: str, task_id: str) -> psutil.Process:
        """Kill the executor's worker above a task; returns the task's process."""
        found = self.airflow.get(f"{self._run_path(name)}/taskInstances/{task_id}")
        (task,) = self._titled(f"airflow worker -- {found['id']}")
        task.parent().kill()  # type: ignore[union-attr]  # it has one
        return task

    def kill_services(self, *, while_scheduling: str) -> None:
        """Kill the scheduler, the triggerer and the API server, as where their machine dies.

        The scheduler has a run of the pipeline locked then. What it forked lives on, and holds its
        connections to Airflow's database open: the database is told that these are gone.
        """
        run = f"FROM dag_run WHERE dag_id = '{_dag_id(while_scheduling)}' AND state = 'running'"
        while self.metadata(f"SELECT 1 {run} FOR UPDATE SKIP LOCKED"):
            time.sleep(0.005)
        for title in _SERVICES.values():
            for each in self._titled(title):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        ports = {0}
        for title in _FORKED:
            for each in self._titled(title):
                with suppress(psutil.NoSuchProcess):
                    ports |= {end.laddr.port for end in each.net_connections("tcp")}
        gone = ", ".join(map(str, sorted(ports)))
        self.metadata(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = current_database() AND client_port IN ({gone})"
        )

    def start_services(self) -> None:
        """Start them again, and wait until they are well."""
        for service in _SERVICES:
            self.airflow.start_part(service)
        self.airflow.wait_until_healthy()

    def kill_job(self, name: str) -> None:
        """Kill a pipeline's Spark driver, and nothing that it started."""
        for each in self.jobs(name):
            os.kill(each.pid, signal.SIGKILL)

    def _titled(self, title: str) -> list[psutil.Process]:
        return [each for each, words in self._commands() if title in words]


@contextmanager
def harsh_airflow(
    source: SqlServer, sink: SqlServer, postgres: SqlDatabase, folder: Path
) -> Iterator[HarshAirflow]:
    """Start it all, with no run begun."""
    with ExitStack() as stack:
        _fill(source, sink)
        stack.callback(_drop, source, sink)
        slow = stack.enter_context(CuttingProxy(source.port))
        state_way = stack.enter_context(CuttingProxy(postgres.port))
        accounts = {
            name: (source_account(source, "harsh"), sink_account(sink, f"harsh_{name}"))
            for name in (FLOWING, *READING)
        }
        both = [account for pair in accounts.values() for account in pair]
        stack.enter_context(least_privileged(*both))
        state = postgres.dsn(stack.enter_context(postgres.fresh_database()))
        dsns = {"harsh_state": _by_way_of(state_way, postgres.port, state)}
        for number, (name, (reads, writes)) in enumerate(accounts.items()):
            is_slow = name in READING
            dsns[f"{name}_source"] = (
                _by_way_of(slow, source.port, reads.dsn) if is_slow else reads.dsn
            )
            dsns[f"{name}_sink"] = writes.dsn
            _write_file(folder, name, first_id=64_000 + 10 * number)
        (folder / "cdc.py").write_text(_DAGS.replace("STALE_S", str(STALE_S)))
        metadata = stack.enter_context(postgres.fresh_database())
        airflow = stack.enter_context(
            AirflowServer(dsns, dags=folder, metadata=postgres.dsn(metadata), settings=_SETTINGS)
        )
        store = open_store(state)
        stack.callback(store.close)
        writing = stack.enter_context(Writing(source))
        yield HarshAirflow(
            source,
            sink,
            airflow,
            folder,
            store,
            writing,
            slow,
            state_way,
            accounts,
            lambda sql: postgres.execute(sql, metadata),
        )


def _dag_id(name: str) -> str:
    return f"{name}__sync"


def _tables(name: str) -> Collection[str]:
    return ("orders", "customers") if name == FLOWING else ("orders", "big")


def _by_way_of(proxy: CuttingProxy, port: int, dsn: str) -> str:
    return dsn.replace(f":{port}/", f":{proxy.port}/")


def _write_file(folder: Path, name: str, *, first_id: int) -> None:
    text = _PIPELINE.format(
        name=name,
        tables=", ".join(f'"harsh.{each}"' for each in _tables(name)),
        mode="continuous" if name == FLOWING else "bounded",
        first_id=first_id,
        last_id=first_id + 9,
    )
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def _fill(source: SqlServer, sink: SqlServer) -> None:
    _drop(source, sink)
    source.execute("CREATE DATABASE harsh CHARACTER SET utf8mb4")
    for table, rows in (("orders", 1_000), ("customers", 1_000), ("big", _ROWS)):
        source.execute(f"CREATE TABLE harsh.{table} (id INT PRIMARY KEY, note VARCHAR(40))")
        values = ", ".join(f"({number}, 'note {number}')" for number in range(1, rows + 1))
        source.execute(f"INSERT INTO harsh.{table} VALUES {values}")


def _drop(source: SqlServer, sink: SqlServer) -> None:
    source.execute("DROP DATABASE IF EXISTS harsh")
    for name in (FLOWING, *READING):
        sink.execute(f"DROP DATABASE IF EXISTS harsh_{name}")
