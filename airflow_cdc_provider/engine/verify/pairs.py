"""Which tables are compared, by which digest, and by whose keys.

The digest that both sides' system has of its own is taken where rows travel as they are: servers
hash faster than rows travel. Where the two systems share none, or the sink's table has another
shape than the source's, rows are compared by columns: the source's are turned into the sink's.

Rows are named by the sink's key. Where its columns are the source's key, in order, both sides are
compared by ranges of it. Else they are compared by buckets of the sink's key, which reads all rows.
Rows of a table without a key are told apart by what they hold, and counted.

Of a sink's table that several of the source share, each is compared with its own rows: the column
that tells them apart has one value there, and is left out of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from airflow_cdc_provider.columns.verify_port import (
    BY_COLUMNS,
    ColumnsRead,
    TablePair,
    TableSide,
    VerifySide,
)
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, RefusedError
from airflow_cdc_provider.core.identifiers import TableId, table_option
from airflow_cdc_provider.core.keys import Key, KeyKinds, comparable
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.core.row_filters import columns_in
from airflow_cdc_provider.core.table_schema import ColumnType, TableSchema, TypeKind
from airflow_cdc_provider.core.table_shape import OutputColumn, TableShape
from airflow_cdc_provider.engine.verify.hashed_table import HashedTable
from airflow_cdc_provider.engine.verify.turning import SinkTurning, SourceTurning, source_key

SourceKeys = Callable[[Collection[Key]], Mapping[Key, Key]]


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """One table's two sides, and how they are compared."""

    table: TableId
    sink_table: TableId
    columns: tuple[str, ...]
    """The sink's, without those that the source does not have."""
    key_kinds: KeyKinds
    source: TableSide | HashedTable
    sink: TableSide | HashedTable
    by_ranges: bool
    """Parts are ranges of the key, else buckets."""
    digest: str
    why: str = ""
    """Why it is not a digest of the systems' own; empty if it is."""
    source_keys: SourceKeys | None = None
    """Returns the source's keys of rows by the sink's; None where both are the same."""
    has_same_key_columns: bool = True
    """The sink's key has the columns of the source's, in whatever order, and no others."""
    is_one_split: bool = False
    """No key finds rows at both sides: where some differ, all are read again."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """A session on each side."""

    source: VerifySide
    sink: VerifySide
    target_of: Callable[[TableSchema, TableId, TableShape], TableSchema]
    """Returns what the sink's table is to be, as `Sink.target_of`."""
    by_columns: bool = False
    """Rows are compared by columns though there is another digest."""
    is_written_at_both: bool = False
    """Rows of the source may be those of the sink, which came back."""

    def compared(self, plan: TablePlan) -> ComparedTable:
        """Return a table's two sides; refuse if it cannot be compared.

        What the metadata says of rows is not compared: the source has nothing like it.
        """
        plan = replace(plan, shape=plan.shape.without_metadata)
        here, there = self._definitions(plan)
        wanted = self._wanted(plan, here)
        names = {column.name.casefold(): column.name for column in there.columns}
        lacking = [c.name for c in wanted.copied_columns if c.name.casefold() not in names]
        if lacking:
            raise RefusedError(
                f"table {there.table} lacks the columns {', '.join(lacking)} of {here.table}",
                where="the sink",
                risk="their values are not copied",
                remedy="run the pipeline: it brings them, or says why not; if the table stands "
                f"still, `reset` it with {table_option(plan.schema.table)}; the others can be "
                "compared meanwhile, each with --table",
            )
        shared = [each for each in self.source.digests if each in self.sink.digests]
        printed_anew = self._printed_anew(wanted, there)
        why = self._why(plan, shared, printed_anew)
        if why:
            if BY_COLUMNS not in shared:
                raise ValueError("a side does not have the digest that every side has")
            columns = _Columns(self, plan, here, there, wanted, shared, printed_anew)
            return columns.compared(why)
        return self._by_own(here, there, shared[0])

    def _wanted(self, plan: TablePlan, here: TableSchema) -> TableSchema:
        """Return what the sink's table is to be, by the source's definition now."""
        try:
            return self.target_of(here, plan.sink_table, plan.shape)
        except ValueError as error:
            raise RefusedError(
                f"{here.table} no longer has what its copy is made of: {error}",
                where="verify, the source",
                risk=NOTHING_CHANGED,
                remedy="run the pipeline: it follows the change or says why not",
            ) from error

    def _printed_anew(self, wanted: TableSchema, there: TableSchema) -> frozenset[str]:
        """Return the columns, in lower case, whose JSON one side has printed in its own way.

        A column of JSON does that with each value; one of texts keeps what was written.
        """
        at_sink = {column.name.casefold(): column.type for column in there.columns}
        found = set()
        for column in wanted.copied_columns:
            name = column.name.casefold()
            prints = _prints_anew(column.type), _prints_anew(at_sink[name])
            if prints == (False, True) or (self.is_written_at_both and prints == (True, False)):
                found.add(name)
        return frozenset(found)

    def _why(self, plan: TablePlan, shared: list[str], printed_anew: frozenset[str]) -> str:
        """Return why a table is compared by columns; empty if it is not."""
        if not plan.shape.is_identity:
            return "the table has another shape at the sink"
        if shared == [BY_COLUMNS]:
            return "the two systems have no other digest in common"
        if printed_anew:
            return "JSON is text at one side, and the other prints it anew"
        return "that was asked for" if self.by_columns else ""

    def _by_own(self, here: TableSchema, there: TableSchema, digest: str) -> ComparedTable:
        """Return a table's two sides by a digest of the systems' own."""
        pair = TablePair(here, there)
        return ComparedTable(
            here.table,
            there.table,
            tuple(column.name for column in here.copied_columns),
            here.key_kinds,
            self.source.table(pair),
            self.sink.table(pair),
            here.has_key and all(kind.splittable for kind in here.key_kinds),
            digest,
        )

    def _definitions(self, plan: TablePlan) -> tuple[TableSchema, TableSchema]:
        """Return a table's definitions on both sides; refuse if one is not there."""
        table, target = plan.schema.table, plan.sink_table
        here, there = self.source.definition(table), self.sink.definition(target)
        if here is None:
            raise _not_there(table, "source", "check the name and the grants")
        if there is None:
            raise _not_there(target, "sink", "run the pipeline first")
        return here.ignoring(plan.schema.ignored), there


