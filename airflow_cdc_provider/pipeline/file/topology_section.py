"""The section `topology`: two nodes, and the edge between them that a pipeline is."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from airflow_cdc_provider.core.conflict_rules import ConflictRule, TableRule
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.topology import Topology, default_marker, is_topology_name
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.systems.sections.base import Section


def _topology_name(value: Any) -> Any:
    """Check the name of a topology or of a node."""
    if isinstance(value, str) and not is_topology_name(value):
        raise WrongValueError(
            f"{value!r} cannot be a name: wanted a letter, then up to 63 letters, digits or "
            "underscores",
            "rename it, as in berlin_1",
        )
    return value


def _marker(value: Any) -> Any:
    """Refuse a marker table's name that is a pattern: it must name one table."""
    if not isinstance(value, str):
        return value
    if not TablePattern.parse(value).is_exact:
        raise WrongValueError(
            f"{value!r} is not one table", "name it without * or a regular expression"
        )
    return value


def _pattern(value: Any) -> Any:
    """Check the name of a table or a pattern."""
    if isinstance(value, str):
        TablePattern.parse(value)
    return value


TopologyName = Annotated[str, BeforeValidator(_topology_name)]
MarkerTable = Annotated[str, BeforeValidator(_marker)]
Policy = Literal["priority", "column", "stop"]
TableName = Annotated[str, BeforeValidator(_pattern)]


class TableConflictsSection(Section):
    """What becomes of a row of some tables that both nodes change at the same time."""

    policy: Policy = Field(
        description="`priority`: the winner's change stays, and is written over the other's. "
        "`column`: the change with the greater value in a column stays, and the winner's where "
        "both have the same. `stop`: none; the table stops, and a person decides.",
        examples=["priority"],
    )
    column: str | None = Field(
        default=None,
        min_length=1,
        description="With `column` alone: a column of whole numbers, decimals, dates or times that "
        "grows with each change of a row, such as the time of the last change or a version.",
        examples=["updated_at"],
    )
    winner: TopologyName | None = Field(
        default=None,
        description="The node that wins: `src_node` or `dst_node`. Without it the one that "
        "`conflicts` names. Not with `stop`.",
        examples=["paris"],
    )


class ConflictsSection(TableConflictsSection):
    """What becomes of a row that both nodes of an edge change at the same time."""

    winner: TopologyName | None = Field(
        default=None,
        description="The node that wins: `src_node` or `dst_node`, the same in the files of both "
        "edges between them. Not with `stop`.",
        examples=["berlin"],
    )
    tables: dict[TableName, TableConflictsSection] = Field(
        default_factory=dict,
        description="Tables with rules of their own, by name or pattern as in `source.tables`. A "
        "table's name goes before patterns, and these go in the order of the file.",
        examples=[{"shop.stock": {"policy": "column", "column": "version"}}],
    )

    @property
    def rules(self) -> tuple[TableRule, ...]:
        """Return the rules of single tables, then those of patterns in the file's order."""
        rules = [
            TableRule(TablePattern.parse(tables), self._rule_of(own))
            for tables, own in self.tables.items()
        ]
        return tuple(sorted(rules, key=lambda each: not each.tables.is_exact))

    def _rule_of(self, own: TableConflictsSection) -> ConflictRule:
        """Return a rule, whose winner may be the one that the section names for all tables."""
        if own.policy == "stop":
            return ConflictRule("")
        return ConflictRule(own.winner or self.winner or "", own.column or "")


class TopologySection(Section):
    """Two-way sync: databases are nodes, and this pipeline is an edge from one to another."""

    name: TopologyName = Field(
        description="Name of the topology, the same in the files of all its edges: a letter, then "
        "up to 63 letters, digits or underscores.",
        examples=["shops"],
    )
    src_node: TopologyName = Field(
        description="Name of the node that `source` is, the same in all files.",
        examples=["berlin"],
    )
    dst_node: TopologyName = Field(
        description="Name of the node that `sink` is, the same in all files.", examples=["paris"]
    )
    do_nodes: tuple[TopologyName, ...] = Field(
        default=(),
        description="The only nodes of whose changes the edge brings any. Without it all that the "
        "shape gives it.",
        examples=[["berlin"]],
    )
    ignore_nodes: tuple[TopologyName, ...] = Field(
        default=(), description="Nodes whose changes the edge does not bring.", examples=[["rome"]]
    )
    marker: MarkerTable | None = Field(
        default=None,
        description="The table in which each transaction says where it first came from, the same "
        "on all nodes; without it `airflow_cdc.<name>`.",
        examples=["airflow_cdc.shops"],
    )
    shape: Literal["tree", "mesh"] = Field(
        default="tree",
        description="`tree`: pairs, chains and stars; an edge to a node brings all that did not "
        "come from there. `mesh`: each node has an edge to each other one, which brings only what "
        "was written at its own source.",
    )
    conflicts: ConflictsSection | None = Field(
        default=None,
        description="What becomes of a row that both nodes change at the same time. Without it "
        "nobody looks for that, and the nodes may end with different rows.",
        examples=[{"policy": "priority", "winner": "berlin"}],
    )

    @property
    def marker_table(self) -> TableId:
        """Return the marker table, by the file or else by the topology's name."""
        return default_marker(self.name) if self.marker is None else TableId.parse(self.marker)

    @property
    def edge(self) -> Topology:
        """Return the edge that the section describes."""
        conflicts = self.conflicts
        return Topology(
            self.name,
            self.src_node,
            self.dst_node,
            self.marker_table,
            do_nodes=self.do_nodes,
            ignore_nodes=self.ignore_nodes,
            is_mesh=self.shape == "mesh",
            winner="" if conflicts is None else conflicts.winner or "",
            column="" if conflicts is None else conflicts.column or "",
            rules=() if conflicts is None else conflicts.rules,
            stops=conflicts is not None and conflicts.policy == "stop",
        )
