"""What errors advise on an edge of a topology, where some commands are refused."""

from __future__ import annotations

import re

from airflow_cdc_provider.core.errors import CdcError, RowRefusedError
from airflow_cdc_provider.core.topology import Topology

INSTEAD = (
    "; on an edge of a topology that is refused: copy one node anew, as the page 'Two nodes' says"
)
MEND_ROWS = (
    "change the row that is named at the node that wrote it; where rows of both nodes have one "
    "unique value, give both rows other values, each at its node; then `resume` with --table. "
    "Where a column of the other node has no value in them, give it a default there first. If that "
    "does not help, copy one node anew, as the page 'Two nodes' says"
)
_REFUSED = re.compile(r"`(?:reset|add|skip|accept)\b[^`]*`")
_READ_AGAIN = re.compile(r"`(?:resync|backfill)\b[^`]*`|`verify[^`]* --repair\b[^`]*`")


def for_edge(error: CdcError, edge: Topology | None) -> CdcError:
    """Return an error with what can be done about it on an edge; unchanged if `edge` is None.

    Where conflicts are settled rows may be read again.
    """
    if edge is None:
        return error
    remedy = error.remedy
    is_refused = _REFUSED.search(remedy)
    if not edge.reads_rows_again:
        is_refused = is_refused or _READ_AGAIN.search(remedy)
    if is_refused and isinstance(error, RowRefusedError):
        return error.with_remedy(MEND_ROWS)
    if INSTEAD not in remedy and is_refused:
        remedy += INSTEAD
    return error if remedy == error.remedy else error.with_remedy(remedy)
