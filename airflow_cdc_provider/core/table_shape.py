"""How a table at the sink differs from the source's: which columns and rows it has, and its key.

A shape is data, stored with a table's plan. `Sink.target_of` makes the sink's definition from the
source's and a shape; `columns.shaping` turns the rows and changes of the one into the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.row_filters import (
    RowFilter,
    columns_in,
    filter_from_json,
    filter_to_json,
)
from airflow_cdc_provider.core.row_metadata import NO_METADATA, MetadataTypes, RowMetadata
from airflow_cdc_provider.core.table_layout import NO_LAYOUT, TableLayout
from airflow_cdc_provider.core.table_schema import (
    Column,
    ColumnType,
    TableSchema,
    TypeKind,
    UniqueKey,
)

Constant = int | str
SHARD_LENGTH = 129
"""Characters of a shard's name: those of a database and a table with the dot between them."""
_MASKED_KINDS = frozenset({TypeKind.TEXT, TypeKind.BINARY})
_HASHED_KINDS = _MASKED_KINDS | {TypeKind.INTEGER}


class MaskKind(StrEnum):
    """What is kept of a masked value."""

    NULL = "null"
    """Nothing: NULL."""
    FIXED = "fixed"
    """Nothing: one text for all values but NULL."""
    FIRST = "first"
    """The first characters of a text, the first bytes of a binary."""
    LAST = "last"
    """The last characters of a text, the last bytes of a binary."""
    SHA256 = "sha256"
    """The SHA-256 of a salt and the value, in hexadecimal digits: equal values stay equal."""


