"""Values in whose place a hash stands: salted SHA-256, in hexadecimal digits."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import binaries_of


def hashed(values: pa.Array, salt: bytes) -> pa.Array:
    """Return the SHA-256 of the salt with each value behind it, as texts; NULL stays NULL.

    Of a text it is of its UTF-8 bytes, of a whole number of its decimal digits: what MySQL and
    MariaDB have as `SHA2(CONCAT(salt, value), 256)`.
    """
    kind = values.type
    texts = values.cast(pa.string()) if pa.types.is_integer(kind) else values
    begun = hashlib.sha256(salt)
    digests: list[bytes | None] = []
    for value in texts.cast(pa.large_binary()).to_pylist():
        if value is None:
            digests.append(None)
            continue
        each = begun.copy()
        each.update(value)
        digests.append(each.hexdigest().encode())
    return binaries_of(digests, pa.string())
