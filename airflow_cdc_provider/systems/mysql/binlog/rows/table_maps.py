"""The table maps in force, by the id that row events name.

A map is in force until another of its id or another file, whatever statements come in between: a
map that only repeats it may have been left out by who sorted the events, many at a time. What is
made of a map's bytes is another matter: that is forgotten with the catalogue it was read by, and
made anew from the same bytes when rows ask for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from airflow_cdc_provider.core.errors import RESET, CorruptLogError, only_of
from airflow_cdc_provider.core.identifiers import LEDGER_DATABASE, TableId
from airflow_cdc_provider.systems.mysql.binlog.remedies import CHECK_LOG
from airflow_cdc_provider.systems.mysql.binlog.rows.row_events import TableDecoder
from airflow_cdc_provider.systems.mysql.binlog.rows.table_map import (
    SchemaSource,
    read_table_id,
    read_table_map,
)
from airflow_cdc_provider.systems.mysql.dialect.value_model import ZeroDates

PROGRESS = TableId(LEDGER_DATABASE, "stream")
"""Where pipelines keep how far their streams are."""


class TableMaps:
    """The table maps in force in one log file, with a decoder for each captured table."""

    def __init__(
        self,
        captured: Callable[[TableId], bool],
        zero_dates: ZeroDates,
        schemas: SchemaSource,
        flavour: str,
        *,
        marker: Callable[[TableId], bool] | None = None,
        progress: bool = False,
    ) -> None:
        """`progress`: rows in which pipelines keep the progress of their streams are decoded."""
        self._captured = captured
        self._progress = PROGRESS if progress else None
        self._is_marker = marker or (lambda _table: False)
        self._zero_dates = zero_dates
        self._schemas = schemas
        self._flavour = flavour
        self.known: dict[int, bytes] = {}
        """The bytes of the last map by table id."""
        self.ledgers: set[int] = set()
        """The ids of tables in which pipelines keep their own progress."""
        self.markers: set[int] = set()
        """The ids of the marker table, which has a decoder and is never captured."""
        self.progress: set[int] = set()
        """The ids of the table with the progress of streams, if its rows are asked for."""
        self._decoders: dict[int, TableDecoder | None] = {}
        self._by_bytes: dict[bytes, TableDecoder] = {}
        self._nulled: Counter[str] = Counter()
        """By decoders that were forgotten."""

    def begin_file(self) -> None:
        """Forget all table ids, which another log file may use for other tables."""
        self.known.clear()
        self.ledgers.clear()
        self.markers.clear()
        self.progress.clear()
        self._decoders.clear()

    def forget_schemas(self) -> None:
        """Forget the decoders made with the catalogue, whose definitions have changed."""
        self._nulled = self.nulled()
        self._decoders.clear()
        self._by_bytes.clear()

    def add(self, body: bytes) -> None:
        """Put a table map in force for its table id."""
        number = int.from_bytes(body[:6], "little")
        self.known[number] = body
        self._decoders[number] = self._decoder_of(body)
        table = read_table_id(body)
        for ids, belongs in (
            (self.ledgers, table.database == LEDGER_DATABASE),
            (self.markers, self._is_marker(table)),
            (self.progress, table == self._progress),
        ):
            if belongs:
                ids.add(number)
            else:
                ids.discard(number)

    def _decoder_of(self, body: bytes) -> TableDecoder | None:
        """Return the decoder of a table map; None if its table is not captured."""
        decoder = self._by_bytes.get(body[8:])
        if decoder is None and self._has_decoder(table := read_table_id(body)):
            with only_of(table):
                table_map = read_table_map(body, self._schemas, self._flavour)
                decoder = TableDecoder(table_map, self._zero_dates)
            self._by_bytes[body[8:]] = decoder
        return decoder

    def _has_decoder(self, table: TableId) -> bool:
        """Tell whether rows of a table are decoded."""
        return self._captured(table) or self._is_marker(table) or table == self._progress

    def decoder(self, number: int) -> TableDecoder | None:
        """Return the decoder for a table id, None if its table is not captured."""
        if number not in self._decoders and number in self.known:
            self._decoders[number] = self._decoder_of(self.known[number])
        if number not in self._decoders:
            raise CorruptLogError(
                f"rows came for table id {number}, which no table map announced",
                risk="rows would be lost",
                remedy=f"{CHECK_LOG}; if it is whole, {RESET}",
            )
        return self._decoders[number]

    def nulled(self) -> Counter[str]:
        """Return how many zero dates became NULL, by `table.column`."""
        total = self._nulled.copy()
        for decoder in self._by_bytes.values():
            for column, count in decoder.nulled.items():
                total[f"{decoder.map.table}.{column}"] += count
        return total
