"""A Trino with its Iceberg connector reads a lake's tables and views in a REST catalog.

`make lake-readers` runs it: Maven brings its jars. It needs Java 24, in JAVA_HOME or /usr/lib/jvm.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds
import pytest
from pyiceberg.catalog import load_catalog

from tests.pipeline.altered_tables import catch_up
from tests.pipeline.conftest import Shop
from tests.pipeline.lake_tables import (
    TRANSFORMS,
    asked_of_parts,
    change_every,
    change_parts,
    write_every,
    write_parts,
)
from tests.systems.lake.rest_servers import FOLDER, jars_of, rest_server

TRINO = Path(__file__).parent / "trino_server"
LEAST_JAVA = 24
Rows = list[tuple[str | None, ...]]


def java() -> Path | None:
    """Find a Java that is new enough for Trino."""
    homes = [Path(os.environ.get("JAVA_HOME", "")), *Path("/usr/lib/jvm").glob("*")]
    for path in (home / "bin" / "java" for home in homes if home.name):
        if not path.exists():
            continue
        told = subprocess.run([path, "-version"], capture_output=True, text=True, check=True)
        if int(told.stderr.split('"')[1].split(".")[0]) >= LEAST_JAVA:
            return path
    return None


class Trino:
    """Answers queries over one catalog, which is called `lake`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def rows(self, query: str) -> Rows:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(query.split("\n")) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"Trino ended at {query}"
        return sorted(map(tuple, json.loads(answer)), key=str)


@contextmanager
def trino_over(url: str, classpath: str, log: Path) -> Iterator[Trino]:
    found = java()
    if found is None:
        pytest.skip(f"there is no Java {LEAST_JAVA} in JAVA_HOME or /usr/lib/jvm")
    command = [str(found), "--add-modules=jdk.incubator.vector", "-cp", classpath]
    command += [str(TRINO / "TrinoServer.java"), url]
    pipe = subprocess.PIPE
    with (
        log.open("w") as told,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=told, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n", log.read_text()[-4000:]
            yield Trino(process)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def classpaths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("jars")
    return jars_of(FOLDER, folder / "rest"), jars_of(TRINO, folder / "trino")


def texts(rows: pa.Table) -> Rows:
    """Return rows as the texts that `asked` has Trino make of them."""
    return sorted(
        (
            tuple(_text(value, field.type) for value, field in zip(row, rows.schema, strict=True))
            for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)
        ),
        key=str,
    )


def _text(value: Any, kind: pa.DataType) -> str | None:
    if value is None:
        return None
    if kinds.is_binary(kind) or kinds.is_large_binary(kind):
        return str(value.hex().upper())
    if kinds.is_timestamp(kind):
        assert isinstance(value, datetime)
        return f"{value:%Y-%m-%d %H:%M:%S.%f}" + (" UTC" if kind.tz else "")
    if kinds.is_struct(kind):
        return f"{value['x']} {value['y']}"
    return str(value).lower() if kinds.is_boolean(kind) else str(value)


def asked(name: str, kind: pa.DataType) -> str:
    """Return what makes a text of a column in Trino."""
    quoted = f'"{name}"'
    if kinds.is_binary(kind) or kinds.is_large_binary(kind):
        return f"to_hex({quoted})"
    if kinds.is_struct(kind):
        return f"IF({quoted} IS NULL, NULL, format('%s %s', {quoted}.x, {quoted}.y))"
    if kinds.is_floating(kind):
        return f"IF({quoted} IS NULL, NULL, format('%s', {quoted}))"
    return f"CAST({quoted} AS VARCHAR)"


@pytest.mark.timeout(1200)
def test_trino_reads_tables_partitions_and_views(
    shop: Shop, tmp_path: Path, classpaths: tuple[str, str]
) -> None:
    of_rest, of_trino = classpaths
    with (
        rest_server(of_rest, tmp_path) as url,
        trino_over(url, of_trino, tmp_path / "log") as trino,
    ):
        shop.environment["LAKE_CATALOG"] = url
        to_server = f'  dsn_env: DR_DSN\n  route: {{"{shop.database}.*": "{shop.target}.*"}}\n'
        to_lake = (
            f"  type: iceberg\n  path: {tmp_path}/lake\n  commit_seconds: 1\n"
            "  catalog: {type: rest, dsn_env: LAKE_CATALOG, view: '{table} now'}\n"
            f'tables: {{"{shop.database}.parts": {{partition_by: {TRANSFORMS}, sort_by: [at]}}}}\n'
        )
        text = shop.path.read_text()
        assert to_server in text
        shop.path.write_text(text.replace(to_server, to_lake))
        write_every(shop)
        write_parts(shop)
        catch_up(shop)
        change_every(shop)
        change_parts(shop)
        catch_up(shop)
        catalog = load_catalog("lake", type="rest", uri=url)

        def there(name: str) -> pa.Table:
            return catalog.load_table((shop.database, name)).scan().to_arrow()

        for name in ("every", "orders", "parts"):
            rows = there(name)
            chosen = ", ".join(asked(each.name, each.type) for each in rows.schema)
            found = trino.rows(f'SELECT {chosen} FROM lake."{shop.database}"."{name}"')
            assert found == texts(rows), name
            of_source = shop.source.execute(
                f"SELECT id FROM {name} ORDER BY id", database=shop.database
            )
            seen = trino.rows(f'SELECT id FROM lake."{shop.database}"."{name} now"')
            assert sorted(int(str(number)) for (number,) in seen) == [key for (key,) in of_source]
        (current,) = trino.rows(
            f'SELECT more, name, big FROM lake."{shop.database}"."every now" WHERE id = 2'
        )
        assert current == ("7", None, None)
        parts = there("parts")
        for where, is_asked in asked_of_parts("TIMESTAMP").items():
            kept = [number for number, row in enumerate(parts.to_pylist()) if is_asked(row)]
            assert kept, where
            chosen = ", ".join(asked(each.name, each.type) for each in parts.schema)
            found = trino.rows(f'SELECT {chosen} FROM lake."{shop.database}".parts WHERE {where}')
            assert found == texts(parts.take(kept)), where
