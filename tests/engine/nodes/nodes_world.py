"""Nodes that follow each other, driven step by step; what must be so is checked as they go.

Keys below `SHARED` are of one node each, which alone writes them. After each commit:

- at its own node such a row is what that node has written;
- at no node it goes back to what it was before.

After each join: what the sink's node had changed and the source did not know was not written, and
all else in the range is the source's.

At the end, when all is delivered (`World.finish`):

- no log grows any more; rows that drifted are read again, from the first node outwards;
- all nodes are equal;
- the conflicts that are stored are those that the logs say (`conflict_judge`);
- a row of one node has no conflict;
- a change stays whose node had heard of all others of that row;
- a row without a conflict is what was written last;
- in a pair a row that was written once by each node, neither knowing of it, has a conflict, and the
  row that stays is the one that the documentation says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from airflow_cdc_provider.core.conflict_rules import ConflictRule, TableRule
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_patterns import TablePattern
from airflow_cdc_provider.core.topology import Topology
from tests.engine.counter_log import CounterPosition
from tests.engine.nodes.conflict_judge import wrong_conflicts
from tests.engine.nodes.edges import Edge
from tests.engine.nodes.log_reading import Reading
from tests.engine.nodes.node import Committed, Node
from tests.engine.nodes.rows import SHARED, SHARED_KEYS, TABLES, Change, Row, Scope
from tests.engine.nodes.stores import Writing

MARKER = TableId("airflow_cdc", "shops")
_MOST_ROUNDS = 25
SHAPES = {
    "pair": ("ab",),
    "chain": ("ab", "bc"),
    "chain of 4": ("ab", "bc", "cd"),
    "star of 3": ("ab", "ac"),
    "star of 4": ("ab", "ac", "ad"),
}
"""Of each shape its links, from the first node outwards."""


class BrokenPromiseError(AssertionError):
    """The nodes are in a state that they must not be in."""


@dataclass(frozen=True)
class Start:
    """What is so from the beginning."""

    shape: str = "pair"
    policies: tuple[str, str] = ("priority", "priority")
    """Of each table: priority, column or stop; none for both where nobody looks for conflicts."""
    winners: tuple[int, ...] = (0, 0, 0)
    """Of each link the end that wins."""
    reading: Reading = field(default_factory=Reading)
    writing: Writing = field(default_factory=Writing)
    isolates: bool = False
    """A table whose conflict a person decides is left alone."""

    @property
    def links(self) -> tuple[str, ...]:
        return SHAPES[self.shape]


@dataclass(frozen=True)
class Write:
    """One change of one row, as far as it can be made."""

    kind: str
    """put, delete, move, again (deleted and inserted), back (changed, and changed back), or same
    (what another node may write as well)."""
    table: int = 0
    key: int = 10
    """One below `SHARED` stands for the node's own."""
    at: int | None = 1


@dataclass(frozen=True)
class Wrote:
    """A change of a row by a node, for the checks at the end."""

    node: str
    place: int
    """In the node's log."""
    before: Row | None
    after: Row | None
    known: dict[str, int]
    """How much of the other nodes' logs had been brought by then."""
    number: int
    """Of its transaction, among those of all nodes."""
    heard: frozenset[int]
    """The numbers of all that had come to the node by then, over any edges, and its own."""


