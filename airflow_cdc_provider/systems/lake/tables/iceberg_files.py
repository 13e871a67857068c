"""Files of Iceberg's tables in a folder of this machine or on NFS.

PyIceberg makes the folders above each file that it writes. So a lake whose folder is away, as one
that is not mounted, would begin anew in an empty one in its place.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pyarrow.fs import LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem


class FolderFiles(PyArrowFileIO):
    """Writes below folders of tables that are there, and makes none of these."""

    def _initialize_local_fs(self) -> FileSystem:
        return _Folders()


class _Folders(LocalFileSystem):  # type: ignore[misc]
    """Makes the folder of a file alone, as `metadata`, and not the one above it."""

    def open_output_stream(self, path: str, *given: Any, **named: Any) -> pa.NativeFile:
        """Open a file to be written; `OSError` if the folder above its own is not there."""
        self.create_dir(os.path.dirname(path), recursive=False)  # noqa: PTH120 - as Arrow has it
        return super().open_output_stream(path, *given, **named)