@dataclass(frozen=True, slots=True)
class Mask:
    """How a column's values are masked; NULL stays NULL."""

    kind: MaskKind
    text: str = ""
    """Of `MaskKind.FIXED`."""
    length: int = 0
    """Of `MaskKind.FIRST` and `LAST`: characters of texts, bytes of binaries."""
    salt: str = ""
    """The name of the salt of `MaskKind.SHA256` (`core.salts`)."""
    proof: str = field(default="", compare=False)
    """What tells whether the salt is the one by which rows were masked."""


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the sink's table and where its values come from.

    They are those of the source's column `source`, masked or as they are; without one they are all
    `constant`.
    """

    name: str
    source: str = ""
    mask: Mask | None = None
    constant: Constant | None = None
    type: str = ""
    """The sink's own name of its type; empty: the source's type, or what stands in for it."""

    @property
    def is_hashed(self) -> bool:
        """Tell whether hashes stand in the place of its values."""
        return self.mask is not None and self.mask.kind is MaskKind.SHA256


@dataclass(frozen=True, slots=True)
class TableShape:
    """What differs between a table at the source and at the sink, apart from its name."""

    columns: tuple[OutputColumn, ...] = ()
    """The sink's columns in order; none: all that are copied, as they are."""
    others: bool = False
    """The source's other columns are copied too, as they are; new ones with them.

    Then the sink's columns are in the source's order, the constants behind them.
    """
    left_out: tuple[str, ...] = ()
    """Columns of the source that are none of the others."""
    where: RowFilter | None = None
    """Which rows are copied, by the source's columns; None: all."""
    deleted_flag: str = ""
    """A column that is 1 where the source has deleted the row and 0 elsewhere.

    Empty: rows are deleted.
    """
    key: tuple[str, ...] = ()
    """The sink's key by the names of its columns; none: the source's primary key."""
    metadata: RowMetadata = NO_METADATA
    """The columns that say of each row where it comes from, behind all others."""
    shard: str = ""
    """The constant column that tells the table's rows from those of others in its sink table.

    It is the first of the sink's key. Empty: the sink's table holds this table alone.
    """
    layout: TableLayout = NO_LAYOUT
    """Of the sink's files: no row or column differs by it."""

    @property
    def is_identity(self) -> bool:
        """Tell whether rows and changes of the sink's table are the source's."""
        return replace(self, layout=NO_LAYOUT) == SAME_SHAPE

    def columns_of(self, schema: TableSchema) -> tuple[OutputColumn, ...]:
        """Return the sink's columns without flag and metadata, and without computed ones."""
        if not self.takes_others:
            return self.columns
        given: dict[str, list[OutputColumn]] = {}
        for each in self.columns:
            given.setdefault(each.source, []).append(each)
        left_out = {name for name in self.left_out if name not in given}
        copied = [c.name for c in schema.copied_columns if c.name not in left_out]
        found = [each for name in copied for each in given.get(name, [OutputColumn(name, name)])]
        unmet = [each for each in self.columns if each.source not in copied]
        return (*found, *unmet)

    @property
    def marks(self) -> tuple[str, ...]:
        """Return the sink's columns that say what became of a row: the flag and the metadata."""
        flag = (self.deleted_flag,) if self.deleted_flag else ()
        return (*flag, *self.metadata.named.values())

    @property
    def hidden(self) -> frozenset[str]:
        """Return the source's columns that are masked, or left out by name."""
        masked = (each.source for each in self.columns if each.mask is not None)
        return frozenset((*masked, *self.left_out))

    @property
    def is_part(self) -> bool:
        """Tell whether the sink gets a part of the rows, or named columns alone."""
        return not self.takes_others or self.where is not None

    @property
    def hides(self) -> bool:
        """Tell whether the sink does not get all values of all rows."""
        return bool(self.hidden) or self.is_part

    @property
    def is_hashed(self) -> bool:
        """Tell whether hashes stand in the place of values."""
        return any(each.is_hashed for each in self.columns)

    @property
    def shard_column(self) -> OutputColumn | None:
        """Return the column by which the sink's table is shared; None if it is this table's."""
        return next((each for each in self.columns if each.name == self.shard), None)

    @property
    def without_metadata(self) -> TableShape:
        """Return the shape without the columns of metadata."""
        return replace(self, metadata=NO_METADATA)

    @property
    def types(self) -> Mapping[str, tuple[str, str]]:
        """Return the source's column and the type of the sink's columns that have one of theirs."""
        return {each.name: (each.source, each.type) for each in self.columns if each.type}

    @property
    def takes_others(self) -> bool:
        """Tell whether columns of the source that are not named are copied."""
        return self.others or not self.columns

    @property
    def named(self) -> frozenset[str]:
        """Return the source's columns by whose names the shape is given; they have to stay."""
        where = () if self.where is None else columns_in(self.where)
        return frozenset((*(each.source for each in self.columns if each.source), *where))

    def named_in(self, schema: TableSchema) -> frozenset[str]:
        """Return those columns of a table that have to stay, those that lay out its files too."""
        sources = {each.name: each.source for each in self.columns}
        laid = {sources.get(name, name) for name in self.layout.columns}
        return self.named | laid.intersection(column.name for column in schema.columns)

    def is_same_for(self, schema: TableSchema, other: TableShape) -> bool:
        """Tell whether a table has the same rows and columns by both, in whatever order."""
        names = {column.name for column in schema.columns}

        def essence(shape: TableShape) -> object:
            left_out = names.intersection(shape.left_out) if shape.takes_others else None
            columns = frozenset(shape.columns_of(schema))
            marks = shape.deleted_flag, shape.metadata
            key = shape.key, shape.shard
            return columns, shape.takes_others, left_out, shape.where, marks, key

        return essence(self) == essence(other)

    def names_of(self, schema: TableSchema) -> Mapping[str, str]:
        """Return the names that columns of the source have at the sink, without masked ones."""
        outputs = self.columns_of(schema)
        return {each.source: each.name for each in outputs if each.source and not each.mask}

    def as_read(self, schema: TableSchema) -> TableSchema:
        """Return the source's definition, other columns than the sink depends on not copied."""
        if self.is_identity:
            return schema
        read = (
            {each.source for each in self.columns_of(schema)} | self.named | {*schema.primary_key}
        )
        if self.takes_others:
            read |= {c.name for c in schema.columns if c.generated and c.name not in self.left_out}
        left_out = (c.name for c in schema.columns if c.ignored or c.name not in read)
        return schema.ignoring({*left_out})

    def hashes_key_of(self, schema: TableSchema) -> bool:
        """Tell whether the sink has hashes in the place of a column of the source's key."""
        hashed = {each.source for each in self.columns if each.is_hashed}
        return not hashed.isdisjoint(schema.primary_key)

    def key_of(self, schema: TableSchema) -> tuple[str, ...]:
        """Return the sink's key: the one given, or the source's by the names of the sink.

        That of a shard begins with its column. `ValueError` as of `source_key_of`.
        """
        shard = (self.shard,) if self.shard else ()
        return (*shard, *(self.key or self.source_key_of(schema)))

    def source_key_of(self, schema: TableSchema) -> tuple[str, ...]:
        """Return the source's key by the names of the sink, which may have hashes of it.

        `ValueError` if a column of it is left out, or masked so that two keys could be one.
        """
        outputs = self.columns_of(schema)
        apart = {each.source: each.name for each in outputs if not each.mask or each.is_hashed}
        if lost := [name for name in schema.primary_key if name not in apart]:
            raise ValueError(
                f"{', '.join(lost)} of {schema.table} is in its key, and is left out or masked; "
                "of the masks sha256 alone keeps keys apart"
            )
        return tuple(apart[name] for name in schema.primary_key)

    def to_json(self) -> Mapping[str, Any]:
        """Return the shape as JSON."""
        where = None if self.where is None else filter_to_json(self.where)
        return {**asdict(self), "where": where}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> TableShape:
        """Read a shape from its JSON."""
        return cls(
            columns=tuple(_output_column(each) for each in form["columns"]),
            others=form["others"],
            left_out=tuple(form["left_out"]),
            where=None if form["where"] is None else filter_from_json(form["where"]),
            deleted_flag=form["deleted_flag"],
            key=tuple(form["key"]),
            # not named by earlier releases
            metadata=RowMetadata(**form.get("metadata", {})),
            shard=form.get("shard", ""),
            layout=TableLayout.from_json(form.get("layout", {})),
        )


