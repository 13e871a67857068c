"""A log streamed by embedded Debezium to a handler that only counts: its best case.

The first records are taken as its start-up (JVM, schema recovery) and not counted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading

from airflow_cdc_provider.spark.java_home import find_java_home
from tests.benchmarks import subject


def main() -> None:
    given = subject.arguments()
    os.environ["JAVA_HOME"] = str(find_java_home())
    folder = tempfile.mkdtemp(prefix="cdc-bench-debezium-")
    os.chdir(folder)  # it writes a log folder where it stands
    # Importing it starts what looks for Java.
    from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine  # noqa: PLC0415
    from pydbzengine.engine.jvm import ensure_jvm_started  # noqa: PLC0415

    ensure_jvm_started()
    _write_offset(f"{folder}/offsets", given["file"], given["gtids"])
    first, go, over = threading.Event(), threading.Event(), threading.Event()
    counted = {"before": 0, "all": 0}

    class Counter(BasePythonChangeHandler):  # type: ignore[misc]
        def handleJsonBatch(self, records: list[object]) -> None:  # noqa: N802 - Debezium's name
            if not first.is_set():
                counted["before"] = len(records)
                first.set()
                go.wait()
            counted["all"] += len(records)
            if counted["all"] >= given["limit"]:
                over.set()

    engine = DebeziumJsonEngine(properties=_properties(given, folder), handler=Counter())
    threading.Thread(target=engine.run, daemon=True).start()
    if not first.wait(180):
        sys.exit("Debezium gave no record in three minutes")

    def run() -> int:
        go.set()
        if not over.wait(600):
            sys.exit("Debezium did not reach the end of the log in ten minutes")
        return counted["all"] - counted["before"]

    subject.work(run)
    shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    os._exit(0)  # the engine's threads do not end by themselves


def _properties(given: subject.Arguments, folder: str) -> dict[str, object]:
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": "127.0.0.1",
        "database.port": given["source"],
        "database.user": "root",
        "database.password": "",
        "database.server.id": 9902,
        "database.ssl.mode": "disabled",
        "topic.prefix": "t",
        "database.include.list": "bench",
        "table.include.list": f"bench.{given['table']}",
        "snapshot.mode": "recovery",
        "snapshot.locking.mode": "none",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{folder}/offsets",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": f"{folder}/history",
        "include.schema.changes": "false",
        "tombstones.on.delete": "false",  # one record a row change, as everyone counts
        "max.batch.size": 8192,
        "max.queue.size": 65536,
        "poll.interval.ms": 20,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "converter.schemas.enable": "false",
    }


def _write_offset(path: str, file: str, gtids: str) -> None:
    """Start Debezium at a file's beginning: it has no option for that, only stored offsets."""
    import jpype  # noqa: PLC0415 - its JVM is up only now

    data = jpype.JArray(jpype.JByte)
    offsets = jpype.JClass("java.util.HashMap")()
    offset = {"file": file, "pos": 4, "gtids": gtids}
    offsets.put(data(b'["bench",{"server":"t"}]'), data(json.dumps(offset).encode()))
    stream = jpype.JClass("java.io.ObjectOutputStream")(
        jpype.JClass("java.io.FileOutputStream")(path)
    )
    stream.writeObject(offsets)
    stream.close()


if __name__ == "__main__":
    main()
