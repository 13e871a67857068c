"""Between which places of the source's log a lake's table has all changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.systems.changelog.reads.log_places import LogPlace, place_of
from airflow_cdc_provider.systems.file_log.layout import table_folder
from airflow_cdc_provider.systems.file_log.state import LogState


@dataclass(frozen=True, slots=True)
class StreamPlaces:
    """Places of one table, as its log's manifests say."""

    is_one_server: bool
    """All places that are known are of one server, so that each is one place."""
    begins: LogPlace | None
    """From there on each change is in the table; None where that is not known."""
    was_read: bool
    """The table began with rows that a snapshot read."""
    proven: LogPlace | None
    """Up to there each change is in the table by now; None where only its rows say that."""

    @classmethod
    def of(cls, state: LogState, table: TableId, *, is_complete: bool) -> StreamPlaces:
        """Return the places of a table; `is_complete`: it has all that the log has for it."""
        folder = table_folder(table)
        sources = state.targets.get(table) or (table,)
        position = _first_of([_position_of(state, source) for source in sources])
        highs = [each.report.high for each in state.splits.values() if each.folder == folder]
        places = [place_of(high) for high in highs]
        known = [place for place in places if place is not None]
        is_known = bool(places) and len(known) == len(places)
        return cls(
            len(state.servers_left | {each.server for each in _positions(state) if each.server})
            <= 1,
            max(known, key=lambda place: place.order) if is_known else None,
            bool(highs) or bool(state.kept.get(folder)),
            place_of(position) if position is not None and is_complete else None,
        )


def _first_of(positions: Sequence[LogPosition | None]) -> LogPosition | None:
    """Return the earliest of the positions of a table's sources; None if one is not known."""
    known = [each for each in positions if each is not None]
    if len(known) < len(positions):
        return None
    return next((p for p in known if all(other.covers(p) for other in known)), None)


def _position_of(state: LogState, table: TableId) -> LogPosition | None:
    """Return where a table of the source is in the log; None if it is not followed any more."""
    for stopped in state.stopped:
        if stopped.table == table:
            return stopped.stream.start
    stream = state.stream
    if stream is None or stream.progress_of(table) is None:
        return None
    return stream.start


def _positions(state: LogState) -> Iterator[LogPosition]:
    """Yield the positions that a log's state has."""
    if state.stream is not None:
        yield state.stream.start
    for published in state.splits.values():
        yield published.report.high
    for changed in state.changed.values():
        yield changed.position
    for stopped in state.stopped:
        yield stopped.stream.start
