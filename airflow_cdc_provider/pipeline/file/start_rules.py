"""What does not go together with a stream that starts without a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_cdc_provider.pipeline.file.model import PipelineFile
from airflow_cdc_provider.pipeline.file.problems import Path

Found = tuple[Path, str, str]


def check_start(file: PipelineFile) -> Iterator[Found]:
    """Yield the settings that need a snapshot, or that a snapshot would undo."""
    if not file.stream.starts_at:
        if file.sink.existing_rows == "keep":
            yield (
                ("sink", "existing_rows"),
                "a snapshot replaces the rows that it reads, and so none would be kept",
                "write replace, or say under stream.start as of which place the rows are",
            )
        return
    yield from _of_stream(file)
    if file.topology is not None:
        yield (
            ("stream", "start"),
            "an edge of a topology starts where the rows of its nodes are of one position",
            "write after_snapshot, or remove topology",
        )
    if file.sink.existing_rows == "replace":
        yield (
            ("sink", "existing_rows"),
            "no rows are read that could replace those that are there",
            "write keep if they are the source's as of the start; else refuse",
        )
    if file.verify == "always" and file.sink.existing_rows != "keep":
        yield (
            ("verify",),
            "the tables begin empty, so each row that was not changed since would differ",
            "write never, or leave it out",
        )


def _of_stream(file: PipelineFile) -> Iterator[Found]:
    """Yield the settings of the stream that need a snapshot."""
    if not file.stream.has_stream:
        yield (
            ("stream", "mode"),
            "without a snapshot there is nothing but the stream",
            "write continuous or bounded, or start: after_snapshot",
        )
    if file.stream.stop == "consistent":
        yield (
            ("stream", "stop"),
            "without a snapshot all tables are of one position from the start on",
            "write a position, a GTID set or a timestamp, or start: after_snapshot",
        )
