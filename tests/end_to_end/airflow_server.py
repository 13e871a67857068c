"""An Airflow of one's own: headless, in a folder that goes away, on a free loopback port.

`airflow standalone` starts the API server, scheduler, triggerer and DAG processor. Ending it by
its process id alone would leave those behind, and their tasks, and what tasks started: a guard ends
all of it, also where this process was killed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tests.servers.guard import Guarded
from tests.servers.patience import sizes, wait_while_working
from tests.servers.throwaway import free_port

if TYPE_CHECKING:
    import psutil

REPOSITORY = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 180.0
_CALL_TIMEOUT_S = 30.0


class AirflowFailedError(Exception):
    """Airflow did not do what was asked; the message has the end of its log."""


class AirflowServer:
    """A context manager: Airflow with our DAGs and the given connections."""

    def __init__(
        self,
        connections: Mapping[str, str],
        *,
        dags: Path,
        keep: bool = False,
        metadata: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`metadata` is a PostgreSQL database; a file of SQLite's if None, which knows one writer.

        On SQLite the UI cannot begin a backfill: Airflow refuses what two of it write at once.
        `settings` are more of Airflow's own, as `SCHEDULER__PARSING_PROCESSES`.
        """
        self.home = Path(tempfile.mkdtemp(prefix="cdc-airflow-"))
        self.port = free_port()
        self.password = secrets.token_urlsafe(9)
        self._dags = dags
        self._connections = connections
        self._keep = keep
        self._metadata = metadata
        self._settings = dict(settings or {})
        self._guarded: Guarded | None = None
        self._token = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def processes(self) -> list[psutil.Process]:
        """Return all processes of it: services, tasks, and the jobs they started."""
        return [] if self._guarded is None else self._guarded.processes()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._keep or error is not None:
            self.stop()

    def environment(self) -> dict[str, str]:
        """Return the environment of every process of this Airflow."""
        passwords = self.home / "passwords.json"
        passwords.write_text(json.dumps({"admin": self.password}))
        settings = {
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__DAGS_FOLDER": str(self._dags),
            "CORE__PARALLELISM": "4",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "API__PORT": str(self.port),
            "API__HOST": "127.0.0.1",
            "API__BASE_URL": self.url,
            "API__WORKERS": "1",
            "SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            "TRIGGERER__DEFAULT_CAPACITY": "100",
            "USAGE_DATA_COLLECTION__ENABLED": "False",
            "CDC__JOB_LOG_FOLDER": str(self.home / "jobs"),
            **self._database(),
            **self._settings,
        }
        # a test's own process has an Airflow of its own, with settings for that
        kept = {name: value for name, value in os.environ.items() if "AIRFLOW_" not in name}
        return {
            **kept,
            "AIRFLOW_HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            **{f"AIRFLOW_CONN_{name.upper()}": dsn for name, dsn in self._connections.items()},
        }

    def _database(self) -> dict[str, str]:
        if self._metadata is None:
            return {"DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db"}
        # the same driver for both: else Airflow would look for asyncpg
        url = self._metadata.replace("postgresql://", "postgresql+psycopg://", 1)
        return {"DATABASE__SQL_ALCHEMY_CONN": url, "DATABASE__SQL_ALCHEMY_CONN_ASYNC": url}

    def start(self) -> None:
        """Start it and return when it answers."""
        command = [sys.executable, "-m", "airflow", "standalone"]
        with (self.home / "airflow.log").open("ab") as log:
            self._guarded = Guarded(command, env=self.environment(), folder=self.home, log=log)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_healthy():
            if not self._guarded.is_running or time.monotonic() > deadline:
                raise AirflowFailedError(f"Airflow did not start:\n{self.log_tail()}")
            time.sleep(0.5)
        self._token = self.call("POST", "/auth/token", self._credentials())["access_token"]

    def stop(self) -> None:
        """End all of it: services, tasks, and the Spark jobs they started."""
        guarded, self._guarded = self._guarded, None
        if guarded is not None:
            guarded.end()
        shutil.rmtree(self.home, ignore_errors=True)

    def start_part(self, name: str) -> None:
        """Start a service again that was killed, such as `scheduler`; it ends with the others."""
        assert self._guarded is not None
        self._guarded.start([sys.executable, "-m", "airflow", name])

    def wait_until_healthy(self) -> None:
        """Wait until all services answer."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_healthy():
            if time.monotonic() > deadline:
                raise AirflowFailedError(f"Airflow is not well:\n{self.log_tail()}")
            time.sleep(0.5)

    def command(self, *words: str) -> None:
        """Run a command of this Airflow, as a person does, also before it is started."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *words],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_START_TIMEOUT_S,
        )
        if done.returncode:
            self.stop()
            raise AirflowFailedError(f"airflow {' '.join(words)}:\n{done.stdout}{done.stderr}")

    def get(self, path: str) -> Any:
        """Ask the REST API."""
        return self.call("GET", path)

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Unpause a DAG and start a run of it; returns the run's id.

        Its file of SQLite's may be locked just then: with an id of its own the run is there once.
        """
        self.unpause(dag_id)
        run_id = f"manual__{secrets.token_hex(8)}"
        form = {"dag_run_id": run_id, "logical_date": None, "conf": conf or {}}

        def is_there() -> bool:
            try:
                self.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", form)
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.INTERNAL_SERVER_ERROR:
                    return False
                if error.code != HTTPStatus.CONFLICT:
                    raise
            return True

        what = f"run of {dag_id}"
        wait_while_working(is_there, what, signs=self.signs, told=self.log_tail, poll_s=1)
        return run_id

    def unpause(self, dag_id: str) -> None:
        """Let a DAG run, as soon as Airflow has found it."""

        def is_unpaused() -> bool:
            try:
                self.call("PATCH", f"/api/v2/dags/{dag_id}", {"is_paused": False})
            except urllib.error.HTTPError as error:
                if error.code != HTTPStatus.NOT_FOUND:
                    raise
                return False
            return True

        what = f"DAG {dag_id}"
        wait_while_working(is_unpaused, what, signs=self.signs, told=self.log_tail, poll_s=1)

    def end_runs(self, dag_id: str) -> None:
        """Cancel what backfills a DAG has, and end the runs of it that go on."""
        for backfill in self.backfills_that_run(dag_id):
            self.call("PUT", f"/api/v2/backfills/{backfill['id']}/cancel")
        for state in ("queued", "running"):
            for run in self.get(f"/api/v2/dags/{dag_id}/dagRuns?state={state}")["dag_runs"]:
                path = f"/api/v2/dags/{dag_id}/dagRuns/{run['dag_run_id']}"
                self.call("PATCH", path, {"state": "failed"})

    def has_left_worker(self, run_id: str, task_id: str) -> bool:
        """Tell whether the scheduler has heard that a process of a task ended.

        A task that is resumed before that is taken for one that failed, and tried again.
        """
        heard = f"task_id='{task_id}', run_id='{run_id}'"
        log = (self.home / "airflow.log").read_text(errors="replace")
        return any("Received executor event" in line and heard in line for line in log.splitlines())

    def backfills_that_run(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the backfills of a DAG that are not complete."""
        found = self.get(f"/api/v2/backfills?dag_id={dag_id}")["backfills"]
        return [each for each in found if not each["completed_at"]]

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return a run's state: queued, running, success or failed."""
        return str(self.call("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return the state of each task of a run."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances"
        return {
            task["task_id"]: str(task["state"]) for task in self.call("GET", path)["task_instances"]
        }

    def xcoms(self, dag_id: str, run_id: str, task_id: str) -> list[dict[str, Any]]:
        """Return everything a task told the others."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries"
        keys = [entry["key"] for entry in self.call("GET", path)["xcom_entries"]]
        return [self.call("GET", f"{path}/{key}") for key in keys]

    def signs(self) -> int:
        """Return the bytes of all logs, which grow while services, tasks and jobs do something."""
        return sizes(self._logs())

    def _logs(self) -> list[Path]:
        logs = [self.home / "airflow.log", *self.home.rglob("attempt=*.log")]
        return logs + [path for path in (self.home / "jobs").rglob("*") if path.is_file()]

    def log_tail(self, lines: int = 30) -> str:
        """Return the end of the newest logs of services, tasks and jobs."""
        newest = sorted(
            self._logs(), key=lambda path: path.stat().st_mtime if path.exists() else 0
        )[-3:]
        parts = []
        for path in newest:
            if path.exists():
                text = path.read_text(errors="replace").splitlines()[-lines:]
                parts.append("\n".join([f"--- {path}", *text]))
        return "\n".join(parts)

    def _credentials(self) -> dict[str, str]:
        return {"username": "admin", "password": self.password}

    def _is_healthy(self) -> bool:
        try:
            health = self.call("GET", "/api/v2/monitor/health")
        except (OSError, urllib.error.URLError, ValueError):
            return False
        parts = ("metadatabase", "scheduler", "triggerer", "dag_processor")
        return all(health.get(part, {}).get("status") == "healthy" for part in parts)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request to the REST API; returns its answer."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"},
        )
        with urllib.request.urlopen(request, timeout=_CALL_TIMEOUT_S) as answer:
            return json.loads(answer.read() or b"null")
