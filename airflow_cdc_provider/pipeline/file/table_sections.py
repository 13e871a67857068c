"""How tables look at the sink where they are not as at the source: the section `tables`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from airflow_cdc_provider.core.filter_text import parse_filter
from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.table_layout import PartitionField, TableLayout
from airflow_cdc_provider.core.table_shape import Mask, MaskKind, OutputColumn, TableShape
from airflow_cdc_provider.core.wrong_value import WrongValueError
from airflow_cdc_provider.pipeline.file.mask_sections import MaskSetting, SaltReference
from airflow_cdc_provider.pipeline.file.row_sections import DELETED, Deletes, MetadataSection
from airflow_cdc_provider.pipeline.file.shard_section import ShardSection
from airflow_cdc_provider.systems.sections.base import Section

_ColumnName = Annotated[str, Field(min_length=1)]
_IndexName = Annotated[str, Field(min_length=1, max_length=64)]
_TypeName = Annotated[
    str, Field(min_length=1), AfterValidator(lambda text: "".join(text.lower().split()))
]


def _condition(value: Any) -> Any:
    """Check which rows are copied."""
    if not isinstance(value, str):
        return value
    try:
        parse_filter(value)
    except ValueError as error:
        raise WrongValueError(str(error), "write it as region = 'EU' AND size >= 10") from None
    return value


RowCondition = Annotated[str, BeforeValidator(_condition)]


def _partition(value: Any) -> Any:
    """Check what the rows of a partition share."""
    if not isinstance(value, str):
        return value
    try:
        PartitionField.parse(value)
    except ValueError as error:
        raise WrongValueError(str(error), "write it as region, day(created_at)") from None
    return value


Partition = Annotated[str, BeforeValidator(_partition)]


class ColumnsSection(Section):
    """Which columns a table has at the sink; all by their names at the source."""

    include: tuple[_ColumnName, ...] = Field(
        default=(),
        description="The only columns that are copied, in the sink's order. Without it all are, "
        "and columns that are added later.",
        examples=[["id", "email", "city"]],
    )
    exclude: tuple[_ColumnName, ...] = Field(
        default=(), description="Columns that are not copied.", examples=[["card_no"]]
    )
    rename: dict[_ColumnName, _ColumnName] = Field(
        default_factory=dict,
        description="Other names at the sink.",
        examples=[{"email": "mail"}],
    )
    mask: dict[_ColumnName, MaskSetting | None] = Field(
        default_factory=dict,
        description="Columns of which the sink does not get the values: `{first: 2}`, `{last: 4}`, "
        '`{fixed: "***"}`, `{sha256: {salt_env: SHOP_SALT}}`, or `null`, by which they are NULL. '
        "Of a column of the key only `sha256`.",
        examples=[{"email": {"first": 2}, "birthday": None}],
    )
    type: dict[_ColumnName, _TypeName] = Field(
        default_factory=dict,
        description="Types at the sink of columns whose own type it may lack: UUID, INET4, INET6 "
        "and VECTOR. Without it the sink's type is chosen.",
        examples=[{"ip": "varchar(39)"}],
    )
    constants: dict[_ColumnName, int | str] = Field(
        default_factory=dict,
        description="Columns that the source does not have, with one value in all rows: a BIGINT "
        "or a VARCHAR(255).",
        examples=[{"region": "EU"}],
    )

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        """Refuse settings of one column that do not go together."""
        if self.include and self.exclude:
            raise WrongValueError(
                "columns are given by include or by exclude, not by both", "write one of them"
            )
        for name in sorted({*self.rename, *self.mask, *self.type}):
            if name in self.exclude or (self.include and name not in self.include):
                raise WrongValueError(
                    f"{name} is renamed, masked or given a type, and is not copied",
                    "take it from rename, mask and type, or let it be copied",
                )
        if both := sorted(self.type.keys() & self.mask.keys()):
            raise WrongValueError(
                f"{both[0]} is masked and given a type",
                "take it from mask or from type",
            )
        if twice := sorted(_twice(self.include)):
            raise WrongValueError(f"{twice[0]} is included twice", "name each column once")
        return self

    @property
    def shape(self) -> TableShape:
        """Return the shape of the table; the same as the source's where nothing is set."""
        named = dict.fromkeys(self.include or (*self.rename, *self.mask, *self.type))
        columns = (
            *map(self._output, named),
            *(OutputColumn(name, constant=value) for name, value in self.constants.items()),
        )
        others = not self.include and bool(columns or self.exclude)
        return TableShape(columns, others=others, left_out=self.exclude)

    @property
    def salts(self) -> Mapping[str, SaltReference]:
        """Return the salts of the columns that are hashed."""
        masks = {name: mask for name, mask in self.mask.items() if mask is not None}
        return {name: mask.sha256 for name, mask in masks.items() if mask.sha256 is not None}

    def _output(self, column: str) -> OutputColumn:
        """Return the sink's column for one of the source's."""
        name, kind = self.rename.get(column, column), self.type.get(column, "")
        return OutputColumn(name, column, self._mask(column), type=kind)

    def _mask(self, column: str) -> Mask | None:
        """Return how a column is masked, None if it is not."""
        if column not in self.mask:
            return None
        setting = self.mask[column]
        return Mask(MaskKind.NULL) if setting is None else setting.mask


