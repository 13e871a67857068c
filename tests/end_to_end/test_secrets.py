"""A planted password is found nowhere: logs, arguments, state, ledger, Spark's log, errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, quote_plus

import psutil
import pytest

from tests.servers.accounts import sink_account, source_account
from tests.servers.throwaway import MariaDbServer, MySqlServer, free_port

PLANTED = "Pl4nted/Secret:w@rd+%"
NEEDLES = sorted({PLANTED, quote(PLANTED, safe=""), quote(PLANTED), quote_plus(PLANTED)})

PIPELINE = """
pipeline: secrets
source: {{dsn_env: SECRET_SOURCE, tables: ["shop.*"], server_id: 5400-5409}}
sink: {{type: mysql, dsn_env: SECRET_SINK, route: {{"shop.*": "copy.*"}}}}
state: {{dsn_env: SECRET_STATE}}
snapshot: {{split_rows: 100, max_connections: 2}}
stream: {{mode: bounded}}
spark:
  always: true
  conf:
    spark.master: "local[2]"
    spark.ui.enabled: "true"
    spark.ui.port: "{ui_port}"
    spark.eventLog.enabled: "true"
    spark.eventLog.dir: "file://{events}"
"""


class Watch:
    """Looks at every process' arguments, and at Spark's UI, as long as something runs."""

    def __init__(self, ui_port: int) -> None:
        self._ui = f"http://127.0.0.1:{ui_port}"
        self.seen_arguments: set[str] = set()
        self.pages: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    @contextmanager
    def during(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            for process in psutil.process_iter():
                try:
                    self.seen_arguments.add(" ".join(process.cmdline()))
                except psutil.Error:
                    continue
            for page in ("environment", "SQL", "jobs", "StreamingQuery"):
                try:
                    with urllib.request.urlopen(f"{self._ui}/{page}/", timeout=1) as answer:
                        self.pages.append(answer.read().decode(errors="replace"))
                except OSError:
                    continue


def found_in(text: str) -> list[str]:
    return [needle for needle in NEEDLES if needle in text]


def run(folder: Path, environment: dict[str, str], *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "airflow_cdc_provider", *words, str(folder / "secrets.yaml")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(600)
@pytest.mark.spark
def test_a_planted_password_shows_nowhere(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    ui_port = free_port()  # 4040 may be another Spark's
    pipeline = PIPELINE.format(events=events, ui_port=ui_port)
    (tmp_path / "secrets.yaml").write_text(pipeline, encoding="utf-8")
    watch = Watch(ui_port)
    with MySqlServer() as source, MariaDbServer() as sink:
        planted = source_account(source, "shop", password=PLANTED)
        at_sink = sink_account(sink, "copy", password=PLANTED)
        source.execute("CREATE DATABASE shop")
        source.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY, note VARCHAR(20))")
        values = ", ".join(f"({number}, 'n{number}')" for number in range(500))
        source.execute(f"INSERT INTO shop.orders VALUES {values}")
        environment = {
            "SECRET_SOURCE": planted.dsn,
            "SECRET_SINK": at_sink.dsn,
            "SECRET_STATE": f"sqlite:///{tmp_path}/state.db",
            "XDG_STATE_HOME": str(tmp_path / "state_home"),  # where the jobs' files go
        }
        with watch.during():
            code, told = run(tmp_path, environment, "run", "--until", "caught-up")
        assert code == 0, told
        for words in (("check",), ("status",), ("verify", "--json")):
            _, more = run(tmp_path, environment, *words)
            told += more
        # Errors too: an address that does not answer, a password that is wrong.
        for broken in (
            environment | {"SECRET_SOURCE": f"mysql://planted:{NEEDLES[0]}@127.0.0.1:1/"},
            environment | {"SECRET_SINK": sink.dsn("root", PLANTED)},
        ):
            code, more = run(tmp_path, broken, "run", "--until", "caught-up")
            assert code != 0, "a broken address was taken"
            told += more
        ledger = str(sink.execute("SELECT * FROM airflow_cdc.finished_split"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kept = "".join(path.read_bytes().decode("latin-1") for path in files)
    assert {path.suffix for path in files if "jobs" in path.parts} == {".log"}
    assert any("eventlog" in str(path) or path.parent == events for path in files)
    assert watch.pages, "Spark's UI was never seen"
    assert any("SparkSubmit" in arguments for arguments in watch.seen_arguments)
    assert found_in(told) == []
    assert found_in(ledger) == []
    assert found_in(kept) == []
    assert found_in("\n".join(watch.seen_arguments)) == []
    assert found_in("\n".join(watch.pages)) == []
