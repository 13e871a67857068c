"""Where a transaction first came from, in two-way sync, and which ones an edge leaves out.

Each transaction that an edge writes at its sink begins with rows of the marker table: one for each
origin in it. A transaction without such rows was written at the node whose log it is in.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc_provider.core.errors import RESET, IntegrityError
from airflow_cdc_provider.core.identifiers import TableId

MARKER_COLUMNS = ("data_origin_node", "src_node", "dst_node")
"""The names in a marker row, which are its key; beside them it counts (`n`)."""
BEHIND_NAME = "#"
"""In `dst_node` what follows tells writers at the same time apart; it is no part of the name."""
_RISK = "a change could go round for ever, or never come"


@dataclass(frozen=True, slots=True, order=True)
class Marker:
    """The names in one row of the marker: a transaction's origin, and the edge it came over."""

    origin_node: str
    src_node: str
    dst_node: str

    @classmethod
    def of(cls, origin_node: str, src_node: str, dst_node: str) -> Marker:
        """Return the marker of a row that holds these names."""
        return cls(origin_node, src_node, dst_node.partition(BEHIND_NAME)[0])

    def __str__(self) -> str:
        return f"origin {self.origin_node}, from {self.src_node} to {self.dst_node}"


@dataclass(frozen=True, slots=True)
class EdgeOrigins:
    """Which transactions an edge leaves out of its source's log, by their markers.

    In a tree an edge to X leaves out what came over the edge from X; in a mesh it leaves out all
    that was not written at its own source. `do_nodes` (all, if empty) and `ignore_nodes` narrow
    that by origin.
    """

    marker: TableId
    src_node: str
    dst_node: str
    is_mesh: bool = False
    do_nodes: frozenset[str] = frozenset()
    ignore_nodes: frozenset[str] = frozenset()
    folds_case: bool = False
    """The server whose log is read does not tell names apart that differ by case alone."""

    def is_marker(self, table: TableId) -> bool:
        """Tell whether a table is the marker."""
        if self.folds_case:
            return str(table).casefold() == str(self.marker).casefold()
        return table == self.marker

    def leaves_out(self, marker: Marker | None) -> bool:
        """Tell whether a transaction with this marker, or with none, is not for the sink."""
        if marker is None:
            return not self._is_wanted(self.src_node)
        if marker.dst_node != self.src_node:
            raise IntegrityError(
                f"a transaction at node {self.src_node} is marked as written at another node "
                f"({marker})",
                where=str(self.marker),
                risk=_RISK,
                remedy="correct the nodes' names in the topology; nothing but its edges may write "
                "the marker, native replication between nodes included",
            )
        if self.is_mesh or marker.src_node == self.dst_node:
            return True
        if marker.origin_node == self.dst_node:
            raise IntegrityError(
                f"a change of node {self.dst_node} came to {self.src_node} by a detour ({marker})",
                where=str(self.marker),
                risk=_RISK,
                remedy="look for a loop among the edges of the topology",
            )
        return not self._is_wanted(marker.origin_node)

    def mixed(self, where: str) -> IntegrityError:
        """Return the error for a transaction of which only some origins are left out."""
        return IntegrityError(
            f"a transaction at node {self.src_node} holds changes of several origins, of which "
            f"node {self.dst_node} is to have some only",
            where=where,
            risk=_RISK,
            remedy="give do_nodes and ignore_nodes of the edges the same origins, and " + RESET,
        )

    def _is_wanted(self, origin: str) -> bool:
        """Tell whether the nodes that the edge names let an origin through."""
        is_named = not self.do_nodes or origin in self.do_nodes
        return is_named and origin not in self.ignore_nodes
