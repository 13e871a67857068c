"""The page of what holds for each setting of a table, made from what its test goes through.

    python -m tests.docs.settings

writes the page anew.
"""

from __future__ import annotations

from tests.docs.pages import DOCS
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
    return _HEAD + "\n".join(lines) + "\n" + told + _REFUSED + "\n".join(refused) + "\n" + _FOOT


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
