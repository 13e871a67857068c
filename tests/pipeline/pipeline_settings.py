"""The settings of a whole pipeline by which it starts, ends and is slowed, and what each does."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.pipeline.settings import Stage


@dataclass(frozen=True)
class Cell:
    """What a setting does to one stage."""

    word: str
    """What the docs' table has."""
    why: str = ""
    """With `refused`: words of the refusal."""

    @property
    def is_refused(self) -> bool:
        return self.word == "refused"


YES = Cell("yes")
HELD = Cell("held")
NONE = Cell("none")


@dataclass(frozen=True)
class PipelineSetting:
    """One line of the docs' table; `cells` has the stages that are not as ever."""

    title: str
    name: str
    in_file: str
    cells: dict[Stage, Cell] = field(default_factory=dict)
    keeps_rows: bool = False
    """The sink has the source's rows before the first run."""
    families: tuple[str, ...] = ("mysql",)
    """Where it is tried; what is refused is so whatever the source is."""

    def cell(self, stage: Stage) -> Cell:
        return self.cells.get(stage, YES)


def _refused(words: str, *stages: Stage) -> dict[Stage, Cell]:
    return dict.fromkeys(stages, Cell("refused", words))


_NEEDS_STREAM = "reading rows again needs a stream that goes on"
_COMPARE = "and the source goes on"
_ADD = "adding a table needs a stream that goes on"
_READING = (Stage.RESYNC, Stage.RANGE, Stage.BACKFILL)
_COMPARING = (Stage.VERIFY, Stage.REPAIR)

PIPELINE_SETTINGS = (
    PipelineSetting(
        "`snapshot.throttle`, at a critical load",
        "throttle",
        "snapshot: {throttle: {critical_threads_running: 6}}",
        dict.fromkeys((Stage.SNAPSHOT, *_READING, Stage.ADDED, Stage.REPAIR), HELD),
        families=("mariadb",),
    ),
    PipelineSetting(
        "`stream.start`, with rows that are kept",
        "start",
        "stream: {mode: bounded, start: latest}",
        {Stage.SNAPSHOT: NONE},
        keeps_rows=True,
        families=("mysql", "mariadb"),
    ),
    PipelineSetting(
        "`stream.stop`, not reached yet",
        "stop",
        "stream: {mode: bounded, stop: {timestamp: '2099-01-01T00:00:00Z'}}",
        {
            **_refused(_NEEDS_STREAM, *_READING),
            **_refused(_ADD, Stage.ADDED),
            **_refused(_COMPARE, *_COMPARING),
        },
    ),
    PipelineSetting(
        "`stream.stop: consistent`, once it is",
        "consistent",
        "stream: {mode: bounded, stop: consistent}",
        {
            Stage.STREAM: NONE,
            Stage.SCHEMA: NONE,
            **_refused(_ADD, Stage.ADDED),
            **_refused(_NEEDS_STREAM, *_READING),
            **_refused(_COMPARE, *_COMPARING),
        },
    ),
    PipelineSetting(
        "`stream.mode: snapshot_only`",
        "snapshot_only",
        "stream: {mode: snapshot_only}",
        {
            Stage.STREAM: NONE,
            Stage.SCHEMA: NONE,
            **_refused(_ADD, Stage.ADDED),
            **_refused(_NEEDS_STREAM, *_READING),
            **_refused(_COMPARE, *_COMPARING),
        },
    ),
)
