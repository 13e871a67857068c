"""A catalog of Iceberg's REST protocol, the one that its own project has for tests, in a folder."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_cdc_provider.spark.java_home import find_java_home
from tests.servers.throwaway import free_port

FOLDER = Path(__file__).parent / "rest_server"


def jars_of(project: Path, told: Path) -> str:
    """Have Maven bring the jars of a project; return them as a classpath. `told` is a new file."""
    command = ["mvn", "-q", "-f", str(project / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*command, f"-Dmdep.outputFile={told}"], check=True, timeout=900)
    return told.read_text()


@contextmanager
def rest_server(classpath: str, folder: Path) -> Iterator[str]:
    """Run a catalog that is kept in a folder; yield its URL."""
    port, java = free_port(), find_java_home() / "bin" / "java"
    command = [str(java), "-cp", classpath, str(FOLDER / "RestServer.java"), str(folder)]
    with subprocess.Popen([*command, str(port)], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"up\n"
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.kill()
