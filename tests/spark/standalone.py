"""A standalone cluster of Spark's: its daemons as processes of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.servers.throwaway import free_port

SPARK_HOME = Path(pyspark.__file__).parent


@contextmanager
def daemon(name: str, *arguments: str, log: Path) -> Iterator[None]:
    """Run one of Spark's daemons until it says that it has started; stop it in the end."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), name, *arguments]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 120
        while not any(word in log.read_text() for word in ("elected leader", "registered with")):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def cluster(folder: Path, *, workers: int = 1) -> Iterator[str]:
    """Start a master and workers, of two cores together, on the loopback interface."""
    port = free_port()
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        where = ("--host", "127.0.0.1")
        web = ("--webui-port", str(free_port()))
        stack.enter_context(
            daemon(
                f"{deploy}.master.Master", *where, "--port", str(port), *web, log=folder / "m.log"
            )
        )
        url = f"spark://127.0.0.1:{port}"
        for number in range(workers):
            cores = ("--cores", str(2 // workers), "--memory", "1g")
            folders = ("--work-dir", str(folder / f"work{number}"))
            web = ("--webui-port", str(free_port()))
            words = (*where, *cores, *folders, *web, url)
            log = folder / f"w{number}.log"
            stack.enter_context(daemon(f"{deploy}.worker.Worker", *words, log=log))
        yield url
