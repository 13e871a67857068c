"""Which requests are carried out at the same time, and with how many readers. No I/O.

Requests of different tables run side by side; those that have a table in common follow each other,
as they were asked. All together keep within the connections and the ids that the pipeline's file
leaves at the source. A request keeps its readers until it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.requests import Request

READERS = 2
"""One reads ahead while what the other has read is joined."""


@dataclass(slots=True)
class ReaderRoom:
    """The connections and readers at the source that all requests share."""

    connections: int
    readers: int
    connections_a_reader: int
    _taken: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    """By request: its connections, and the numbers of its readers."""

    def take(self, request: Request) -> tuple[int, ...]:
        """Take reader numbers for a request that no other request uses; none if no room is left.

        There is always room for one.
        """
        each = self.connections_a_reader
        used = sum(connections for connections, _ in self._taken.values())
        busy = {number for _, numbers in self._taken.values() for number in numbers}
        beside = 1 if request.scope.chosen is None else 2  # what finds boundaries, and cuts
        most = min(READERS, (self.connections - used - beside) // each)
        free = [number for number in range(max(1, self.readers)) if number not in busy]
        taken = tuple(free[: max(most, 0 if self._taken else 1)])
        if taken:
            self._taken[request.request_id] = beside + len(taken) * each, taken
        return taken

    def give_back(self, request: Request) -> None:
        """Free the readers of a request for others."""
        self._taken.pop(request.request_id, None)


def may_begin(to_do: Iterable[Request], running: Collection[Request]) -> Iterator[Request]:
    """Yield the requests whose tables no earlier or running request uses."""
    busy: set[TableId] = {table for request in running for table in request.scope.tables}
    known = {request.request_id for request in running}
    for request in to_do:
        if request.request_id in known:
            continue
        if not busy & set(request.scope.tables):
            yield request
        busy.update(request.scope.tables)
