"""Fixtures of the Spark jobs: pipelines between two throwaway servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_cdc_provider.core.identifiers import PipelineName
from tests.servers.given import SqlServer
from tests.spark.pipelines import Pipeline

MakePipeline = Callable[..., Pipeline]


@pytest.fixture
def make_pipeline(
    mysql_server: SqlServer,
    mysql_sink: SqlServer,
    mysql_database: str,
    sink_database: str,
    tmp_path: Path,
) -> Iterator[MakePipeline]:
    """Make a pipeline from `mysql_server`, or `source`, to `mysql_sink`."""
    with ExitStack() as stack:

        def make(
            source: SqlServer | None = None,
            source_database: str = mysql_database,
            **options: object,
        ) -> Pipeline:
            made = Pipeline(
                PipelineName(f"p_{sink_database}"),
                source or mysql_server,
                mysql_sink,
                source_database,
                sink_database,
                tmp_path,
                **options,  # type: ignore[arg-type]
            )
            stack.callback(made.store.close)
            return made

        yield make