@dataclass(frozen=True, slots=True)
class _Columns:
    """One table that is compared by columns."""

    pairing: Pairing
    plan: TablePlan
    here: TableSchema
    there: TableSchema
    wanted: TableSchema
    """What the sink's table is to be."""
    shared: list[str]
    printed_anew: frozenset[str]
    """Columns, in lower case, whose JSON one side prints in its own way though it has a digest."""

    def compared(self, why: str) -> ComparedTable:
        """Return the table's two sides."""
        key = self._key()
        sources = tuple(each.source for each in key if each.source)
        is_hashed = _is_hashed(key)
        is_aligned = len(sources) == len(key) and sources == self.here.primary_key
        at_sink = self.wanted.key_kinds[len(self.wanted.primary_key) - len(key) :]
        kinds = self.here.key_kinds if is_aligned else at_sink
        is_plain = all(kind.splittable for kind in (*kinds, *at_sink))
        orders_alike = comparable(kinds) or len(self.shared) > 1
        names = tuple(column.name for column in self.wanted.copied_columns)
        here = self._source(key, is_plain=is_plain)
        return ComparedTable(
            self.here.table,
            self.there.table,
            names,
            kinds,
            here,
            self._sink(key, names, is_plain=is_plain),
            bool(key)
            and is_aligned
            and is_plain
            and orders_alike
            and self._have_ranges
            and not is_hashed,
            BY_COLUMNS,
            why,
            None if is_aligned else self._source_keys(key, here),
            len(sources) == len(key) and set(sources) == set(self.here.primary_key),
            is_one_split=is_hashed,
        )

    def _key(self) -> tuple[OutputColumn, ...]:
        """Return where the columns of the sink's key come from.

        The column of shards is left out: all rows that are compared have one value there.
        """
        shape = self.plan.shape
        outputs = {each.name: each for each in shape.columns_of(self.here)}
        return tuple(outputs[name] for name in self.wanted.primary_key if name != shape.shard)

    @property
    def _have_ranges(self) -> bool:
        """Tell whether both sides find rows by ranges of their keys."""
        return self.pairing.source.has_ranges and self.pairing.sink.has_ranges

    def _source(self, key: tuple[OutputColumn, ...], *, is_plain: bool) -> HashedTable:
        """Return the source's side."""
        plan = replace(self.plan, schema=self.here, target=self.wanted)
        read = {each.source for each in plan.shape.columns_of(self.here)} | set(_filtered_by(plan))
        read |= set(self.here.primary_key)
        names = tuple(column.name for column in self.here.columns if column.name in read)
        sourced = tuple(each for each in key if each.source and not each.is_hashed)
        own = ColumnsRead(self.here, names, tuple(each.source for each in sourced), is_plain)
        other = ColumnsRead(self.there, (), self._at_sink(each.name for each in sourced), is_plain)
        return HashedTable(
            self.here.table,
            self.pairing.source.columns_of(own, other),
            SourceTurning(plan, key, is_plain),
            None if _is_hashed(key) else partial(source_key, key, is_plain=is_plain),
            self._folded(),
            self._places(TypeKind.TEMPORAL),
            self._documents(),
            seeks=is_plain and own.key == self.here.primary_key,
            has_key=bool(key),
        )

    def _sink(
        self, key: tuple[OutputColumn, ...], names: tuple[str, ...], *, is_plain: bool
    ) -> HashedTable:
        """Return the sink's side: of a shared table its shard's rows."""
        named = tuple(each.name for each in key if not each.is_hashed)
        shard = self.plan.shard
        if shard is not None:
            shard = replace(shard, name=self._at_sink((shard.name,))[0])
        own = ColumnsRead(self.there, self._at_sink(names), self._at_sink(named), is_plain, shard)
        other = ColumnsRead(self.wanted, (), named, is_plain)
        flag = self.plan.shape.deleted_flag
        return HashedTable(
            self.there.table,
            self.pairing.sink.columns_of(own, other),
            SinkTurning(
                tuple(names.index(each.name) if each.is_hashed else None for each in key),
                names.index(flag) if flag else None,
            ),
            None if _is_hashed(key) else lambda asked: asked,
            self._folded(),
            self._places(TypeKind.TEMPORAL),
            self._documents(),
            seeks=self.pairing.sink.has_ranges and is_plain and own.is_by_primary_key,
            has_key=bool(key),
        )

    def _at_sink(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return columns' names as the sink spells them."""
        spelled = {column.name.casefold(): column.name for column in self.there.columns}
        return tuple(spelled[name.casefold()] for name in names)

    def _folded(self) -> tuple[str, ...]:
        """Return the compared columns in lower case."""
        return tuple(column.name.casefold() for column in self.wanted.copied_columns)

    def _documents(self) -> frozenset[int]:
        """Return the places of columns of JSON, unless both sides print it alike."""
        names = enumerate(self._folded())
        printed_anew = frozenset(at for at, name in names if name in self.printed_anew)
        return printed_anew | (
            self._places(TypeKind.JSON) if self.shared == [BY_COLUMNS] else frozenset()
        )

    def _places(self, kind: TypeKind) -> frozenset[int]:
        """Return the places of compared columns whose values are of a kind."""
        columns = enumerate(self.wanted.copied_columns)
        return frozenset(at for at, each in columns if each.type.kind is kind)

    def _source_keys(self, key: tuple[OutputColumn, ...], here: HashedTable) -> SourceKeys:
        """Return the function that tells the source's keys of rows by the sink's."""
        places = {each.source: at for at, each in enumerate(key) if each.source}
        columns = self.here.primary_key
        if all(name in places for name in columns):
            return lambda keys: {k: tuple(k[places[name]] for name in columns) for k in keys}
        return lambda keys: here.other_keys(keys, columns)


def _is_hashed(key: Iterable[OutputColumn]) -> bool:
    """Tell whether the sink's key has a hash, by which neither side finds a row."""
    return any(each.is_hashed for each in key)


def _filtered_by(plan: TablePlan) -> Iterable[str]:
    """Return the columns by which rows are chosen."""
    return () if plan.shape.where is None else columns_in(plan.shape.where)


def _prints_anew(kind: ColumnType) -> bool:
    """Tell whether a column prints JSON in its own way, and does not keep its text."""
    return kind.kind is TypeKind.JSON and not kind.is_json_text


def _not_there(table: TableId, side: str, remedy: str) -> RefusedError:
    """Return the error for a table that one side does not have."""
    return RefusedError(
        f"table {table} does not exist on the {side}, or the account may not see it",
        where=f"verify, the {side}",
        risk=NOTHING_CHANGED,
        remedy=remedy,
    )