class World:
    """Everything, and the steps that can be taken."""

    def __init__(self, start: Start) -> None:
        self.start = start
        names = sorted({name for link in start.links for name in link})
        rows = [(key, 1, 0) for key in (*range(len(names)), *SHARED_KEYS[:2])]
        self.nodes = [Node(name, rows) for name in names]
        self.edges = [
            Edge(
                edge,
                self.node(edge.src_node),
                self.node(edge.dst_node),
                start.reading,
                start.writing,
                isolates=start.isolates,
            )
            for edge in edges_of(start)
        ]
        self.written = self._history = 0
        self.wrote: dict[tuple[TableId, int], list[Wrote]] = {}
        self.drifted: set[tuple[TableId, int]] = set()
        self._seen: dict[tuple[str, TableId, int], tuple[int, bool]] = {}
        self._heard: dict[tuple[str, TableId], list[frozenset[int]]] = {
            (name, table): [frozenset()] for name in names for table in TABLES
        }
        """Of each node and table, place by place in the node's log."""
        for node in self.nodes:
            node.watch = self._judge

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def edge(self, name: str) -> Edge:
        """Return an edge by its two nodes."""
        found = (each for each in self.edges if each.src.name + each.dst.name == name)
        return next(found)

    # --- steps --------------------------------------------------------------------------------

    def write(self, number: int, writes: Sequence[Write]) -> bool:
        """Commit changes at a node in one transaction; False if it has to wait for a lock."""
        node = self.nodes[number % len(self.nodes)]
        if any(self._is_locked(node, each) for each in writes):
            return False
        rows = {table: dict(found) for table, found in node.rows.items()}
        for changes in self._transactions(node, writes, rows):
            self._note(node, changes)
            node.commit(Committed((*changes,)))
        return True

    def drift(self, number: int, write: Write) -> None:
        """Change a row at a node without a word in its log."""
        node, table = self.nodes[number % len(self.nodes)], TABLES[write.table]
        key = self._key(node, write)
        self.drifted.add((table, key))
        if write.kind == "delete":
            node.rows[table].pop(key, None)
        else:
            node.rows[table][key] = (key, write.at, self._next())

    def join(self, edge: Edge) -> bool:
        """Take the next step of a split that is read again; True if it has joined."""
        reading, before = edge.rereading, len(edge.dst.log)
        if reading is None or not edge.go_on_reading():
            return False
        table = reading.split.table
        known = edge.known if edge.ledger.knew is None else edge.ledger.knew.of(table)
        assert isinstance(known, CounterPosition)
        touched: set[int] = set()
        for place, found in enumerate(edge.dst.log[known.number :], known.number):
            keys = {
                key
                for change in found.changes
                if change.table == reading.split.table
                for key in change.keys
            }
            if edge.src.name not in {mark.src_node for mark in found.marks}:
                touched |= keys
            elif place >= before and found.moved is None:
                self._require(not keys & touched, f"a join has written over {keys & touched}")
        held, wanted = edge.dst.rows[reading.split.table], edge.joined_rows
        for key in {*wanted} - touched:
            is_there = held.get(key) == wanted[key]
            self._require(is_there, f"a join has left {key} as it was")
        return True

    def decide(self) -> None:
        """Give the tables that stop a winner, in the files of all edges."""
        policies = tuple("priority" if each == "stop" else each for each in self.start.policies)
        decided = edges_of(replace(self.start, policies=(policies[0], policies[1])))
        for edge, topology in zip(self.edges, decided, strict=True):
            edge.crash()
            edge.topology, edge.ended_by = topology, None
            edge.undecided.clear()

    def _key(self, node: Node, write: Write) -> int:
        return write.key if write.key >= SHARED else self.nodes.index(node)

    def _is_locked(self, node: Node, write: Write) -> bool:
        keys = SHARED_KEYS if write.kind == "move" else (self._key(node, write),)
        return any(node.is_locked(TABLES[write.table], key) for key in keys)

    def _next(self) -> int:
        self.written += 1
        return self.written

    def _transactions(
        self, node: Node, writes: Sequence[Write], rows: dict[TableId, dict[int, Row]]
    ) -> list[list[Change]]:
        """Return what a node is to commit."""
        found: list[list[Change]] = [[]]

        def change(table: TableId, key: int, row: Row | None) -> None:
            before = rows[table].pop(key, None)
            if row is not None:
                rows[table][row[0]] = row
            if before != row:
                found[-1].append(Change(table, before, row))

        for write in writes:
            table, key, kind = TABLES[write.table], self._key(node, write), write.kind
            if key < SHARED and kind != "delete":
                kind = "put"
            held, new = rows[table].get(key), (key, write.at, self._next())
            for row in self._steps(kind, held, new, rows[table]):
                change(table, key, row)
            if kind == "back" and held is not None:
                found.append([])
                change(table, key, held)
        return [each for each in found if each]

    def _steps(
        self, kind: str, before: Row | None, new: Row, held: dict[int, Row]
    ) -> list[Row | None]:
        """Return what becomes of a row, step by step."""
        if kind == "move":
            free = [key for key in SHARED_KEYS if key not in held]
            return [] if before is None or not free else [(free[0], *new[1:])]
        if kind == "delete":
            return [] if before is None else [None]
        if kind == "again":
            return [new] if before is None else [None, new]
        if kind == "same":
            return [(new[0], new[1], -1 - (new[1] or 0))]
        return [new]

    def _note(self, node: Node, changes: Sequence[Change]) -> None:
        self._history += 1
        place = len(node.log) + 1
        for change in changes:
            table = change.table
            known = {edge.src.name: edge.brought(table) for edge in self.edges if edge.dst is node}
            heard = self._heard[node.name, table][-1] | {self._history}
            for key in change.keys:
                before = change.before if change.before and change.before[0] == key else None
                after = change.after if change.after and change.after[0] == key else None
                wrote = Wrote(node.name, place, before, after, known, self._history, heard)
                self.wrote.setdefault((table, key), []).append(wrote)

    # --- what must be so ----------------------------------------------------------------------

    @staticmethod
    def _require(is_so: bool, what: str) -> None:
        if not is_so:
            raise BrokenPromiseError(what)

    def _judge(self, node: Node) -> None:
        """Judge the rows of single nodes after a commit, and note what the node has heard."""
        committed = node.log[-1]
        is_own = committed.changes and not committed.marks and committed.moved is None
        for table in TABLES:
            new = {self._history} if is_own else set[int]()
            if committed.moved is not None:
                position = committed.moved[1].of(table)
                assert isinstance(position, CounterPosition)
                new |= self._heard[position.server, table][position.number]
            heard = self._heard[node.name, table]
            heard.append(heard[-1] | new)
        for change in committed.changes:
            for key in change.keys:
                if key < SHARED and (change.table, key) not in self.drifted:
                    self._judge_own(node, change.table, key)

    def _judge_own(self, node: Node, table: TableId, key: int) -> None:
        row, owner = node.rows[table].get(key), self.nodes[key]
        if node is owner:
            wrote = self.wrote.get((table, key))
            last = wrote[-1].after if wrote else (key, 1, 0)
            self._require(row == last, f"{owner.name}'s own row {key} was changed by others")
        seen, was_there = self._seen.get((node.name, table, key), (0, True))
        if row is not None:
            goes_on = row[2] > seen or (row[2] == seen and was_there)
            self._require(goes_on, f"{owner.name}'s row {key} goes back at {node.name}")
            seen = row[2]
        self._seen[node.name, table, key] = seen, row is not None

    # --- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Deliver all there is, read drifted rows again, and see that the promises are kept."""
        self.settle()
        if any(edge.undecided for edge in self.edges):
            for edge in self.edges:
                back = self.edge(edge.dst.name + edge.src.name)
                are_alike = edge.undecided == back.undecided or edge.ended_by or back.ended_by
                self._require(bool(are_alike), "a table stops on one of two edges alone")
                self._require(
                    bool(edge.undecided) == bool(back.undecided), "one of two edges ends alone"
                )
            self.decide()
            self.settle()
        if self.drifted and self.start.policies[0] != "none":
            self.repair()
            self.settle()
        self._judge_end()

    def settle(self) -> None:
        """Deliver until nothing moves."""
        for _ in range(_MOST_ROUNDS):
            before = [len(node.log) for node in self.nodes]
            for edge in self.edges:
                edge.deliver()
                for table in TABLES:
                    edge.catch_up(table)
            if before == [len(node.log) for node in self.nodes]:
                done = all(edge.is_done or edge.ended_by for edge in self.edges)
                self._require(done, "an edge does not get on")
                return
        raise BrokenPromiseError("the logs grow by themselves")

    def repair(self) -> None:
        """Read all rows again, from the first node outwards."""
        for link in self.start.links:
            edge = self.edge(link)
            for table in range(len(TABLES)):
                edge.rereading = None
                edge.read_again(Scope(table))
                for _ in range(_MOST_ROUNDS):
                    if self.join(edge):
                        break
                    edge.deliver()
                    edge.commit_idle_log()
                else:
                    raise BrokenPromiseError("a split does not join")
            self.settle()

    def _judge_end(self) -> None:
        first = self.nodes[0]
        for node in self.nodes[1:]:
            for table in TABLES:
                differs = dict(first.rows[table].items() ^ node.rows[table].items())
                self._require(not differs, f"{first.name} and {node.name} differ: {differs}")
        for edge in self.edges:
            wrong = wrong_conflicts(edge) if edge.topology.is_guarded else []
            self._require(not wrong, "; ".join(wrong))
        conflicts = {
            (each.table, each.key["id"]) for edge in self.edges for each in edge.ledger.conflicts
        }
        for (table, key), wrote in self.wrote.items():
            if (table, key) in self.drifted:
                continue
            row = first.rows[table].get(key)
            if (table, key) not in conflicts and not self._may_vanish(wrote):
                self._require(row == wrote[-1].after, f"{key} was overwritten without a conflict")
            if all(each.number in wrote[-1].heard for each in wrote):
                self._require(row == wrote[-1].after, f"the last change of {key} is lost")
            self._require(key >= SHARED or (table, key) not in conflicts, f"{key} has a conflict")
            if self.start.shape == "pair" and len(wrote) == 2:
                self._judge_two((table, key), wrote, row, has_conflict=(table, key) in conflicts)

    def _may_vanish(self, wrote: list[Wrote]) -> bool:
        """Tell whether changes of a row may come to nothing where they are brought together.

        Then no node behind that one hears of them, nor of a conflict with them.
        """
        states = [wrote[0].before, *(each.after for each in wrote)]
        return len(self.nodes) > 2 and len({*states}) < len(states)

    def _judge_two(
        self, which: tuple[TableId, int], wrote: list[Wrote], row: Row | None, *, has_conflict: bool
    ) -> None:
        """Judge a row that was written twice."""
        one, other = wrote
        knew = one.node == other.node or other.known[one.node] >= one.place
        self._require(has_conflict is not knew, f"{which[1]} has a conflict: {has_conflict}")
        if not knew:
            stays = self._stays(which[0], one, other)
            self._require(row == stays.after, f"another change of {which[1]} should stay")

    def _stays(self, table: TableId, one: Wrote, other: Wrote) -> Wrote:
        """Return whose change of a row stays."""
        winner = self.start.links[0][self.start.winners[0]]
        if self.start.policies[TABLES.index(table)] == "column":
            strengths = [_strength(each) for each in (one, other)]
            if strengths[0] != strengths[1]:
                return one if strengths[0] > strengths[1] else other
        return one if one.node == winner else other


def _strength(wrote: Wrote) -> float:
    """Return what a change counts by the column."""
    row = wrote.before if wrote.after is None else wrote.after
    assert row is not None
    value = float("-inf") if row[1] is None else float(row[1])
    if wrote.after is None:
        value = -1e9 if row[1] is None else value + 0.5
    return value


def edges_of(start: Start) -> list[Topology]:
    """Return the edges of a start, there and back for each link."""
    found = []
    for link, winner in zip(start.links, start.winners, strict=False):
        edge = Topology("shops", link[0], link[1], MARKER)
        if start.policies[0] != "none":
            rules = [_rule(policy, link[winner]) for policy in start.policies]
            patterns = [TablePattern.parse(str(table)) for table in TABLES]
            edge = replace(
                edge,
                winner=link[winner],
                rules=tuple(map(TableRule, patterns, rules)),
            )
        found += [edge, edge.opposite()]
    return found


def _rule(policy: str, winner: str) -> ConflictRule:
    match policy:
        case "stop":
            return ConflictRule("")
        case "column":
            return ConflictRule(winner, "at")
        case _:
            return ConflictRule(winner)
