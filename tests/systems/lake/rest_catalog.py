"""Tables in a catalog of Iceberg's REST protocol: the one that its own project has for tests.

`make lake-readers` runs it: Maven brings the server's jars.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cdc_provider.core.catalog_access import CatalogAccess
from airflow_cdc_provider.core.endpoint import Folder
from airflow_cdc_provider.spark.java_home import find_java_home
from tests.servers.throwaway import free_port
from tests.systems.lake.test_iceberg_catalogs import (
    PublishedInACatalog,
    test_a_commit_is_made_on_the_table_as_it_was_loaded_or_not_at_all,
    test_a_commit_whose_answer_is_lost_is_looked_up,
    test_a_sink_goes_to_executors_with_its_ways_in_and_never_shows_them,
    test_a_table_of_others_is_refused,
    test_a_table_that_was_dropped_is_missed,
)
from tests.systems.lake.world import LakeWorld

__all__ = [
    "test_a_commit_is_made_on_the_table_as_it_was_loaded_or_not_at_all",
    "test_a_commit_whose_answer_is_lost_is_looked_up",
    "test_a_sink_goes_to_executors_with_its_ways_in_and_never_shows_them",
    "test_a_table_of_others_is_refused",
    "test_a_table_that_was_dropped_is_missed",
]
FOLDER = Path(__file__).parent / "rest_server"


@pytest.fixture(scope="session")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Have Maven bring the server's jars."""
    told = tmp_path_factory.mktemp("rest") / "classpath"
    command = ["mvn", "-q", "-f", str(FOLDER / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*command, f"-Dmdep.outputFile={told}"], check=True, timeout=600)
    return told.read_text()


@pytest.fixture
def world(classpath: str, tmp_path: Path) -> Iterator[LakeWorld]:
    """A server of its own, whose tables are in a folder."""
    port, java = free_port(), find_java_home() / "bin" / "java"
    command = [str(java), "-cp", classpath, str(FOLDER / "RestServer.java"), str(tmp_path)]
    with subprocess.Popen([*command, str(port)], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == b"up\n"
            access = CatalogAccess("rest", "lake", f"http://127.0.0.1:{port}/")
            place = Folder(str(tmp_path / "lake"), "iceberg", commit_seconds=60, catalog=access)
            yield LakeWorld(root=tmp_path, form="iceberg", bucket=place)
        finally:
            server.kill()


class TestPublishedInARestCatalog(PublishedInACatalog):
    pass
