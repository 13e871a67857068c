"""Topology: the edges that the files of a folder are, checked or shown."""

from __future__ import annotations

from pathlib import Path

from airflow_cdc_provider.cli.commands.each_pipeline import files_of
from airflow_cdc_provider.cli.commands.opening import Options
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, PipelineFileError, RefusedError
from airflow_cdc_provider.pipeline.topologies import FolderTopologies, topologies_of
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.topology import check_lines, picture_lines, topology_form
from airflow_cdc_provider.views.topology_svg import topology_svg


def topology(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `topology`: check the edges of a folder, or show them."""
    found = topologies_of(files_of(options.folder), lookup.dsn_of)
    if not found.edges and not found.problems:
        raise RefusedError(
            "no file of the folder has a topology",
            where=options.folder,
            risk=NOTHING_CHANGED,
            remedy="name the folder with the files of its edges, each with a section topology",
        )
    if options.action == "check":
        return _check(options, found, screen)
    if options.svg:
        _write(Path(options.svg), topology_svg(found))
    screen.result(topology_form(found, options.folder), picture_lines(found))
    return True


def _check(options: Options, found: FolderTopologies, screen: Screen) -> bool:
    """Show what is wrong with the folder's topologies; refuse if anything blocks."""
    if options.svg:
        raise RefusedError(
            "check draws no picture",
            where="--svg",
            risk=NOTHING_CHANGED,
            remedy="write topology show",
        )
    screen.result(topology_form(found, options.folder), check_lines(found))
    if found.blocks:
        raise PipelineFileError(
            f"{len(found.blocks)} problems of topologies",
            where=options.folder,
            risk="changes would be lost, or go round for ever",
            remedy="correct the lines above",
        )
    return True


def _write(path: Path, text: str) -> None:
    """Write a file that was asked for."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RefusedError(
            f"the picture cannot be written: {error.strerror}",
            where=str(path),
            risk=NOTHING_CHANGED,
            remedy="name a file in a folder that is there",
        ) from None
