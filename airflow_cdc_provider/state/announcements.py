"""What others were told of each table's changes, so that they hear of each once more at most."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError as DuplicateRowError

from airflow_cdc_provider.core.codec import dumps, position_from_json, position_to_json
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import AnnouncedTable, Note, NoteKind
from airflow_cdc_provider.state.fencing import FencedStore
from airflow_cdc_provider.state.tables import notes, told_tables


class AnnouncementStore(FencedStore):
    """The part of the state store that keeps notes and what was last announced of each table."""

    def told(self, name: PipelineName) -> dict[TableId, AnnouncedTable]:
        """Return what was last announced of each table; tables never announced are left out."""
        mine = select(told_tables).where(told_tables.c.pipeline == str(name))
        with self._reading() as connection:
            rows = connection.execute(mine).all()
        return {
            TableId.parse(row.source_table): AnnouncedTable(
                TableId.parse(row.source_table),
                row.changes,
                row.since,
                position_from_json(json.loads(row.position)),
                row.told_by,
            )
            for row in rows
        }

    def last_told_us(self, name: PipelineName) -> int:
        """Return when a table's changes were last announced, 0 if they never were."""
        mine = select(func.max(told_tables.c.told_us)).where(told_tables.c.pipeline == str(name))
        with self._reading() as connection:
            return int(connection.execute(mine).scalar() or 0)

    def keep_note(self, name: PipelineName, kind: NoteKind, form: Mapping[str, Any]) -> None:
        """Store a note in place of the last one of its kind; any process may, owner or not."""
        mine = notes.c.pipeline == str(name), notes.c.kind == kind.value
        values = {"at_us": self._clock(), "form": dumps(dict(form))}
        # a duplicate is somebody else's note of just now
        with suppress(DuplicateRowError), self._writing() as connection:
            if connection.execute(update(notes).where(*mine).values(values)).rowcount == 0:
                place = {"pipeline": str(name), "kind": kind.value}
                connection.execute(insert(notes).values({**place, **values}))

    def move_note(
        self,
        name: PipelineName,
        kind: NoteKind,
        form: Mapping[str, Any],
        *,
        expected: Note | None,
    ) -> bool:
        """Store a note in place of `expected`; False if another note is there by now.

        A note's time is its version: of two writers that expect the same, one is refused.
        """
        at_us = self._clock() if expected is None else max(self._clock(), expected.at_us + 1)
        values = {"at_us": at_us, "form": dumps(dict(form))}
        place = {"pipeline": str(name), "kind": kind.value}
        if expected is None:
            try:
                with self._writing() as connection:
                    connection.execute(insert(notes).values({**place, **values}))
            except DuplicateRowError:
                return False
            return True
        mine = notes.c.pipeline == str(name), notes.c.kind == kind.value
        is_same = notes.c.at_us == expected.at_us
        with self._writing() as connection:
            moved = connection.execute(update(notes).where(*mine, is_same).values(values))
        return moved.rowcount == 1

    def store_announced(self, name: PipelineName, tables: Iterable[AnnouncedTable]) -> None:
        """Store what is announced of these tables, in place of what was announced before."""
        rows = [
            {
                "pipeline": str(name),
                "source_table": str(each.table),
                "changes": each.changes,
                "since": each.since,
                "position": dumps(position_to_json(each.position)),
                "told_by": each.told_by[:255],
                "told_us": self._clock(),
            }
            for each in tables
        ]
        columns = told_tables.c
        with self._writing() as connection:
            for row in rows:
                mine = columns.pipeline == str(name), columns.source_table == row["source_table"]
                connection.execute(delete(told_tables).where(*mine))
                connection.execute(insert(told_tables).values(row))
