"""The page of what holds for each setting, made from what its tests go through.

    python -m tests.docs.settings

writes the page anew.
"""

from __future__ import annotations

from tests.docs.pages import DOCS
from tests.pipeline.pipeline_settings import PIPELINE_SETTINGS
from tests.pipeline.settings import SETTINGS, Stage

PAGE = DOCS / "settings.md"
_HEAD = """\
# What holds where

Whatever the [pipeline file](pipeline_file.md) says of a table holds in all that writes or compares
its rows. Each line is one table of a test, and each cell a step of it: behind it the sink has what
its source has, row by row, at MySQL and at MariaDB.

"""
_COLUMNS = {
    Stage.SNAPSHOT: "the first copy",
    Stage.STREAM: "what the log brings",
    Stage.RESYNC: "all rows again",
    Stage.RANGE: "the rows of some keys again",
    Stage.BACKFILL: "the rows of some days again",
    Stage.ADDED: "a table that comes later",
    Stage.SCHEMA: "a column that is added and altered",
    Stage.VERIFY: "differences are found",
    Stage.REPAIR: "and mended",
}
_REFUSED = """
What is not to be had is refused before anything is read:

"""
_OF_PIPELINES = """
## Settings of the whole pipeline

What starts, ends or slows a pipeline, by the same stages. Here, too, each cell is a step of a test.

"""
_WORDS = """
- none: nothing is done, and the sink's rows stay as they are. With a start the sink has them
  already; behind an end nothing is brought.
- held: at a load that is critical nothing is read, and the run or the request ends with
  `CDC-LOA-001`; when the load has passed, the same again reads the rows.
- refused: before anything is changed, with what to write instead.

What is exact at a start and at an end: [Starts](starts.md), [Ends](ends.md). How a load is told,
and the pace: [Throttle](throttle.md).

## Elsewhere
"""
_FOOT = """
- A [change log](changelog.md) has rows and columns as the file says, too; what it does not take is
  on its page.
- In a [topology](topologies.md) two tables are the same, row by row: what makes rows or columns
  others is refused there, with its line, and so is a table without a key.
- Other settings for a table that is copied are refused until `reset --table` is called for it:
  [Changing the file](columns.md#changing-the-file).
"""


def page_text() -> str:
    """Write the page."""
    stages = list(Stage)
    lines = [f"| setting | {' | '.join(stages)} |", f"|---|{'---|' * len(stages)}"]
    refused: list[str] = []
    for setting in SETTINGS:
        cells = []
        for stage in stages:
            why = setting.refused.get(stage)
            cells.append("yes" if why is None else "refused")
            if why is not None:
                refused.append(f"- {setting.title}, {_COLUMNS[stage]}: it {why}")
        lines.append(f"| {setting.title} | {' | '.join(cells)} |")
    meanings = [f"- {stage}: {_COLUMNS[stage]}" for stage in stages]
    told = "\n".join(["", *meanings, ""])
    of_tables = _HEAD + "\n".join(lines) + "\n" + told + _REFUSED + "\n".join(refused) + "\n"
    return of_tables + _of_pipelines() + _WORDS + _FOOT


def _of_pipelines() -> str:
    """Write the table of the settings of pipelines."""
    stages = list(Stage)
    lines = [f"| setting | {' | '.join(stages)} |", f"|---|{'---|' * len(stages)}"]
    for setting in PIPELINE_SETTINGS:
        cells = (setting.cell(stage).word for stage in stages)
        lines.append(f"| {setting.title} | {' | '.join(cells)} |")
    return _OF_PIPELINES + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
