"""JSON forms of the records: written in one canonical way, read back to equal values.

The forms outlive a deploy: fields are only added, with defaults. Keys of the objects are short
and stable; a position always prints the same text, because Spark compares offsets as text.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, assert_never

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.core.keys import Key, KeyKind, KeyKinds, KeyPart, KeyRange
from airflow_cdc_provider.core.kinds import kinds
from airflow_cdc_provider.core.known_log import (
    NONE_APART,
    KnownLog,
    TableApart,
    TablesApart,
)
from airflow_cdc_provider.core.many_records import gc_paused
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.splits import (
    Chosen,
    Condition,
    FinishedSplit,
    Interval,
    KeyList,
    SnapshotSplit,
    SplitReport,
)
from airflow_cdc_provider.core.statement_effect import (
    ColumnStep,
    StatementEffect,
    StatementKind,
    StepKind,
)
from airflow_cdc_provider.core.stream_split import StreamSplit, TableProgress
from airflow_cdc_provider.core.stream_starts import Beginning

Json = Any
"""What `json.loads` returns; checked by the functions that read it."""


def dumps(value: Json) -> str:
    """Write JSON in one canonical form: keys sorted, no blanks, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def position_to_json(position: LogPosition) -> Json:
    """Return the JSON form of a position."""
    return position.to_json()


def position_from_json(form: Json) -> LogPosition:
    """Read a position from its JSON form, which names the system."""
    return kinds().read_position(form)


ReadPosition = Callable[[Json], LogPosition]


def apart_to_json(apart: TablesApart) -> Json:
    """Return the JSON form of tables that are not where the stream is."""
    return [
        [each.table.database, each.table.table, position_to_json(each.position), each.is_back]
        for each in apart.tables
    ]


def apart_from_json(form: Json) -> TablesApart:
    """Read tables that are not where the stream is from their JSON form."""
    found = [
        TableApart(TableId(database, table), position_from_json(position), is_back)
        for database, table, position, is_back in form
    ]
    return TablesApart(tuple(found)) if found else NONE_APART


def known_to_json(known: KnownLog) -> Json:
    """Return the JSON form of what was known; that of a position if no table is apart."""
    position = position_to_json(known.position)
    return [position, apart_to_json(known.apart)] if known.apart else position


def known_from_json(form: Json) -> KnownLog:
    """Read what was known from its JSON form."""
    if not isinstance(form, list):
        return KnownLog(position_from_json(form))
    position, apart = form
    return KnownLog(position_from_json(position), apart_from_json(apart))


def idle_range_to_json(quiet: IdleRange | None) -> Json:
    """Return the JSON form of a range of idle log, None for none."""
    if quiet is None:
        return None
    ends = [position_to_json(quiet.start), position_to_json(quiet.end)]
    knew = [] if quiet.knew is None else [known_to_json(quiet.knew)]
    return [*ends, quiet.only_ledgers, *knew]


def idle_range_from_json(form: Json) -> IdleRange | None:
    """Read a range of idle log from its JSON form."""
    if form is None:
        return None
    start, end, only_ledgers, *knew = form
    known = known_from_json(knew[0]) if knew else None
    return IdleRange(position_from_json(start), position_from_json(end), only_ledgers, known)


def effect_to_json(effect: StatementEffect) -> Json:
    """Return the JSON form of what a statement does to tables."""
    return {
        "kind": effect.kind.value,
        "tables": [[table.database, table.table] for table in effect.tables],
        "databases": list(effect.databases),
        "renames": [[[table.database, table.table] for table in pair] for pair in effect.renames],
        "harmless": effect.harmless,
        "unlogged_rows": effect.unlogged_rows,
        "temporary": effect.temporary,
        "reaches_all": effect.reaches_all,
        "if_plain": list(effect.if_plain),
        "drops_constraints": effect.drops_constraints,
        "column_renames": [list(pair) for pair in effect.column_renames],
        "only_adds": effect.only_adds,
        "is_told": effect.is_told,
        "is_doubtful": effect.is_doubtful,
        "column_steps": _steps_to_json(effect.column_steps),
        "unique_keys": effect.unique_keys,
        "creates": effect.creates,
        "cascades": effect.cascades,
    }


