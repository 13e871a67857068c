"""A standalone cluster, spark-submit, and passwords that nobody gets to see."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest

import airflow_cdc_provider
from airflow_cdc_provider.core.errors import RetryableError
from airflow_cdc_provider.core.jobspec import ENCODED, JobKind, salt_variable
from airflow_cdc_provider.core.salts import Salt, keep_salts, proven
from airflow_cdc_provider.core.table_shape import Mask, MaskKind, OutputColumn, TableShape
from airflow_cdc_provider.engine.job_result import ExitCode, Outcome
from airflow_cdc_provider.spark.package import package_archive
from tests.servers.given import SqlServer
from tests.servers.throwaway import free_port
from tests.spark.conftest import MakePipeline
from tests.spark.standalone import SPARK_HOME, cluster
from tests.spark.workload import TABLES, fill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a JVM on a busy machine


class Watcher:
    """Looks at command lines and at Spark's UI while a job runs."""

    def __init__(self, secret: str, ui: str) -> None:
        self.secret = secret
        self.ui = ui
        self.pages = 0
        self.seen: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(1.5):
            for line in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self._look(str(line), line.read_text(errors="replace"))
                except OSError:
                    continue  # it has ended
            for page in ("environment/", "SQL/", "jobs/", "executors/", "api/v1/applications"):
                try:
                    with urllib.request.urlopen(f"{self.ui}/{page}", timeout=5) as answer:
                        self._look(page, answer.read().decode(errors="replace"))
                        self.pages += 1
                except OSError:
                    continue  # not up yet, or over

    def _look(self, where: str, text: str) -> None:
        if self.secret in text or quote(self.secret, safe="") in text:
            self.seen.append(where)


@pytest.mark.sample(2, of="ways to run Spark")
def test_a_standalone_cluster_copies_and_follows_and_no_password_is_seen(
    make_pipeline: MakePipeline, mysql_server: SqlServer, mysql_sink: SqlServer, tmp_path: Path
) -> None:
    secret = f"pl/nted {secrets.token_hex(6)}"
    for server in (mysql_server, mysql_sink):
        server.execute("DROP USER IF EXISTS planted@'127.0.0.1'")
        server.execute("CREATE USER planted@'127.0.0.1' IDENTIFIED BY %s", (secret,))
        server.execute("GRANT ALL ON *.* TO planted@'127.0.0.1'")
    pipeline = make_pipeline(source_dsn=mysql_server.dsn("planted", secret))
    pipeline.sink_dsn = mysql_sink.dsn("planted", secret)
    fill(pipeline, 2000)
    salt = Salt("salt_env SHOP_SALT", secret)
    keep_salts([salt])
    hashed = OutputColumn("note", "note", Mask(MaskKind.SHA256, salt=salt.name))
    pipeline.plan(TABLES, {"orders": proven(TableShape((hashed,), others=True))})
    pipeline.overrides["salts"] = (salt.name,)
    events = tmp_path / "events"
    events.mkdir()
    port = free_port()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.ui.enabled": "true",
        "spark.ui.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.cores.max": 2,
    }
    words = " ".join(f"--conf {name}={value}" for name, value in conf.items())
    more = {"PYSPARK_SUBMIT_ARGS": f"{words} pyspark-shell", salt_variable(salt.name): secret}
    with cluster(tmp_path) as master, Watcher(secret, f"http://127.0.0.1:{port}") as watcher:
        for kind in (JobKind.SNAPSHOT, JobKind.STREAM):
            spec = pipeline.spec(kind, pipeline.take_over(), split_rows=500)
            code = pipeline.start(spec, master=master, more=more).wait(timeout=280)
            assert code == ExitCode.FINE, pipeline.log_of(spec).read_text()[-5000:]
            result = pipeline.result_of(spec)
            assert result.outcome is Outcome.FINISHED
            if kind is JobKind.SNAPSHOT:
                assert result.rows == 6000
                pipeline.hand_off()
                pipeline.source.execute(
                    "DELETE FROM orders WHERE id < 100", database=pipeline.source_database
                )
                pipeline.source.execute(
                    "UPDATE orders SET note = id WHERE id < 300", database=pipeline.source_database
                )
    pipeline.assert_equal()
    as_hashed = f"SELECT id, SHA2(CONCAT('{secret}', note), 256), amount FROM orders ORDER BY id"
    at_source = pipeline.source.execute(as_hashed, database=pipeline.source_database)
    assert pipeline.rows(pipeline.sink, pipeline.sink_database, "orders") == at_source
    assert watcher.pages > 0
    assert watcher.seen == []
    logs = [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".jar"]
    assert any(events in file.parents for file in logs)
    for file in logs:
        text = file.read_bytes().decode(errors="replace")
        assert secret not in text, file
        assert quote(secret, safe="") not in text, file


def test_spark_submit_runs_a_job_and_its_wrong_password_is_not_in_the_error(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline()
    fill(pipeline, 100)
    pipeline.plan(TABLES)
    good = pipeline.source_dsn
    secret = f"wrong{secrets.token_hex(6)}"
    for dsn, code in (
        (pipeline.source.dsn(pipeline.source.user, secret), ExitCode.REFUSED),
        (good, ExitCode.FINE),
    ):
        pipeline.source_dsn = dsn
        spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
        job = pipeline.folder / "job.json"
        job.write_text(spec.to_json())
        main = Path(__file__).parents[2] / "airflow_cdc_provider" / "spark" / "main.py"
        submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
        for setting in ("ui.enabled=false", "driver.host=127.0.0.1"):
            submit += ["--conf", f"spark.{setting}"]
        ended = subprocess.run(
            [*submit, str(main), "--job", f"@{job}"],
            env={**os.environ, **pipeline.environment},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert secret not in ended.stdout + ended.stderr
    pipeline.assert_equal()


def test_a_driver_elsewhere_needs_the_archive_the_job_and_a_file_of_dsns_only(
    make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    pipeline = make_pipeline()
    fill(pipeline, 100)
    pipeline.plan(TABLES)
    there = tmp_path / "container"
    there.mkdir()
    archive = package_archive(there)
    main = Path(airflow_cdc_provider.__file__).parent / "spark" / "main.py"
    shutil.copy(main, there / "main.py")
    (there / "job.servers").write_text(json.dumps(pipeline.environment))
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    encoded = ENCODED + base64.b64encode(spec.to_json().encode()).decode()
    asks = "from airflow_cdc_provider.spark.package import package_archive as p; print(p(None))"
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    asked = [sys.executable, "-c", asks]
    said = subprocess.check_output(asked, env=environment, cwd=there, text=True)
    assert said.strip() == "None"  # it runs from the archive, and makes no other one of it
    words = ["--job", encoded, "--servers", "job.servers", "--master", "local[2]"]
    ended = subprocess.run(
        [sys.executable, "main.py", *words],
        env=environment,
        cwd=there,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == ExitCode.FINE, ended.stdout + ended.stderr
    assert not (there / "job.servers").exists()
    pipeline.assert_equal()


def test_a_session_that_cannot_be_made_names_its_master_and_no_stack_frames(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline()
    spec = pipeline.spec(JobKind.SNAPSHOT, pipeline.take_over())
    assert pipeline.start(spec, master="nonsense").wait(timeout=120) != 0
    result = pipeline.result_of(spec)
    assert result.error_code == RetryableError.code
    assert "starting Spark on nonsense" in result.error
    assert "\tat " not in result.error
