"""One command for one pipeline, or for each of a folder.

For a folder the pipelines are listed and confirmed together, and then done one by one: one that
cannot be done does not keep the others from being done. The exit code is that of the worst.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from airflow_cdc_provider.cli.commands.opening import Options, confirm, opened, say_done
from airflow_cdc_provider.cli.lookup import Lookup
from airflow_cdc_provider.core.errors import NOTHING_CHANGED, CdcError, RefusedError
from airflow_cdc_provider.pipeline.file.folder import FolderFile, read_folder
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.views.display import Screen

Act = Callable[[Run], str]
"""Does it for one pipeline, and says what came of it."""


def for_each(
    options: Options, lookup: Lookup, screen: Screen, act: Act, questions: Sequence[str] = ()
) -> bool:
    """Run a command for a pipeline, or for each of a folder, after questions answered with yes.

    {} in a question stands for the pipeline or the folder.
    """
    if Path(options.file).is_dir():
        return _for_folder(options, lookup, screen, act, questions)
    with opened(options, lookup, screen) as run:
        for question in questions:
            confirm(options, screen, question.format(run.name))
        return say_done(run.name, screen, act(run))


def files_of(folder: str) -> tuple[FolderFile, ...]:
    """Return the pipeline files of a folder; refuse a folder without any."""
    files = read_folder(folder)
    if not files:
        raise RefusedError(
            "the folder has no pipeline file",
            where=folder,
            risk=NOTHING_CHANGED,
            remedy="name a folder with .yaml files, or a file",
        )
    return files


def _for_folder(
    options: Options, lookup: Lookup, screen: Screen, act: Act, questions: Sequence[str]
) -> bool:
    """Run a command for each pipeline of a folder; errors of single ones are collected."""
    if getattr(options, "table", None):
        raise RefusedError(
            "a table is one pipeline's",
            where="--table",
            risk=NOTHING_CHANGED,
            remedy="name that pipeline's file, not the folder",
        )
    files = files_of(options.file)
    for file in files:
        screen.say(f"{file.name} ({file.path})")
    count = f"the {len(files)} pipelines of {options.file}"
    for question in questions or ("Do this for {}?",):
        confirm(options, screen, question.format(count))
    forms: list[dict[str, Any]] = []
    errors: list[CdcError] = []
    for file in files:
        try:
            done = _do(Namespace(**{**vars(options), "file": file.path}), lookup, screen, act)
            forms.append({"pipeline": file.name, "done": done})
        except CdcError as error:
            errors.append(error)
            forms.append({"pipeline": file.name, "error": error.to_json()})
            done = f"{file.name}: {error}"
        screen.say(done)
    screen.result({"folder": str(options.file), "pipelines": forms})
    if errors:
        raise min(errors, key=lambda error: isinstance(error, RefusedError))
    return True


def _do(options: Options, lookup: Lookup, screen: Screen, act: Act) -> str:
    """Run a command on one pipeline."""
    with opened(options, lookup, screen) as run:
        return act(run)
