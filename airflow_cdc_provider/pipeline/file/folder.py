"""A folder of pipeline files: each is read by itself, and what is wrong with one is its own.

Files may clash: two pipelines of one name share state and ledger, and of two readers with one
server id the source cuts one off. Which of the two is meant, or runs already, no file says. So
none of those that clash may start anything, and each names the others; what already streams goes
on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from airflow_cdc_provider.core.errors import NOTHING_STARTED, PipelineFileError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline, load_pipeline
from airflow_cdc_provider.pipeline.file.problems import Path

SUFFIXES = {".yaml", ".yml"}
_NAME = re.compile(r"^pipeline:\s*[\"']?(\w+)", re.MULTILINE)
_MODE = re.compile(r"\bmode:\s*[\"']?(bounded|continuous)\b")
_NOT_IN_A_NAME = re.compile(r"\W", re.ASCII)
Clash = tuple[Path, str, str]


@dataclass(frozen=True, slots=True)
class FolderFile:
    """One file of a folder: a pipeline, or what is wrong with it."""

    path: FilePath
    name: str
    """The pipeline's, as far as it can be read, else the file's."""
    mode: str
    """The stream's, empty if it cannot be read."""
    loaded: LoadedPipeline | None = None
    problem: PipelineFileError | None = None
    """Why nothing may start; `loaded` is there all the same if it is only a clash."""


def read_folder(folder: FilePath | str) -> tuple[FolderFile, ...]:
    """Read every pipeline file of a folder, in the order of their names."""
    try:
        paths = sorted(path for path in FilePath(folder).iterdir() if path.suffix in SUFFIXES)
    except OSError as error:
        raise PipelineFileError(
            f"the folder of pipeline files cannot be read: {error.strerror}",
            where=str(folder),
            risk="none of its pipelines has a DAG",
            remedy="give the path of a folder, relative to the DAG file",
        ) from None
    files = tuple(_read(path) for path in paths)
    return tuple(_kept_apart(file, files) for file in files)


def _read(path: FilePath) -> FolderFile:
    try:
        loaded = load_pipeline(path)
    except PipelineFileError as error:
        return _unread(path, error)
    except Exception as error:  # noqa: BLE001 - the other files must not pay for it
        return _unread(
            path,
            PipelineFileError(
                f"the pipeline file cannot be understood: {type(error).__name__} {error}",
                where=str(path),
                risk=NOTHING_STARTED,
                remedy="correct the file, and report this: the message should name a line",
            ),
        )
    return FolderFile(path, loaded.model.pipeline, loaded.model.stream.mode, loaded)


def _unread(path: FilePath, problem: PipelineFileError) -> FolderFile:
    """Find out what a file is about, so that its runs still find their DAG."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        text = ""
    named, mode = _NAME.search(text), _MODE.search(text)
    name = named.group(1) if named else _NOT_IN_A_NAME.sub("_", path.stem)
    try:
        PipelineName(name)
    except ValueError:
        name = f"file_{_NOT_IN_A_NAME.sub('_', path.stem)}"[:63]
    return FolderFile(path, name, mode.group(1) if mode else "", problem=problem)


def _kept_apart(file: FolderFile, files: Sequence[FolderFile]) -> FolderFile:
    if file.loaded is None:
        return file
    others = [other.loaded for other in files if other.loaded and other.path != file.path]
    found = [clash for other in others for clash in _clashes(file.loaded, other)]
    return replace(file, problem=file.loaded.refusal(*found)) if found else file


def _clashes(mine: LoadedPipeline, other: LoadedPipeline) -> Iterator[Clash]:
    if mine.model.pipeline == other.model.pipeline:
        yield (
            ("pipeline",),
            f"{other.path.name} has a pipeline of the same name",
            "rename one of them: state and ledger are kept by name",
        )
    ids, theirs = mine.model.source.server_ids, other.model.source.server_ids
    if max(ids.start, theirs.start) < min(ids.stop, theirs.stop):
        free = max(ids.stop, theirs.stop)
        yield (
            ("source", "server_id"),
            f"server ids {ids.start}-{ids.stop - 1} overlap those of {other.path.name} "
            f"({theirs.start}-{theirs.stop - 1}): the source would cut one reader off",
            f"write server_id: {free}-{free + max(len(ids), 100) - 1} in one of them",
        )
