"""A folder of pipeline files: each is read by itself, and what is wrong with one is its own.

Files may clash. Two pipelines of one name share state and ledger: which of them is meant, or runs
already, no file says, so neither may start anything, and each names the other; what already streams
goes on. Of two readers with one server id the source throws one out; that is only a warning here,
since a file that was added must not stop a pipeline that runs. Preflight, which knows who has rows,
refuses the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from airflow_cdc_provider.core.errors import NOTHING_STARTED, PipelineFileError
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.pipeline.file.loader import LoadedPipeline, load_pipeline
from airflow_cdc_provider.pipeline.file.problems import Path

SUFFIXES = {".yaml", ".yml"}
_NAME = re.compile(r"^pipeline:\s*[\"']?(\w+)", re.MULTILINE)
_MODE = re.compile(r"\bmode:\s*[\"']?(bounded|continuous|snapshot_only)\b")
_NOT_IN_A_NAME = re.compile(r"\W", re.ASCII)
Clash = tuple[Path, str, str]


@dataclass(frozen=True, slots=True)
class FolderFile:
    """One file of a folder: the pipeline it has, or the error that it has."""

    path: FilePath
    name: str
    """The pipeline's, as far as it can be read, else the file's."""
    mode: str
    """The stream's, empty if it cannot be read."""
    loaded: LoadedPipeline | None = None
    problem: PipelineFileError | None = None
    """Why nothing may start; `loaded` is there all the same if it is only a clash."""
    warnings: tuple[str, ...] = ()
    """What is to be mended; the pipeline has its DAG and its tasks."""


def read_folder(folder: FilePath | str) -> tuple[FolderFile, ...]:
    """Read every pipeline file of a folder, sorted by file name."""
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


def files_beside(loaded: LoadedPipeline) -> tuple[FolderFile, ...]:
    """Return the other files of a pipeline file's folder; none if the file is in no folder."""
    here = loaded.path.resolve()
    files = read_folder(here.parent) if here.parent.is_dir() else ()
    return tuple(file for file in files if file.path.resolve() != here)


def _read(path: FilePath) -> FolderFile:
    """Read one pipeline file; an error becomes part of the result."""
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
    """Make the entry of a file with an error; its name is guessed, so that its DAG keeps its id."""
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
    """Return a file with the problems and warnings that it has together with the other files."""
    if file.loaded is None:
        return file
    others = [other.loaded for other in files if other.loaded and other.path != file.path]
    found = [clash for other in others for clash in _clashes(file.loaded, other)]
    shared = tuple(_shared_ids(file.loaded, other) for other in sharing_ids(file.loaded, others))
    problem = file.loaded.refusal(*found) if found else None
    return replace(file, problem=problem, warnings=shared)


def sharing_ids(mine: LoadedPipeline, others: Iterable[LoadedPipeline]) -> list[LoadedPipeline]:
    """Return other pipelines that name the same source and share a server id.

    No file says whether two names are one server: preflight asks the server who reads.
    """
    return [
        other
        for other in others
        if _source_name(other) == _source_name(mine)
        and other.model.pipeline != mine.model.pipeline
        and _overlap(other.model.server_ids, mine.model.server_ids)
    ]


def _source_name(loaded: LoadedPipeline) -> tuple[str | None, str | None]:
    """Return what names a pipeline's source in its file."""
    return loaded.model.source.conn_id, loaded.model.source.dsn_env


def _shared_ids(mine: LoadedPipeline, other: LoadedPipeline) -> str:
    """Return the warning that two files share server ids."""
    ids, theirs = mine.model.server_ids, other.model.server_ids
    return (
        f"its server ids {ids.start}-{ids.stop - 1} overlap those of {other.path.name} "
        f"({theirs.start}-{theirs.stop - 1}): the source throws one of two readers out. "
        "Leave source.server_id out in the newer file. Preflight refuses the one without a plan."
    )


def _clashes(mine: LoadedPipeline, other: LoadedPipeline) -> Iterator[Clash]:
    """Yield a problem if another file has a pipeline of the same name."""
    if mine.model.pipeline == other.model.pipeline:
        yield (
            ("pipeline",),
            f"{other.path.name} has a pipeline of the same name",
            "rename one of them: state and ledger are kept by name",
        )


def _overlap(one: range, other: range) -> bool:
    """Tell whether two ranges of ids share an id."""
    return max(one.start, other.start) < min(one.stop, other.stop)
