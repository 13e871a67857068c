"""Changes of a table's definition while its stream flows: what they are, and what is done.

A statement of the log that changes a captured table is a barrier: what came before it is
committed, then the policy of its kind decides. `apply` makes the same change at the sink and goes
on, `ignore` leaves the sink's table as it is, `stop` ends the stream there, for a person.

Where rows change without row events, the statement alone does not bring the sink to the source.
Then the table is changed, and its rows are read again beside the stream.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_metadata import RowStamp
from airflow_cdc_provider.core.statement_effect import StatementEffect, StatementKind
from airflow_cdc_provider.core.table_schema import TableSchema


class ChangeKind(StrEnum):
    """The kinds of change of a table's definition."""

    ADD_COLUMN = "add_column"
    DROP_COLUMN = "drop_column"
    RENAME_COLUMN = "rename_column"
    MODIFY_COLUMN = "modify_column"
    INDEX = "index"
    """A unique key comes or goes; other indexes are nothing to a copy."""
    TRUNCATE = "truncate"
    ROWS = "rows"
    """Rows come or go without row events: partitions, tablespaces, another table in its place."""
    DROP_TABLE = "drop_table"
    RENAME_TABLE = "rename_table"
    """It has another name, and nothing has taken its own."""


CARRIED = frozenset({ChangeKind.ADD_COLUMN, ChangeKind.MODIFY_COLUMN})
"""Kinds that an edge may carry to its other node: writers of the old definition survive them."""


class Policy(StrEnum):
    """What is done about a change of a definition: apply, ignore or stop."""

    APPLY = "apply"
    IGNORE = "ignore"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """The policy for each kind of change; the defaults lose nothing."""

    add_column: Policy = Policy.APPLY
    drop_column: Policy = Policy.IGNORE
    rename_column: Policy = Policy.APPLY
    modify_column: Policy = Policy.APPLY
    index: Policy = Policy.APPLY
    truncate: Policy = Policy.APPLY
    rows: Policy = Policy.APPLY
    drop_table: Policy = Policy.IGNORE
    rename_table: Policy = Policy.APPLY
    from_node: str = ""
    """The node of an edge from which changes of definitions are carried to the other node.

    Empty: people make each change at both nodes.
    """

    def of(self, kind: ChangeKind) -> Policy:
        """Return the policy for a kind of change."""
        found: Policy = getattr(self, kind.value)
        return found

    def on_edge(self, src_node: str) -> SchemaPolicy:
        """Return the policy on an edge from a node.

        A table stops for each change that is not carried, but where it goes.
        """
        kept = {"drop_table", "rename_table", "from_node"}
        if self.from_node == src_node:
            kept |= {kind.value for kind in CARRIED}
        stops = {each.name: Policy.STOP for each in fields(self) if each.name not in kept}
        return replace(self, **stops)

    @classmethod
    def from_json(cls, form: Mapping[str, str]) -> SchemaPolicy:
        """Read the policies from JSON; kinds that are left out have their default."""
        known = {field.name for field in fields(cls)} - {"from_node"}
        policies = {name: Policy(value) for name, value in form.items() if name in known}
        return cls(**policies, from_node=form.get("from_node") or "")


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two definitions of one table."""

    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    modified: tuple[str, ...] = ()
    """Columns by the name they have now."""
    unique_added: tuple[str, ...] = ()
    unique_dropped: tuple[str, ...] = ()
    reread: str = ""
    """Why values may have changed along with it; empty if each is still what the log says."""
    moved: str = ""
    """Why other rows may stand there that are not in the log; empty if none do."""
    refused: str = ""
    """Why it cannot be followed at all."""
    traded: tuple[tuple[str, str], ...] = ()
    """Columns renamed to names that others had. They are not among `renamed`: the sink's columns
    keep their names, and what is in them is read again."""

    @property
    def kinds(self) -> frozenset[ChangeKind]:
        """Return the kinds of change that the difference consists of."""
        found = {
            ChangeKind.ADD_COLUMN: self.added,
            ChangeKind.DROP_COLUMN: self.dropped,
            ChangeKind.RENAME_COLUMN: (*self.renamed, *self.traded),
            ChangeKind.MODIFY_COLUMN: self.modified,
            ChangeKind.INDEX: (*self.unique_added, *self.unique_dropped),
        }
        rows = {ChangeKind.ROWS} if self.moved else set()
        return frozenset(rows | {kind for kind, names in found.items() if names})

    @property
    def why(self) -> str:
        """Return why the rows are read again, empty if they are not."""
        return "; ".join(filter(None, (self.moved, self.reread)))

    def read_again(self, why: str) -> Difference:
        """Return the difference with one more reason to read the rows again."""
        return replace(self, reread=f"{self.reread}; {why}" if self.reread else why)

    def onto(self, present: Collection[str], *, is_shared: bool = False) -> Difference:
        """Return the difference that is left for a sink that already has some of its columns.

        `present` are those columns, in lower case. The values of such a column are not the
        source's: it may have been kept from one that the source once dropped. In a table that is
        shared it may be another table's, and what this one has left there is emptied.
        """
        if is_shared:
            return self
        renamed = tuple(pair for pair in self.renamed if takes_free_name(*pair, present))
        others = [pair for pair in self.renamed if pair not in renamed]
        left = {*present} - {old.lower() for old, _ in renamed}
        added = tuple(name for name in self.added if name.lower() not in left)
        taken = [*(name for name in self.added if name not in added), *(new for _, new in others)]
        if not taken:
            return self
        found = replace(
            self,
            added=added,
            renamed=renamed,
            dropped=(*self.dropped, *(old for old, _ in others)),
            modified=tuple(dict.fromkeys((*self.modified, *taken))),
        )
        return found.read_again(f"the sink had a column {', '.join(taken)} already")


def takes_free_name(old: str, new: str, present: Collection[str]) -> bool:
    """Tell whether no other column has a column's new name; `present` is in lower case."""
    return new.lower() not in present or old.lower() == new.lower()