def effect_from_json(form: Json) -> StatementEffect:
    """Read what a statement does to tables from its JSON form."""
    return StatementEffect(
        kind=StatementKind(form["kind"]),
        tables=tuple(TableId(*names) for names in form["tables"]),
        databases=tuple(form["databases"]),
        renames=tuple((TableId(*old), TableId(*new)) for old, new in form["renames"]),
        harmless=form["harmless"],
        unlogged_rows=form["unlogged_rows"],
        temporary=form["temporary"],
        reaches_all=form["reaches_all"],
        if_plain=tuple(form["if_plain"]),
        drops_constraints=form["drops_constraints"],
        column_renames=tuple((old, new) for old, new in form["column_renames"]),
        only_adds=form["only_adds"],
        is_told=form["is_told"],
        is_doubtful=form["is_doubtful"],
        column_steps=_steps_from_json(form.get("column_steps")),
        unique_keys=form.get("unique_keys", False),
        creates=form.get("creates", False),
        cascades=form.get("cascades", False),
    )


def _steps_to_json(steps: Sequence[ColumnStep] | None) -> Json:
    """Return the JSON form of a statement's changes of columns."""
    if steps is None:
        return None
    return [[step.kind.value, step.name, step.to, step.after] for step in steps]


def _steps_from_json(form: Json) -> tuple[ColumnStep, ...] | None:
    """Read a statement's changes of columns from their JSON form."""
    if form is None:
        return None
    return tuple(ColumnStep(StepKind(kind), name, to, after) for kind, name, to, after in form)


_PLAIN_PARTS = (int, str)


def _part_to_json(part: KeyPart) -> Json:
    """Return the JSON form of one column's value in a key."""
    match part:
        case int() | str():
            return part
        case Decimal():
            return {"decimal": format(part, "f")}
        case bytes():
            return {"base64": base64.b64encode(part).decode()}
        case _:
            assert_never(part)


def _part_from_json(form: Json) -> KeyPart:
    """Read one column's value in a key from its JSON form."""
    if isinstance(form, dict):
        if "decimal" in form:
            return Decimal(form["decimal"])
        return base64.b64decode(form["base64"])
    if isinstance(form, _PLAIN_PARTS):
        return form
    raise ValueError(f"not a key part: {form!r}")


def key_to_json(key: Key | None) -> Json:
    """Return the JSON form of a key, None for an open end."""
    return None if key is None else [_part_to_json(part) for part in key]


def key_from_json(form: Json) -> Key | None:
    """Read a key from its JSON form, None for an open end."""
    return None if form is None else tuple(_part_from_json(part) for part in form)


def split_to_json(split: SnapshotSplit) -> Json:
    """Return the JSON form of a split."""
    form: Json = {
        "table": str(split.table),
        "number": split.number,
        "columns": list(split.key_columns),
        "kinds": [kind.value for kind in split.key_kinds],
        "start": key_to_json(split.keys.start),
        "end": key_to_json(split.keys.end),
    }
    form |= chosen_to_json(split.chosen)
    if split.listed:
        form["listed"] = True
    return form


def split_from_json(form: Json) -> SnapshotSplit:
    """Read a split from its JSON form."""
    table, columns, kinds = _of_a_table(form["table"], (*form["columns"],), (*form["kinds"],))
    keys = KeyRange(key_from_json(form["start"]), key_from_json(form["end"]))
    chosen = chosen_from_json(form)
    listed = form.get("listed", False)
    return SnapshotSplit(table, form["number"], columns, kinds, keys, chosen, listed)


def chosen_to_json(chosen: Chosen | None) -> dict[str, Json]:
    """Return the JSON fields of a condition, interval or key list; none if no rows are chosen."""
    match chosen:
        case None:
            return {}
        case Condition(text):
            return {"condition": text}
        case Interval(column, start, end):
            ends = [None if part is None else _part_to_json(part) for part in (start, end)]
            return {"interval": [column, ends]}
        case KeyList(columns, keys):
            return {"keys": [[*columns], [key_to_json(key) for key in keys]]}
        case _:
            assert_never(chosen)


def chosen_from_json(form: Json) -> Chosen | None:
    """Read a condition, interval or key list from the JSON fields of a form."""
    if "condition" in form:
        return Condition(form["condition"])
    if "keys" in form:
        columns, keys = form["keys"]
        return KeyList((*columns,), tuple(tuple(map(_part_from_json, key)) for key in keys))
    if "interval" not in form:
        return None
    column, ends = form["interval"]
    start, end = (None if part is None else _part_from_json(part) for part in ends)
    return Interval(column, start, end)


@lru_cache(maxsize=64)
def _of_a_table(
    table: str, columns: tuple[str, ...], kinds: tuple[str, ...]
) -> tuple[TableId, tuple[str, ...], KeyKinds]:
    """Parse what all splits of a table share, with a cache: table, key columns, key kinds."""
    return TableId.parse(table), columns, tuple(map(KeyKind, kinds))


def report_to_json(report: SplitReport) -> Json:
    """Return the JSON form of a split's report."""
    return {
        "split": report.split_id,
        "low": position_to_json(report.low),
        "high": position_to_json(report.high),
        "rows": report.rows,
        "bytes": report.bytes,
        "fingerprint": report.fingerprint,
        "attempt": report.attempt,
        "changes": report.changes,
        "read_s": report.read_s,
        "publish_s": report.publish_s,
    }


