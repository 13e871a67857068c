"""A pipeline's place in a topology: databases are its nodes, pipelines its edges.

Two shapes are known, because in both what an edge has to bring follows from who wrote a
transaction (`core.markers`). In a tree an edge to X brings everything that did not come over the
edge from X. In a full mesh an edge brings only what was written at its own source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from airflow_cdc_provider.core.conflict_rules import ConflictRule, TableRule
from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.identifiers import LEDGER_DATABASE, TableId
from airflow_cdc_provider.core.markers import EdgeOrigins
from airflow_cdc_provider.core.plurals import counted

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_OTHERS = "tables without a rule of their own"
_NO_RULE = "no rule of its own"
_RULES_NAMED = 5


def is_topology_name(text: str) -> bool:
    """Tell whether a text can name a topology or a node: at most 64 letters, digits and `_`."""
    return _NAME.fullmatch(text) is not None


def default_marker(topology: str) -> TableId:
    """Return the marker table of a topology that names none."""
    return TableId(LEDGER_DATABASE, topology)


@dataclass(frozen=True, slots=True)
class Topology:
    """One edge of a topology: which two nodes a pipeline joins, and what it brings from one."""

    name: str
    src_node: str
    dst_node: str
    marker: TableId
    """The same table on all nodes."""
    do_nodes: tuple[str, ...] = ()
    """The only origins that the edge brings, of those its shape gives it; empty: all."""
    ignore_nodes: tuple[str, ...] = ()
    """Origins that the edge does not bring."""
    is_mesh: bool = False
    winner: str = ""
    """The node whose change stays where both ends change one row."""
    column: str = ""
    """The column whose greater value stays instead, and the winner's change only where it is the
    same; empty: there is none."""
    rules: tuple[TableRule, ...] = ()
    """For tables whose conflicts are settled in another way, single tables first."""
    stops: bool = False
    """A conflict stops its table, in tables without a rule of their own. Without it and without a
    winner nobody looks for conflicts."""

    @property
    def name_in_ledger(self) -> str:
        """Return the edge's name in the ledger at its sink, by which the opposite edge knows it."""
        return f"{self.name}:{self.src_node}:{self.dst_node}"

    @property
    def where(self) -> str:
        """Return which edge it is, for errors."""
        return f"edge from {self.src_node} to {self.dst_node} of {self.name}"

    @property
    def is_guarded(self) -> bool:
        """Tell whether conflicts are looked for."""
        return self.stops or bool(self.winner)

    @property
    def reads_rows_again(self) -> bool:
        """Tell whether requests may read rows again: they spare what the sink's node changed."""
        return self.is_guarded

    @property
    def settles(self) -> str:
        """Return how conflicts are settled, as text; empty if nobody looks for them."""
        if not self.is_guarded:
            return ""
        count = counted(len(self.rules), "table or pattern", "tables or patterns")
        own = f"; own rules for {count}" if self.rules else ""
        return f"{self.default_rule}{own}"

    @property
    def default_rule(self) -> ConflictRule:
        """Return the rule for conflicts of tables without a rule of their own."""
        return ConflictRule(self.winner, self.column)

    def rule_of(self, table: TableId) -> ConflictRule:
        """Return the rule for conflicts of a table, by its name at the source."""
        own = (each.rule for each in self.rules if each.tables.matches(table))
        return next(own, self.default_rule)

    def rules_since(self, before: Topology) -> str:
        """Describe which rules for conflicts differ from those of an earlier state of the edge."""
        mine, theirs = _rules_by_name(self), _rules_by_name(before)
        names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        told = [
            f"{name}: {mine.get(name, _NO_RULE)}, before: {theirs.get(name, _NO_RULE)}"
            for name in names[:_RULES_NAMED]
        ]
        more = len(names) - len(told)
        told += [f"and {more} more"] if more else []
        return "; ".join(told) or "the same ones in another order"

    def opposite(self) -> Topology:
        """Return the edge back, which brings all that its shape gives it."""
        return replace(
            self, src_node=self.dst_node, dst_node=self.src_node, do_nodes=(), ignore_nodes=()
        )

    def is_back_of(self, other: Topology) -> bool:
        """Tell whether this is the edge back of another one, by topology and nodes."""
        return self.name_in_ledger == other.opposite().name_in_ledger

    @property
    def way_to_seed(self) -> str:
        """Return what to do where rows are at the sink before the edge has written any."""
        return (
            f"if the edge from {self.dst_node} to {self.src_node} has copied these rows, `run` "
            f"this one with --seeded-from its file; else empty the tables at {self.dst_node}"
        )

    def origins(self) -> EdgeOrigins:
        """Return which transactions the edge leaves out of its source's log."""
        return EdgeOrigins(
            self.marker,
            self.src_node,
            self.dst_node,
            is_mesh=self.is_mesh,
            do_nodes=frozenset(self.do_nodes),
            ignore_nodes=frozenset(self.ignore_nodes),
        )

    def __str__(self) -> str:
        shape = "mesh" if self.is_mesh else "tree"
        text = f"{self.name}: {self.src_node} -> {self.dst_node} ({shape}, marker {self.marker})"
        text += f", {self.settles}" if self.settles else ""
        text += f", only changes of {', '.join(self.do_nodes)}" if self.do_nodes else ""
        return text + (f", none of {', '.join(self.ignore_nodes)}" if self.ignore_nodes else "")

    def refusal(self, what: str) -> RefusedError:
        """Return the error for what would take the place of rows of a living node."""
        return RefusedError(
            f"an edge of a topology {what}",
            where=self.where,
            risk="rows that are read again would take the place of what was written at "
            f"{self.dst_node} and has not come to {self.src_node} yet; nothing was changed",
            remedy="compare both nodes with `verify`, and correct by hand, at one of them, the "
            "rows that differ; the page 'Two nodes' says how a node is copied anew",
        )

    def refusal_to_read_again(self) -> RefusedError:
        """Return the error for a request to read rows again where nobody looks for conflicts."""
        return self.refusal("without `conflicts` reads no rows again")

    def to_json(self) -> dict[str, Any]:
        """Return the edge as JSON holds it; `from_json` reads it back equal."""
        return {
            "name": self.name,
            "src_node": self.src_node,
            "dst_node": self.dst_node,
            "marker": str(self.marker),
            "do_nodes": list(self.do_nodes),
            "ignore_nodes": list(self.ignore_nodes),
            "is_mesh": self.is_mesh,
            "winner": self.winner,
            "column": self.column,
            "rules": [each.to_json() for each in self.rules],
            "stops": self.stops,
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Topology:
        """Read an edge from JSON; `ValueError` names fields that a later release added."""
        unknown = sorted(form.keys() - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"topology has unknown fields {unknown}: older code reads a newer job")
        return cls(
            **{
                **form,
                "marker": TableId.parse(form["marker"]),
                "do_nodes": tuple(form.get("do_nodes", ())),
                "ignore_nodes": tuple(form.get("ignore_nodes", ())),
                "rules": tuple(map(TableRule.from_json, form.get("rules", ()))),
            }
        )


def _rules_by_name(edge: Topology) -> dict[str, str]:
    """Return an edge's rules for conflicts as texts, by the tables that they are for."""
    own = {str(each.tables): each.rule.whole for each in edge.rules}
    return {_OTHERS: edge.default_rule.whole, **own}
