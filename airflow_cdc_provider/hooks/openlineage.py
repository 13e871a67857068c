"""What a task tells of its tables, in OpenLineage's own classes.

Imported only where OpenLineage's provider is installed and asks; nothing else needs it.
"""

from __future__ import annotations

from collections.abc import Callable
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

_FacetsOf = Callable[[TableVerdict], dict[str, InputDatasetFacet]]


def operator_lineage(found: Lineage) -> OperatorLineage[Any, Any]:
    """Return a task's lineage in OpenLineage's classes, as its listener wants it."""
    tables = found.tables
    inputs = [_input(each, each.source, _rows_at_source) for each in tables]
    outputs = [_output(each) for each in tables] if found.writes else []
    if not found.writes:
        inputs += [_input(each, each.sink, _equality) for each in tables]
    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets=_left_out(found))


def _input(table: TableLineage, dataset: Dataset, facets_of: _FacetsOf) -> InputDataset:
    """Return one table as an OpenLineage input."""
    verdict = table.deed.verdict
    return InputDataset(
        namespace=dataset.namespace,
        name=dataset.name,
        facets=_facets(table, dataset),
        inputFacets={} if verdict is None else facets_of(verdict),
    )


def _output(table: TableLineage) -> OutputDataset:
    """Return one table as an OpenLineage output."""
    facets = _facets(table, table.sink)
    if table.copied:
        facets["columnLineage"] = _columns(table)
    if table.deed.is_overwritten:
        facets["lifecycleStateChange"] = (
            lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
                lifecycle_state_change_dataset.LifecycleStateChange.OVERWRITE
            )
        )
    return OutputDataset(
        namespace=table.sink.namespace,
        name=table.sink.name,
        facets=facets,
        outputFacets=_written(table),
    )


def _facets(table: TableLineage, dataset: Dataset) -> dict[str, DatasetFacet]:
    """Return a dataset's facets: source, schema and version."""
    if not table.is_whole:
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
    if table.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(table.version)
    return facets


_SAME = column_lineage_dataset.Transformation(type="DIRECT", subtype="IDENTITY")
_MASKED = column_lineage_dataset.Transformation(
    type="DIRECT", subtype="TRANSFORMATION", masking=True
)


def _columns(table: TableLineage) -> DatasetFacet:
    """Return the facet that links each column to its column at the source."""
    source = table.source
    return column_lineage_dataset.ColumnLineageDatasetFacet(
        fields={
            each.sink: column_lineage_dataset.Fields(
                [
                    column_lineage_dataset.InputField(
                        source.namespace,
                        source.name,
                        each.source,
                        transformations=[_MASKED if each.is_masked else _SAME],
                    )
                ]
            )
            for each in table.copied
        }
    )


def _written(table: TableLineage) -> dict[str, OutputDatasetFacet]:
    """Return the facet with the rows that the task wrote."""
    deed = table.deed
    if deed.rows is None:
        return {}
    return {
        "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=deed.rows, size=deed.bytes
        )
    }


def _rows_at_source(verdict: TableVerdict) -> dict[str, InputDatasetFacet]:
    """Return the facet with the rows of the source that were compared."""
    return {"inputStatistics": _read(verdict.rows_source)}


def _equality(verdict: TableVerdict) -> dict[str, InputDatasetFacet]:
    """Return the facets of a comparison's result: how many rows differ, without keys."""
    return {
        "inputStatistics": _read(verdict.rows_sink),
        "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
            [
                data_quality_assertions_dataset.Assertion(
                    assertion="equals_source",
                    success=verdict.equal,
                    description="every row is the source's, and there is no other",
                    actual=str(verdict),
                )
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
