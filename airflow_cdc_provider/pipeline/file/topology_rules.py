"""What a pipeline file with a topology must say besides: both nodes hold the same rows.

What comes over an edge goes on over others and may come back, so a setting by which the nodes
differ, or by which a transaction loses its marker, is refused. What the files of several edges say
together is judged by `core.topology_check`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_cdc_provider.core.identifiers import LEDGER_DATABASE, TableId
from airflow_cdc_provider.core.table_patterns import Route, TablePattern, sink_table
from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.problems import Path
from airflow_cdc_provider.pipeline.file.sections import VARIANTS
from airflow_cdc_provider.pipeline.file.topology_section import (
    TableConflictsSection,
    TopologySection,
)

Found = tuple[Path, str, str]
"""Where, what, fix."""
LEDGER_TABLES = frozenset(
    {
        "changed_table",
        "edge_target",
        "target_shard",
        "conflict",
        "control",
        "finished_split",
        "joined_split",
        "ledger_version",
        "pipeline",
        "schema_change",
        "stopped_table",
        "stream",
        "stream_split",
        "stream_table",
        "target",
        "writer",
    }
)
"""Names in the ledger's database that no marker may have."""


_OF_AN_EDGE: Path = ("schema_changes", "from_node")


def check_topology(file: PipelineFile) -> Iterator[Found]:
    """Yield what does not go together with the file's topology; nothing if it has none."""
    section = file.topology
    if section is None:
        if file.schema_changes.from_node is not None:
            yield _OF_AN_EDGE, "it names a node, and the file has no topology", "remove it"
        return
    yield from _regexes(file, section)
    yield from _nodes(section)
    yield from _origins(section)
    yield from _marker(file, section)
    yield from _conflicts(section)
    yield from _sink(file)
    yield from _stream(file)
    yield from _rows_that_differ(file)
    yield from _definitions_that_differ(file)
    yield from _node_of_definitions(file, section)


def _regexes(file: PipelineFile, section: TopologySection) -> Iterator[Found]:
    """Yield regular expressions: what they fit cannot be compared with the other edges' tables."""
    conflicts = {} if section.conflicts is None else section.conflicts.tables
    named: list[tuple[Path, str]] = [
        *((("source", "tables", number), text) for number, text in enumerate(file.source.tables)),
        *((("source", "exclude", number), text) for number, text in enumerate(file.source.exclude)),
        *((("sink", "route", text), text) for text in file.sink.route),
        *((("topology", "conflicts", "tables", text), text) for text in conflicts),
    ]
    for path, text in named:
        if TablePattern.parse(text).has_regex:
            yield (
                path,
                f"{text!r} is a regular expression, and the tables of an edge are compared with "
                "those of the others by names and *",
                "write names and *, or remove topology: the copy is one-way then",
            )


def _nodes(section: TopologySection) -> Iterator[Found]:
    """Yield a problem if the edge's two nodes are one, or names differ by case alone."""
    if section.src_node == section.dst_node:
        yield (
            ("topology", "dst_node"),
            f"src_node is {section.src_node}, too: an edge joins two nodes",
            "name the node that the sink is",
        )
    spelled: dict[str, str] = {}
    for path, node in _named(section):
        first = spelled.setdefault(node.casefold(), node)
        if first != node:
            yield (
                path,
                f"{node} and {first} differ by case alone, and a marker may not tell them apart",
                f"write {first} if that node is meant, or rename one of them",
            )


def _named(section: TopologySection) -> Iterator[tuple[Path, str]]:
    """Yield each node that the section names, with its place."""
    yield ("topology", "src_node"), section.src_node
    yield ("topology", "dst_node"), section.dst_node
    for number, node in enumerate(section.do_nodes):
        yield ("topology", "do_nodes", number), node
    for number, node in enumerate(section.ignore_nodes):
        yield ("topology", "ignore_nodes", number), node


def _origins(section: TopologySection) -> Iterator[Found]:
    """Yield nodes in `do_nodes` and `ignore_nodes` by which an edge would bring less than meant."""
    yield from _twice(section.do_nodes, "do_nodes")
    yield from _twice(section.ignore_nodes, "ignore_nodes")
    for number, node in enumerate(section.ignore_nodes):
        path = ("topology", "ignore_nodes", number)
        if node in section.do_nodes:
            yield path, f"{node} is in do_nodes, too", "remove it from one of them"
        elif section.shape == "mesh" and node == section.src_node:
            yield (
                path,
                f"an edge of a mesh brings what is written at {node} only, so this one would bring "
                "nothing",
                "remove it",
            )
    for number, node in enumerate(section.do_nodes):
        path = ("topology", "do_nodes", number)
        if node == section.dst_node:
            yield (
                path,
                f"no edge brings {node} its own changes",
                "remove it, or name the nodes whose changes are to go there",
            )
        elif section.shape == "mesh" and node != section.src_node:
            yield (
                path,
                f"an edge of a mesh brings what is written at {section.src_node} only",
                f"remove it: the changes of {node} come over its own edge",
            )


