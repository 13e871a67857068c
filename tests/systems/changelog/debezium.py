"""`python -m tests.systems.changelog.debezium GIVEN`: a MySQL's log as Debezium has it.

GIVEN is JSON: port, user, password, database, file and GTIDs to start from, and how many records
to wait for. Prints one JSON line for each: destination, key and value. Only where `make debezium`
has brought its jars.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from typing import Any

from airflow_cdc_provider.spark.java_home import find_java_home
from tests.benchmarks.peers.debezium_stream import _write_offset

Given = dict[str, Any]
_NAME = "bench"
"""As `_write_offset` has it."""


def main(given: Given) -> None:
    os.environ["JAVA_HOME"] = str(find_java_home())
    folder = tempfile.mkdtemp(prefix="cdc-debezium-")
    os.chdir(folder)  # it writes a log folder where it stands
    # Importing it starts what looks for Java.
    from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine  # noqa: PLC0415
    from pydbzengine.engine.jvm import ensure_jvm_started  # noqa: PLC0415

    ensure_jvm_started()
    _write_offset(f"{folder}/offsets", given["file"], given["gtids"])
    over = threading.Event()
    found: list[str] = []

    class Keeper(BasePythonChangeHandler):  # type: ignore[misc]
        def handleJsonBatch(self, records: list[Any]) -> None:  # noqa: N802 - Debezium's name
            for record in records:
                value = None if record.value() is None else json.loads(str(record.value()))
                key = None if record.key() is None else json.loads(str(record.key()))
                found.append(json.dumps([str(record.destination()), key, value]))
            if len(found) >= given["count"]:
                over.set()

    engine = DebeziumJsonEngine(properties=_properties(given, folder), handler=Keeper())
    threading.Thread(target=engine.run, daemon=True).start()
    is_over = over.wait(180)
    print("\n".join(found), flush=True)
    os._exit(0 if is_over else 1)  # the engine's threads do not end by themselves


def _properties(given: Given, folder: str) -> dict[str, object]:
    return {
        "name": _NAME,
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": "127.0.0.1",
        "database.port": given["port"],
        "database.user": given["user"],
        "database.password": given["password"],
        "database.server.id": 9903,
        "database.ssl.mode": "disabled",
        "topic.prefix": "t",
        "database.include.list": given["database"],
        "snapshot.mode": "recovery",
        "snapshot.locking.mode": "none",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{folder}/offsets",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": f"{folder}/history",
        "include.schema.changes": "false",
        "include.query": "true",
        "tombstones.on.delete": "false",
        "provide.transaction.metadata": "true",
        "decimal.handling.mode": "string",
        "time.precision.mode": "adaptive_time_microseconds",
        "bigint.unsigned.handling.mode": "long",
        "skipped.operations": "none",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "converter.schemas.enable": "false",
    }


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
