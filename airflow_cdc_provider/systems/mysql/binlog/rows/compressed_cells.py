"""Values of MariaDB's COMPRESSED columns, which the log holds as the table stores them.

A cell begins with a byte of its own, but for an empty value, which is no byte at all. 0 is a value
that was too short to pack and follows as it is. Else the top bit is set, the low three bits tell
how many bytes of the plain length follow, big-endian, and bit 3 whether zlib's header and checksum
are left out (`column_compression_zlib_wrap=OFF`, the default). Measured on MariaDB 10.11.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from airflow_cdc_provider.columns.arrow_arrays import binaries_of
from airflow_cdc_provider.core.errors import RESET, CorruptLogError, UnknownTypeError

if TYPE_CHECKING:
    import pyarrow as pa

_PACKED, _WITHOUT_HEADER, _LENGTH_BYTES = 0x80, 0x08, 0x07


def inflated(packed: pa.Array) -> pa.Array:
    """Return a column of MariaDB's COMPRESSED values decompressed."""
    plain = [None if cell is None else _inflated(cell) for cell in packed.to_pylist()]
    return binaries_of(plain)


def _inflated(cell: bytes) -> bytes:
    """Return one COMPRESSED value decompressed."""
    if not cell or cell[0] == 0:
        return cell[1:]
    head = cell[0]
    if head & ~(_WITHOUT_HEADER | _LENGTH_BYTES) != _PACKED:
        raise UnknownTypeError(
            f"a COMPRESSED column is packed by method {head:#x}, which is not known",
            risk="its values would be read wrong",
            remedy="report it with the server's version, ALTER TABLE ... MODIFY the column "
            f"without COMPRESSED, and {RESET}",
        )
    begin = 1 + (head & _LENGTH_BYTES)
    length = int.from_bytes(cell[1:begin], "big")
    window = -zlib.MAX_WBITS if head & _WITHOUT_HEADER else zlib.MAX_WBITS
    unpacker = zlib.decompressobj(window)
    try:
        plain = unpacker.decompress(cell[begin:], length + 1)
    except zlib.error as error:
        raise _broken(str(error)) from None
    if len(plain) != length:
        raise _broken(f"it has {len(plain)} bytes or more, {length} were announced")
    return plain


def _broken(why: str) -> CorruptLogError:
    """Return the error for a COMPRESSED value that cannot be decompressed."""
    return CorruptLogError(
        f"a value of a COMPRESSED column cannot be unpacked: {why}",
        risk="the value would be lost",
        remedy=f"check the log file with mysqlbinlog and the table with CHECK TABLE, then {RESET}",
    )
