"""What a task tells of its tables, in OpenLineage's own classes.

Imported only where OpenLineage's provider is installed and asks; nothing else needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    datasource_dataset,
    extraction_error_run,
    input_statistics_input_dataset,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from airflow_cdc_provider.core.verify_report import TableVerdict
from airflow_cdc_provider.views.lineage import Dataset, Lineage, TableLineage

_FacetsOf = Callable[[Sequence[TableVerdict]], dict[str, InputDatasetFacet]]
_EQUAL = "every row is the source's, and there is no other"


def operator_lineage(found: Lineage) -> OperatorLineage[Any, Any]:
    """Return a task's lineage in OpenLineage's classes, as its listener wants it."""
    inputs = [_input([each], each.source, _rows_at_source) for each in found.tables]
    at_sink = _by_sink(found.tables)
    outputs = [_output(each) for each in at_sink] if found.writes else []
    if not found.writes:
        inputs += [_input(each, _sink_of(each), _equality) for each in at_sink]
    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets=_left_out(found))


def _by_sink(tables: Iterable[TableLineage]) -> Iterable[Sequence[TableLineage]]:
    """Return the tables that share one of the sink together; mostly it is one alone."""
    found: dict[tuple[str, str], list[TableLineage]] = {}
    for each in tables:
        found.setdefault((each.sink.namespace, each.sink.name), []).append(each)
    return found.values()


def _sink_of(tables: Sequence[TableLineage]) -> Dataset:
    """Return the sink's dataset of tables that share it, with the columns of all."""
    fields = {each.name: each for table in tables for each in table.sink.fields}
    return replace(tables[0].sink, fields=tuple(fields.values()))


def _input(tables: Sequence[TableLineage], dataset: Dataset, facets_of: _FacetsOf) -> InputDataset:
    """Return a table, or one that several share, as an OpenLineage input."""
    verdicts = [each.deed.verdict for each in tables if each.deed.verdict is not None]
    return InputDataset(
        namespace=dataset.namespace,
        name=dataset.name,
        facets=_facets(tables, dataset),
        inputFacets=facets_of(verdicts) if verdicts else {},
    )


def _output(tables: Sequence[TableLineage]) -> OutputDataset:
    """Return a table of the sink as an OpenLineage output, with all that is written there."""
    dataset = _sink_of(tables)
    facets = _facets(tables, dataset)
    if any(each.copied for each in tables):
        facets["columnLineage"] = _columns(tables)
    if all(each.deed.is_overwritten for each in tables):
        facets["lifecycleStateChange"] = (
            lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                lifecycle_state_change_dataset.LifecycleStateChange.OVERWRITE
            )
        )
    return OutputDataset(
        namespace=dataset.namespace,
        name=dataset.name,
        facets=facets,
        outputFacets=_written(tables),
    )


def _facets(tables: Sequence[TableLineage], dataset: Dataset) -> dict[str, DatasetFacet]:
    """Return a dataset's facets: source, schema and version, which is that of all or none."""
    if not all(each.is_whole for each in tables):
        return {}
    facets: dict[str, DatasetFacet] = {
        "dataSource": datasource_dataset.DatasourceDatasetFacet(
            name=dataset.namespace, uri=dataset.namespace
        ),
        "schema": schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(name=each.name, type=each.type or None)
                for each in dataset.fields
            ]
        ),
    }
    version = tables[0].version
    if version and all(each.version == version for each in tables):
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(version)
    return facets


_SAME = column_lineage_dataset.Transformation(type="DIRECT", subtype="IDENTITY")
_MASKED = column_lineage_dataset.Transformation(
    type="DIRECT", subtype="TRANSFORMATION", masking=True
)


def _columns(tables: Sequence[TableLineage]) -> DatasetFacet:
    """Return the facet that links each column of the sink to its columns at the source."""
    fields: dict[str, list[column_lineage_dataset.InputField]] = {}
    for table in tables:
        for each in table.copied:
            field = column_lineage_dataset.InputField(
                table.source.namespace,
                table.source.name,
                each.source,
                transformations=[_MASKED if each.is_masked else _SAME],
            )
            fields.setdefault(each.sink, []).append(field)
    return column_lineage_dataset.ColumnLineageDatasetFacet(
        fields={name: column_lineage_dataset.Fields(found) for name, found in fields.items()}
    )


def _written(tables: Sequence[TableLineage]) -> dict[str, OutputDatasetFacet]:
    """Return the facet with the rows that the task wrote; none if not known of all tables."""
    rows = [each.deed.rows for each in tables if each.deed.rows is not None]
    sizes = [each.deed.bytes for each in tables if each.deed.bytes is not None]
    if len(rows) < len(tables):
        return {}
    return {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=sum(rows), size=sum(sizes) if len(sizes) == len(tables) else None
        )
    }


def _rows_at_source(verdicts: Sequence[TableVerdict]) -> dict[str, InputDatasetFacet]:
    """Return the facet with the rows of the source that were compared."""
    return {"inputStatistics": _read(sum(each.rows_source for each in verdicts))}


def _equality(verdicts: Sequence[TableVerdict]) -> dict[str, InputDatasetFacet]:
    """Return the facets of a comparison's result: how many rows differ, without keys.

    Of a sink's table that several share there is a result for each.
    """
    return {
        "inputStatistics": _read(sum(each.rows_sink for each in verdicts)),
        "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
            [
                data_quality_assertions_dataset.Assertion(
                    assertion="equals_source",
                    success=each.equal,
                    description=_EQUAL if len(verdicts) == 1 else f"{_EQUAL}: {each.table}",
                    actual=str(each),
                )
                for each in verdicts
            ]
        ),
    }


def _read(rows: int) -> InputDatasetFacet:
    """Return the facet with a count of rows read."""
    return input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=rows)


def _left_out(found: Lineage) -> dict[str, RunFacet]:
    """Return the facet that names what was cut from the event."""
    if not found.cut:
        return {}
    return {
        "extractionError": extraction_error_run.ExtractionErrorRunFacet(
            totalTasks=len(found.tables) + found.left_out,
            failedTasks=found.named_only + found.left_out,
            errors=[extraction_error_run.Error(errorMessage=found.cut)],
        )
    }
