"""Partitions and the order of rows of an Iceberg table, as its metadata says them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
    parse_transform,
)

from airflow_cdc_provider.core.table_layout import PartitionField, TableLayout, Transform
from airflow_cdc_provider.systems.lake.columns import free_name
from airflow_cdc_provider.systems.lake.partitions import UnfitLayoutError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.partitioning import PartitionField as IcebergField
    from pyiceberg.table import Transaction
    from pyiceberg.table.metadata import TableMetadata

_NAMES = {
    IdentityTransform: Transform.IDENTITY,
    YearTransform: Transform.YEAR,
    MonthTransform: Transform.MONTH,
    DayTransform: Transform.DAY,
    HourTransform: Transform.HOUR,
    BucketTransform: Transform.BUCKET,
    TruncateTransform: Transform.TRUNCATE,
}


def fields_of(metadata: TableMetadata) -> tuple[PartitionField, ...] | None:
    """Return the fields of a table's partitions; None if one is of a kind that is not known."""
    found = [_field_of(metadata, each) for each in metadata.spec().fields]
    known = tuple(each for each in found if each is not None)
    return known if len(known) == len(found) else None


def _field_of(metadata: TableMetadata, field: IcebergField) -> PartitionField | None:
    """Return one field; None if it is not known, or of no column of the table's own."""
    kind, schema = _NAMES.get(type(field.transform)), metadata.schema()
    column = schema.find_column_name(field.source_id)
    if kind is None or column is None or column not in {each.name for each in schema.fields}:
        return None
    match field.transform:
        case BucketTransform(num_buckets=number) | TruncateTransform(width=number):
            return PartitionField(column, kind, number)
        case _:
            return PartitionField(column, kind)


def lay_out(transaction: Transaction, layout: TableLayout) -> None:
    """Give a table without rows other partitions and another order, if it has others."""
    metadata = transaction.table_metadata
    if fields_of(metadata) != layout.partitions:
        names = [each.name for each in metadata.schema().fields]
        with transaction.update_spec() as update:
            for old in metadata.spec().fields:
                update.remove_field(old.name)
            for each in layout.partitions:
                update.add_field(each.column, parse_transform(_text(each)), _name(each, names))
    if layout.order or not metadata.sort_order().is_unsorted:
        with transaction.update_sort_order() as update_order:
            for column in layout.order:
                update_order.asc(column, IdentityTransform())


def _text(field: PartitionField) -> str:
    """Return a field's transform as Iceberg writes it."""
    return f"{field.transform}[{field.number}]" if field.transform.has_number else field.transform


def require_free_names(metadata: TableMetadata, new: Iterable[str]) -> None:
    """Refuse new columns that are called as a field of partitions, if only of former ones."""
    taken = {field.name for spec in metadata.partition_specs for field in spec.fields}
    if both := sorted(taken.intersection(new)):
        raise UnfitLayoutError(f"its column {both[0]} is called as a field of its partitions")


def _name(field: PartitionField, names: list[str]) -> str:
    """Return a name that no column has, nor is likely to get: then the table could not have it."""
    number = f"_{field.number}" if field.transform.has_number else ""
    kind = "" if field.transform is Transform.IDENTITY else f"_{field.transform}{number}"
    return free_name(f"_part_{field.column}{kind}", names)