SAME_SHAPE = TableShape()


@dataclass(frozen=True, slots=True)
class AddedTypes:
    """A sink's types for columns that the source does not have."""

    number: ColumnType
    """A signed whole number of 64 bits."""
    text: ColumnType
    flag: ColumnType
    """A whole number of 8 bits."""
    digest: ColumnType
    """A text of 64 hexadecimal digits."""
    metadata: MetadataTypes | None = None
    """None: the sink has no columns of metadata."""

    def made_for(self, column: OutputColumn, *, is_shard: bool) -> ColumnType:
        """Return the type of a constant column; that of shards has room for no more than names."""
        if isinstance(column.constant, int):
            return self.number
        return replace(self.text, length=SHARD_LENGTH) if is_shard else self.text


def shaped_schema(
    schema: TableSchema, table: TableId, shape: TableShape, added: AddedTypes
) -> TableSchema:
    """Return the definition of the sink's table, in the source's types but for added columns.

    `ValueError` names the column for which that is impossible.
    """
    if shape.is_identity:
        return replace(schema, table=table)
    _require_possible(schema, shape, added)
    key = shape.key_of(schema)
    prefixes = (0,) * len(shape.key) if shape.key else _prefixes(schema, shape)
    columns = [
        _column(schema, each, shape, added, is_key=each.name in key)
        for each in shape.columns_of(schema)
    ]
    columns += _computed(schema, shape)
    if shape.deleted_flag:
        columns.append(Column(shape.deleted_flag, added.flag, nullable=False))
    if added.metadata is not None:
        columns += added.metadata.columns_of(shape.metadata)
    return TableSchema(
        table=table,
        columns=tuple(columns),
        primary_key=key,
        key_prefixes=(0, *prefixes) if shape.shard and prefixes else prefixes,
        unique_keys=tuple(_unique_keys(schema, shape)),
        engine=schema.engine,
        collation=schema.collation,
        flavour=schema.flavour,
        key_name=schema.key_name if _is_of_source(schema, shape) else "",
    )


def _is_of_source(schema: TableSchema, shape: TableShape) -> bool:
    """Tell whether the sink's key is that of the source, which may be none but a unique one."""
    return not (shape.key or shape.shard or shape.hashes_key_of(schema))


def _prefixes(schema: TableSchema, shape: TableShape) -> tuple[int, ...]:
    """Return how much of each column the source's key takes; of hashes it is all."""
    hashed = {each.source for each in shape.columns if each.is_hashed}
    pairs = zip(schema.primary_key, schema.key_prefixes, strict=False)
    return tuple(0 if name in hashed else length for name, length in pairs)


def _output_column(form: Mapping[str, Any]) -> OutputColumn:
    """Read a column of the sink from its JSON."""
    mask = form["mask"]
    read = None if mask is None else Mask(**{**mask, "kind": MaskKind(mask["kind"])})
    kind = form.get("type", "")  # not named by earlier releases
    return OutputColumn(form["name"], form["source"], read, form["constant"], kind)


def _computed(schema: TableSchema, shape: TableShape) -> Sequence[Column]:
    """Return the computed columns that the sink computes, too: all that are not left out."""
    if not shape.takes_others or shape.shard:
        return ()  # a shard that lacks the column would have values in it all the same
    left_out = shape.left_out
    return [c for c in schema.columns if c.generated and not c.ignored and c.name not in left_out]


