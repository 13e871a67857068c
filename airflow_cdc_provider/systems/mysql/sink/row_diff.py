"""What of a range differs between the rows that are to be there and those that are.

Most rows that are read again are right already. To read them costs a server a tenth of what writing
costs, and who waits for the transaction waits that much less. So the sink's rows are read in the
same form as the source's, and only those that differ in any bit are written.

Nothing is skipped on a guess: rows are the same only if all their copied columns have the same
exact texts. Where that cannot be told, or more than a third differ, the whole range is written.
What the metadata says is not compared: a row that is right keeps what was said of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from airflow_cdc_provider.columns.arrow_arrays import mask_of, one_batch
from airflow_cdc_provider.columns.row_keys import row_codes
from airflow_cdc_provider.columns.rows import SplitRows
from airflow_cdc_provider.core.errors import IntegrityError
from airflow_cdc_provider.core.identifiers import quote_table
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.sink.join_sink import RowDiff
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates
from airflow_cdc_provider.systems.mysql.wire.text_decoder import TextDecoder
from airflow_cdc_provider.systems.mysql.wire.text_result import chunks_of
from airflow_cdc_provider.systems.mysql.wire.text_values import comes_as_bytes

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

_MORE_ROWS = 1_000


def row_diff_of(
    session: SinkSession,
    plan: TablePlan,
    condition: str,
    wanted: SplitRows,
    zero_dates: ZeroDates,
) -> RowDiff | None:
    """Compare the sink's rows that meet a condition with the wanted rows; None: rewrite all."""
    marks = {*plan.shape.marks}
    columns = tuple(each for each in plan.target.copied_columns if each.name not in marks)
    if any(comes_as_bytes(column.type) for column in columns):
        return None  # the sink's column may be of another charset, where these bytes mean others
    if not plan.target.primary_key:
        return None
    limit = wanted.rows + wanted.rows // 3 + _MORE_ROWS
    decoder = TextDecoder(replace(plan.target, columns=columns), zero_dates=zero_dates)
    sql = b"SELECT %b FROM %b WHERE %b LIMIT %d" % (
        decoder.select_list.encode(),
        quote_table(plan.sink_table).encode(),
        condition.encode(),
        limit,
    )
    chunks = chunks_of(session.raw, sql, decoder)
    if chunks is None or sum(chunk.rows for chunk in chunks) >= limit:
        return None
    try:
        held = one_batch(pa.Table.from_batches(map(decoder.to_arrow, chunks), decoder.schema))
    except IntegrityError:
        return None  # a value that the source cannot have
    if decoder.nulled:
        return None
    rows = one_batch(pa.Table.from_batches(wanted.batches(), wanted.schema))
    return _unlike(rows, held, plan.target.primary_key)


def _unlike(wanted: pa.RecordBatch, held: pa.RecordBatch, key: tuple[str, ...]) -> RowDiff | None:
    """Return the differing rows by their copied values; None if more than a third differ."""
    compared = wanted.select(held.schema.names)
    if compared.schema != held.schema:
        return None
    codes = row_codes([compared.columns, held.columns])
    ours, theirs = codes.groups
    is_wanted, is_held = np.zeros(codes.count, np.bool_), np.zeros(codes.count, np.bool_)
    is_wanted[ours] = True
    is_held[theirs] = True
    missing, stale = ~is_held[ours], ~is_wanted[theirs]
    if 3 * (int(missing.sum()) + int(stale.sum())) > len(ours) + len(theirs):
        return None
    return RowDiff(held.select(list(key)).filter(mask_of(stale)), wanted.filter(mask_of(missing)))
