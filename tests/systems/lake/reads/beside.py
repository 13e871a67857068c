"""What others put beside a table's files: rows that are deleted, and other names of columns."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from tests.systems.lake.damage import catalog_of

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

    from tests.systems.lake.reads.made_lakes import MadeLake

_VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 1,
}


def delete_beside(lake: MadeLake) -> None:
    """Delete a row without writing its file again, as Spark does."""
    if lake.form == "delta":
        _delete_by_vector(lake)
        return
    table = catalog_of(lake.root).load_table(("shop", "orders"))
    with table.transaction() as transaction:
        snapshot = _Deleting(operation=Operation.DELETE, transaction=transaction, io=table.io)
        snapshot.commit()


def _delete_by_vector(lake: MadeLake) -> None:
    """Commit a deletion vector of the newest file, and what the table needs to have one."""
    log = lake.root / "shop.orders/_delta_log"
    newest = max(log.glob("*.json"))
    added = next(
        form["add"]
        for line in newest.read_text().splitlines()
        if "add" in (form := json.loads(line))
    )
    protocol: dict[str, Any] = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    removed = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
    actions = [
        {"protocol": protocol},
        {"remove": removed},
        {"add": {**added, "deletionVector": _VECTOR}},
    ]
    lines = "\n".join(map(json.dumps, actions))
    (log / f"{int(newest.stem) + 1:020d}.json").write_text(lines)


class _DeleteWriter(ManifestWriterV2):
    """Writes a manifest of files of deletes, which the library itself does not."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Deleting(_FastAppendFiles):
    """Deletes the first row of the table's first file by a file beside it."""

    def _manifests(self) -> list[ManifestFile]:
        table = self._transaction._table
        first = next(iter(table.scan().plan_files())).file.file_path
        path = f"{table.location()}/deletes-{secrets.token_hex(4)}.parquet"
        rows = pa.table({"file_path": [first], "pos": pa.array([0], pa.int64())})
        pq.write_table(rows, path.removeprefix("file://"))
        deletes = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=1,
            file_size_in_bytes=1_000,
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds={},
            upper_bounds={},
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=None,
        )
        deletes.spec_id = 0
        metadata = self._transaction.table_metadata
        target = table.io.new_output(f"{table.location()}/metadata/{secrets.token_hex(4)}-m.avro")
        with _DeleteWriter(
            metadata.spec(), metadata.schema(), target, self._snapshot_id, "deflate"
        ) as writer:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=deletes,
                )
            )
        return [*super()._manifests(), writer.to_manifest_file()]