def _twice(nodes: Sequence[str], key: str) -> Iterator[Found]:
    """Yield nodes that a list names more than once."""
    for number, node in enumerate(nodes):
        if node in nodes[:number]:
            yield ("topology", key, number), f"{node} is there twice", "remove one"


def _marker(file: PipelineFile, section: TopologySection) -> Iterator[Found]:
    """Yield a problem if the marker is a table of the ledger, or is copied or written as one."""
    marker = section.marker_table
    path: Path = ("topology", "name" if section.marker is None else "marker")
    if marker.database == LEDGER_DATABASE and marker.table.lower() in LEDGER_TABLES:
        yield (
            path,
            f"{marker} is a table of the ledger, so it cannot be the marker",
            "write marker: airflow_cdc.<another name>, the same in all files of the topology",
        )
    elif file.picks(marker, ignore_case=True) and marker.database != LEDGER_DATABASE:
        yield (
            path,
            f"the marker {marker} is among the tables to copy, and it is never copied",
            f'add it to source.exclude: ["{marker}"]',
        )
    for table in _sources_of(marker, file.sink.routes):
        if table != marker and file.picks(table):
            yield (
                ("sink", "route"),
                f"{table} would go to {marker}, which is the topology's marker",
                "route it elsewhere, exclude it, or name another marker",
            )


def _conflicts(section: TopologySection) -> Iterator[Found]:
    """Yield what does not go together with conflicts that are settled."""
    conflicts = section.conflicts
    if conflicts is None:
        return
    path: Path = ("topology", "conflicts")
    yield from _conflict_rule(section, conflicts, path)
    if conflicts.policy != "stop" and not conflicts.winner:
        yield _no_winner(section, conflicts, path)
    for tables, rule in conflicts.tables.items():
        own = (*path, "tables", tables)
        yield from _conflict_rule(section, rule, own)
        if rule.policy != "stop" and not (rule.winner or conflicts.winner):
            yield _no_winner(section, rule, own)
    for key in ("do_nodes", "ignore_nodes"):
        if getattr(section, key):
            yield (
                ("topology", key),
                "conflicts with changes that are not brought could not be settled alike",
                "remove it, or remove conflicts",
            )


def _conflict_rule(
    section: TopologySection, rule: TableConflictsSection, path: Path
) -> Iterator[Found]:
    """Yield what does not go together in one rule for conflicts."""
    if rule.winner is not None and rule.winner not in {section.src_node, section.dst_node}:
        yield (
            (*path, "winner"),
            f"{rule.winner} is no node of this edge",
            f"write {section.src_node} or {section.dst_node}, the same in both edges' files",
        )
    if rule.policy == "stop" and rule.winner:
        yield (
            (*path, "winner"),
            "with the policy stop no node wins",
            "remove it, or write policy: priority",
        )
    if rule.policy == "column" and not rule.column:
        yield (
            (*path, "policy"),
            "the policy column needs to know which",
            "write column: <name>, of one that grows with each change, such as updated_at",
        )
    if rule.policy != "column" and rule.column:
        yield (
            (*path, "column"),
            f"the policy {rule.policy} looks at no column",
            "write policy: column, or remove it",
        )


def _no_winner(section: TopologySection, rule: TableConflictsSection, path: Path) -> Found:
    """Return the problem that a rule does not say which node wins."""
    return (
        path,
        f"'winner' is missing, and the policy {rule.policy} needs one",
        f"write winner: {section.src_node} or {section.dst_node}, the same in both edges' files",
    )


def _sources_of(target: TableId, routes: Sequence[Route]) -> Iterator[TableId]:
    """Yield the tables that routes send to `target`, of routes that keep what a star stands for."""
    for route in routes:
        stars = route.target.stars_of(target, ignore_case=True)
        if stars is None or not _keeps_names(route):
            continue
        names = zip((route.source.database, route.source.table), stars, strict=True)
        database, name = (name.filled(found, ()) for name, found in names)
        if sink_table(TableId(database, name), routes) == route.target_of(TableId(database, name)):
            yield TableId(database, name)