def report_from_json(form: Json) -> SplitReport:
    """Read a split's report from its JSON form."""
    low = position_from_json(form["low"])
    return SplitReport(
        split_id=form["split"],
        low=low,
        high=low if form["high"] == form["low"] else position_from_json(form["high"]),
        rows=form["rows"],
        bytes=form["bytes"],
        fingerprint=form["fingerprint"],
        attempt=form["attempt"],
        changes=form.get("changes", 0),
        read_s=form.get("read_s", 0.0),
        publish_s=form.get("publish_s", 0.0),
    )


def finished_to_json(finished: FinishedSplit) -> Json:
    """Return the JSON form of a finished split."""
    settled, high = finished.watermark, finished.consistent_at
    watermark = position_to_json(settled)
    return {
        "split": split_to_json(finished.split),
        "watermark": watermark,
        "consistent_at": watermark if high is settled else position_to_json(high),
    }


def finished_from_json(form: Json, read: ReadPosition = position_from_json) -> FinishedSplit:
    """Read a finished split from its JSON form."""
    watermark, high = form["watermark"], form["consistent_at"]
    settled = read(watermark)
    return FinishedSplit(
        split=split_from_json(form["split"]),
        watermark=settled,
        consistent_at=settled if high == watermark else read(high),
    )


def progress_to_json(progress: TableProgress) -> Json:
    """Return the JSON form of one table's progress."""
    form: dict[str, Json] = {
        "table": str(progress.table),
        "applied_through": position_to_json(progress.applied_through),
        "finished": [finished_to_json(finished) for finished in progress.finished],
        "consistent_at": [position_to_json(high) for high in progress.consistent_at],
    }
    if progress.is_unread:
        form["unread"] = True
    return form


def progress_from_json(form: Json) -> TableProgress:
    """Read one table's progress from its JSON form; equal positions are read once."""
    known: dict[str, LogPosition] = {}

    def read(position: Json) -> LogPosition:
        text = str(position)
        found = known.get(text)
        if found is None:
            found = known[text] = position_from_json(position)
        return found

    return TableProgress(
        table=TableId.parse(form["table"]),
        applied_through=read(form["applied_through"]),
        finished=tuple(finished_from_json(part, read) for part in form["finished"]),
        consistent_at=tuple(map(read, form["consistent_at"])),
        is_unread=form.get("unread", False),
    )


def stream_to_json(stream: StreamSplit) -> Json:
    """Return the JSON form of the stream split."""
    return {
        "start": position_to_json(stream.start),
        "stop": None if stream.stop is None else position_to_json(stream.stop),
        "tables": [progress_to_json(progress) for progress in stream.tables],
        **({"stop_by": stream.stop_by} if stream.stop_by else {}),
        **({} if stream.began is None else {"began": _beginning_to_json(stream.began)}),
    }


def stream_from_json(form: Json) -> StreamSplit:
    """Read the stream split from its JSON form."""
    stop = form["stop"]
    return StreamSplit(
        start=position_from_json(form["start"]),
        stop=None if stop is None else position_from_json(stop),
        tables=tuple(progress_from_json(part) for part in form["tables"]),
        stop_by=form.get("stop_by", ""),
        began=_beginning_from_json(form["began"]) if "began" in form else None,
    )


def _beginning_to_json(began: Beginning) -> Json:
    """Return the JSON form of where a stream began without a snapshot."""
    at, known = position_to_json(began.at), position_to_json(began.known)
    return {"by": began.by, "at": at, "known": known}


def _beginning_from_json(form: Json) -> Beginning:
    """Read where a stream began from its JSON form."""
    at, known = position_from_json(form["at"]), position_from_json(form["known"])
    return Beginning(form["by"], at, known)


_PACKED = "zlib:"
_PACKED_FROM = 1 << 16


def stream_to_text(stream: StreamSplit) -> str:
    """Return a stream split as text for a database: JSON, compressed where it is long.

    One of a large table names two positions a split. As JSON it would soon be longer than what a
    server takes in one statement.
    """
    text = dumps(stream_to_json(stream))
    if len(text) < _PACKED_FROM:
        return text
    return _PACKED + base64.b64encode(zlib.compress(text.encode())).decode()


def stream_from_text(text: str) -> StreamSplit:
    """Read a stream split from the text that `stream_to_text` returned."""
    if text.startswith(_PACKED):
        text = zlib.decompress(base64.b64decode(text[len(_PACKED) :])).decode()
    with gc_paused():
        return stream_from_json(json.loads(text))