def names_behind(
    schema: TableSchema, effects: Sequence[StatementEffect]
) -> Mapping[str, str] | None:
    """Return the columns' new names by their old ones; None if the statements do not say."""
    names = {column.name: column.name for column in schema.columns}
    for effect in effects:
        if effect.kind is not StatementKind.ALTER or effect.is_doubtful:
            return None
        renames = {old.casefold(): new for old, new in effect.column_renames}
        names = {first: renames.get(last.casefold(), last) for first, last in names.items()}
    return names if effects else None


def with_left_out(
    before: TableSchema,
    now: TableSchema,
    names: Mapping[str, str] | None,
    *,
    ignores: bool,
    at_sink: Collection[str],
) -> TableSchema:
    """Return a table's new definition, with the columns marked that are not copied.

    What was left out stays so, by whatever name `names` gives it; with `ignores` columns that are
    new are left out, too. Never left out is what may hold the values of a column that is copied,
    and what has the name of a column that the sink has, `at_sink` in lower case: one of them would
    be taken for the other.
    """
    are = {column.name.casefold() for column in now.columns}
    if names is None:
        names = {column.name: column.name for column in before.columns}
        if not {column.name.casefold() for column in before.as_copied.columns} <= are:
            return now.ignoring(())  # one of the others may be it
    called = {first: last.casefold() for first, last in names.items()}
    copied = {called[column.name] for column in before.as_copied.columns}
    left_out = {called[name] for name in before.ignored}
    if ignores:
        left_out |= are - {*called.values()}
    left_out -= copied | {name.casefold() for name in (*at_sink, *now.primary_key)}
    return now.ignoring({c.name for c in now.columns if c.name.casefold() in left_out})


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change of a table's definition, stored in the ledger before it is applied.

    Applying it twice is harmless, so the pipeline's next owner finishes a change that was begun.
    """

    before: TablePlan
    after: TablePlan
    difference: Difference
    through: LogPosition
    """Behind the statements that made it: from there on rows have the new definition."""
    statement: str
    """The first of these, for people."""
    keeps_dropped: bool = True
    """Columns that the source has dropped stay at the sink, empty from here on."""
    truncates: bool = False
    """All rows were taken away."""
    leaves: bool = False
    """The table is gone at the source, and is not copied from there on."""
    drops_target: bool = False
    """The sink's table goes with it."""
    stamp: RowStamp | None = None
    """What is said of the rows of a table that keeps deleted rows, where it truncates."""

    @property
    def table(self) -> TableId:
        return self.before.schema.table

    @property
    def leaves_sink_alone(self) -> bool:
        """Tell whether the sink's table stays as it is: only columns that are left out changed."""
        return not (self.difference.kinds or self.rereads or self.truncates)

    @property
    def is_made_anew(self) -> bool:
        """Tell whether the sink's table is created again, because it cannot be altered to fit."""
        return self.rereads and bool(self.difference.refused)

    @property
    def rereads(self) -> bool:
        """Tell whether the table's rows are read again for the change."""
        return bool(self.difference.why)
