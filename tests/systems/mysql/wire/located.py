"""Fields as the framer locates them, of texts a test gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from airflow_cdc_provider.systems.mysql.wire.text_protocol import Field


def located(
    texts: Sequence[bytes | None], *, before: bytes = b"", between: bytes = b"", after: bytes = b""
) -> tuple[bytearray, Field]:
    """Lay texts (None is NULL) into a buffer and tell where each is."""
    buffer = bytearray(before)
    start = []
    for text in texts:
        buffer += b"\xfb" if text is None else bytes([len(text)])
        start.append(len(buffer))
        buffer += (text or b"") + between
    buffer += after
    null = np.array([text is None for text in texts], np.bool_)
    has_nulls = bool(null.any())
    field = Field(
        start=np.array(start, np.int64),
        length=np.array([len(text or b"") for text in texts], np.int64),
        null=null if has_nulls else None,
        short=not has_nulls,
    )
    return buffer, field