def _require_possible(schema: TableSchema, shape: TableShape, added: AddedTypes) -> None:
    """Raise `ValueError` for a column that the source lacks, or that the sink would have twice."""
    copied = {column.name: column for column in schema.copied_columns}
    outputs = shape.columns_of(schema)
    asked = {each.source for each in outputs if each.source}
    asked |= set() if shape.where is None else set(columns_in(shape.where))
    for name in sorted(asked - copied.keys()):
        raise ValueError(f"{schema.table} has no column {name} that is copied")
    names = [each.name for each in outputs] + [each.name for each in _computed(schema, shape)]
    names += shape.marks
    if shape.metadata.named and added.metadata is None:
        raise ValueError(f"this kind of sink has no columns of metadata for {schema.table}")
    for name in sorted({n for n in names if _folded(names).count(n.casefold()) > 1}):
        raise ValueError(f"{schema.table} would have two columns {name} at the sink")
    for each in outputs:
        made = added.made_for(each, is_shard=each.name == shape.shard)
        _require_value(schema, each, copied, made)
    masked = {each.name for each in outputs if each.mask}
    if shape.shard and shape.shard_column is None:
        raise ValueError(f"{shape.shard} of {schema.table} is no column with one value")
    if shape.shard and not (schema.has_key or shape.key):
        # the shard's column alone would be the key, and all rows one
        raise ValueError(f"{schema.table} has no key, and cannot share a table of the sink")
    for name in shape.key:
        if name not in names or name in masked or name in shape.marks:
            raise ValueError(f"{name} cannot be in the key of {schema.table} at the sink")


def _require_value(
    schema: TableSchema, output: OutputColumn, copied: Mapping[str, Column], made: ColumnType
) -> None:
    """Raise `ValueError` for a column that has no value, or one that its type does not take.

    `made` is the type of a constant.
    """
    if bool(output.source) == (output.constant is not None):
        raise ValueError(f"{output.name} of {schema.table} comes from a column, or is one constant")
    if isinstance(output.constant, int) and not -(2**63) <= output.constant < 2**63:
        raise ValueError(f"{output.constant} is too great for {output.name} of {schema.table}")
    if isinstance(output.constant, str):
        _require_room(f"{output.name} of {schema.table}", output.constant, made)
    if output.mask is None:
        return
    if not output.source:
        raise ValueError(f"{output.name} of {schema.table} is a constant, which is not masked")
    kind = copied[output.source].type
    if output.mask.kind is MaskKind.SHA256:
        if kind.kind not in _HASHED_KINDS:
            raise ValueError(
                f"{output.source} of {schema.table} is neither text nor binary nor a whole number: "
                "it can be masked by NULL alone"
            )
        return
    if output.mask.kind is not MaskKind.NULL and kind.kind not in _MASKED_KINDS:
        others = "SHA-256 or NULL" if kind.kind in _HASHED_KINDS else "NULL alone"
        raise ValueError(
            f"{output.source} of {schema.table} is neither text nor binary: it can be masked "
            f"by {others}"
        )
    if output.mask.kind is MaskKind.FIXED:
        _require_room(f"{output.source} of {schema.table}", output.mask.text, kind)


def _require_room(name: str, text: str, kind: ColumnType) -> None:
    """Raise `ValueError` for a text that is longer than its column."""
    length = len(text.encode() if kind.kind is TypeKind.BINARY else text)
    if kind.length is not None and length > kind.length:
        raise ValueError(f"{text!r} is longer than {name}, which takes {kind.length}")


def _folded(names: Collection[str]) -> list[str]:
    """Return names as columns are compared."""
    return [name.casefold() for name in names]


def _column(
    schema: TableSchema,
    output: OutputColumn,
    shape: TableShape,
    added: AddedTypes,
    *,
    is_key: bool,
) -> Column:
    """Return the definition of one column of the sink.

    Where others share the sink's table all but the key is nullable: they may lack the column.
    """
    if not output.source:
        made = added.made_for(output, is_shard=output.name == shape.shard)
        return Column(output.name, made, nullable=bool(shape.shard) and not is_key)
    column = schema.column(output.source)
    is_nulled = output.mask is not None and output.mask.kind is MaskKind.NULL
    at_sink = replace(
        column,
        name=output.name,
        nullable=(column.nullable or is_nulled or bool(shape.shard)) and not is_key,
        auto_increment=False,
    )
    return replace(at_sink, type=added.digest) if output.is_hashed else at_sink


def _unique_keys(schema: TableSchema, shape: TableShape) -> Iterator[UniqueKey]:
    """Yield the source's unique keys that hold at the sink, by the names of its columns.

    With rows that are only marked as deleted none does: their values may have been taken since.
    Nor does any in a table that is shared: other shards may have the column without the key.
    """
    if shape.deleted_flag or shape.shard:
        return
    names = shape.names_of(schema)
    for key in schema.unique_keys:
        if all(name in names for name in key.columns):
            yield UniqueKey(key.name, tuple(names[name] for name in key.columns))