class TableSection(Section):
    """How one table looks at the sink, and what tells its rows apart."""

    key: _IndexName | None = Field(
        default=None,
        description="The unique key that tells the rows of a table without a primary key apart, by "
        "its name: whole columns that are all NOT NULL. Without it the first such key is taken.",
        examples=["uq_number"],
    )

    where: RowCondition | None = Field(
        default=None,
        description="Which rows are copied: comparisons of columns with values, `=` `<>` `<` `<=` "
        "`>` `>=`, `IN`, `BETWEEN`, `LIKE`, `IS NULL`, joined by `AND`, `OR`, `NOT`.",
        examples=["region = 'EU' AND size >= 10"],
    )
    columns: ColumnsSection = Field(
        default_factory=ColumnsSection, description="Which columns it has, and what is in them."
    )

    deletes: Deletes = Field(
        default="hard",
        description="What becomes of a row that the source deletes: `soft` keeps it, marked by the "
        "column `deleted` of `metadata`.",
        examples=["soft"],
    )
    metadata: MetadataSection = Field(
        default_factory=MetadataSection, description="Columns that say where each row comes from."
    )
    shard: ShardSection | None = Field(
        default=None,
        description="Several tables go to one at the sink, and this column tells their rows apart.",
        examples=[{"column": "shop", "value": "database"}],
    )
    partition_by: tuple[Partition, ...] = Field(
        default=(),
        description="[Partitions](lake_layout.md) of a table in a lake, by columns as it has them: "
        "`region`, `day(created_at)` or year, month, hour, `bucket(16, id)`, `truncate(1000, id)`.",
        examples=[["day(created_at)", "region"]],
    )
    sort_by: tuple[_ColumnName, ...] = Field(
        default=(),
        description="The columns of a table in a lake, as it has them, that the rows of each file "
        "are sorted by.",
        examples=[["customer_id"]],
    )

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        """Refuse a flag that nothing sets, and names that are given twice."""
        if self.metadata.deleted is not None and self.deletes == "hard":
            raise WrongValueError(
                f"deletes are hard, so no row is ever marked in {self.metadata.deleted}",
                "write deletes: soft, or take deleted from metadata",
            )
        layout = self.shape.layout
        for each in (*_twice(map(str, layout.partitions)), *_twice(layout.order)):
            raise WrongValueError(f"{each} is named twice", "name it once")
        marks = self.shape.marks
        others = {*self.columns.include, *self.columns.rename.values(), *self.columns.constants}
        others -= {*self.columns.rename}
        if twice := sorted(_twice(name.casefold() for name in marks)):
            raise WrongValueError(
                f"two columns of metadata have the name {twice[0]}", "give each one of its own"
            )
        if self.shard is not None:
            self._require_free(self.shard.column, {*others, *self.columns.include, *marks})
        folded = {name.casefold() for name in others}
        if both := sorted(name for name in marks if name.casefold() in folded):
            raise WrongValueError(
                f"{both[0]} is a column of metadata, and one that is copied or constant",
                "give one of them another name",
            )
        return self

    def _require_free(self, column: str, others: Iterable[str]) -> None:
        """Refuse a shard column that has the name of another one of the sink's."""
        if column.casefold() in {name.casefold() for name in others}:
            raise WrongValueError(
                f"{column} is the shard column, and another column of the sink's table",
                "give one of them another name",
            )

    @property
    def is_identity(self) -> bool:
        """Tell whether a table's rows and columns are the same at the sink."""
        return self.shard is None and self.shape.is_identity

    def shape_of(self, table: TableId) -> TableShape:
        """Return the shape of one table, with its shard's column and value."""
        if self.shard is None:
            return self.shape
        made, column = self.shape, self.shard.column_of(table)
        return replace(
            made,
            columns=(*made.columns, column),
            others=made.takes_others,
            shard=self.shard.column,
        )

    @property
    def shape(self) -> TableShape:
        """Return the shape of the table without a shard; the source's where nothing is set."""
        flag = self.metadata.deleted or DELETED
        return replace(
            self.columns.shape,
            where=None if self.where is None else parse_filter(self.where),
            deleted_flag=flag if self.deletes == "soft" else "",
            metadata=self.metadata.metadata,
            layout=TableLayout(tuple(map(PartitionField.parse, self.partition_by)), self.sort_by),
        )


def _twice(names: Iterable[str]) -> Iterator[str]:
    """Yield the names that are there more than once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)