def _keeps_names(route: Route) -> bool:
    """Tell whether a route sends each of its tables to a table of its own."""
    source, target = route.source, route.target
    return (source.database.stars, source.table.stars) == (
        target.database.stars,
        target.table.stars,
    )


def _sink(file: PipelineFile) -> Iterator[Found]:
    """Yield what a sink cannot do, or may not, that is a node."""
    kind, abilities = file.sink.type, file.sink.abilities
    if kind not in VARIANTS["source"] or not (abilities.transactional and abilities.upserts):
        yield (
            ("sink", "type"),
            f"a sink of type {kind} is no node: nobody writes there but its pipeline, and none can "
            "read from it",
            f"remove topology, or write a sink of type {' or '.join(VARIANTS['source'])}",
        )
    if file.sink.existing_rows == "replace":
        yield (
            ("sink", "existing_rows"),
            "replacing the rows of a node destroys what was written there",
            "write refuse, or leave it out; a node joins with empty tables",
        )
    for text, route in zip(file.sink.route, map(_parsed, file.sink.route.items()), strict=True):
        if not _keeps_names(route):
            yield (
                ("sink", "route", text),
                "several tables go to one, and an edge back could not tell them apart",
                "write the * on the right, too, or route the tables one by one",
            )


def _parsed(entry: tuple[str, str]) -> Route:
    """Return one entry of `sink.route`, parsed."""
    return Route.parse(*entry)


def _stream(file: PipelineFile) -> Iterator[Found]:
    """Yield settings by which a transaction would not stay whole, with its marker."""
    if file.stream.apply != "transactions":
        yield (
            ("stream", "apply"),
            "a topology needs whole transactions, each with its marker: merged takes them apart",
            "write apply: transactions, or leave it out",
        )
    if file.stream.writers > 1:
        yield (
            ("stream", "writers"),
            "parallel writers would take transactions apart, and a topology needs them whole",
            "write writers: 1, or leave it out",
        )
    if not file.snapshot.backfill:
        yield (
            ("snapshot", "backfill"),
            "without it the stream brings older changes once more, and an edge back would take "
            "them for new ones",
            "write backfill: true, or leave it out",
        )


def _rows_that_differ(file: PipelineFile) -> Iterator[Found]:
    """Yield settings by which the nodes would hold other rows or values."""
    for name, table in file.tables.items():
        if not table.is_identity:
            known = ("where", "columns", "deletes", "metadata", "shard")
            keys = [key for key in known if key in table.model_fields_set]
            yield (
                ("tables", name, *keys[:1]),
                "the nodes of a topology hold the same rows and columns: an edge back would bring "
                "what is left out or changed here",
                "remove it, or remove topology: the copy is one-way then",
            )
        elif table.key is not None:
            yield (
                ("tables", name, "key"),
                "each node tells rows apart by the table's own key, and an edge back does not know "
                "of this one",
                "remove it and give the table a primary key, or remove topology: the copy is "
                "one-way then",
            )
    if file.source.zero_date_policy == "null":
        yield (
            ("source", "zero_dates"),
            "the nodes of a topology hold the same values: an edge back would bring NULL for each "
            "zero date",
            "write fail or text",
        )


def _node_of_definitions(file: PipelineFile, section: TopologySection) -> Iterator[Found]:
    """Yield what is wrong with the node where definitions are changed."""
    node, nodes = file.schema_changes.from_node, (section.src_node, section.dst_node)
    if node is None:
        return
    if node not in nodes:
        fix = f"write {nodes[0]} or {nodes[1]}, the same in both edges' files"
        yield _OF_AN_EDGE, f"{node} is no node of this edge", fix
    if section.conflicts is not None:
        yield (
            _OF_AN_EDGE,
            "a row that both nodes change while a column is on its way could not be settled alike",
            "remove it: make each change at both nodes; or remove conflicts",
        )


def _definitions_that_differ(file: PipelineFile) -> Iterator[Found]:
    """Yield policies by which the tables of the nodes would come to differ."""
    if "new_tables" in file.source.model_fields_set and file.source.new_tables == "add":
        yield (
            ("source", "new_tables"),
            "an edge of a topology adds no tables",
            "write tell, or leave it out: in a topology that is tell",
        )
    section = file.schema_changes
    for key in sorted(section.model_fields_set - {"drop_table", "rename_table", "from_node"}):
        if getattr(section, key) != "stop":
            yield (
                ("schema_changes", key),
                "an edge of a topology changes no table of the other node: one that is changed "
                "stops until both nodes have made the change",
                "write stop, or leave it out: in a topology that is stop",
            )
