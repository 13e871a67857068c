"""Show: pipelines in a line each, from their state stores alone."""

from __future__ import annotations

from pathlib import Path

from airflow_cdc_provider.cli.commands.each_pipeline import files_of
from airflow_cdc_provider.cli.commands.opening import Options, status_of
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.pipeline.file.folder import FolderFile
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import open_to_look
from airflow_cdc_provider.pipeline.steps.current_rows import current_rows
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.overview import Shown, overview_form, overview_lines


def show(options: Options, lookup: Lookup, screen: Screen) -> bool:
    """The command `show`: show one pipeline, or all of a folder, in a line each."""
    path = Path(options.file)
    if path.is_dir():
        files = files_of(options.file)
    else:
        loaded = load_pipeline(path)
        files = (FolderFile(path, str(loaded.model.name), loaded.model.stream.mode, loaded),)
    shown = [_shown(file, lookup) for file in files]
    screen.result(overview_form(shown), overview_lines(shown))
    failed = [each.error for each in shown if each.status is None and each.error is not None]
    if failed:
        raise failed[0]
    return True


def _shown(file: FolderFile, lookup: Lookup) -> Shown:
    """Return one pipeline's status for `show`, or its error."""
    if file.loaded is None:
        return Shown(file.name, str(file.path), error=file.problem)
    edge = file.loaded.model.edge
    try:
        with open_to_look(file.loaded, lookup.dsn_of, in_airflow=lookup.in_airflow) as run:
            return Shown(
                file.name, str(file.path), status_of(run), file.problem, edge, current_rows(run)
            )
    except CdcError as error:
        return Shown(file.name, str(file.path), error=error, edge=edge)
