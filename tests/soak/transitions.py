"""Each way in which a pipeline changes while it lives: how it begins, and how it is made sure of.

What begins may be killed at any moment, and so may who is at work. Whoever wanted it then does what
a user does: gives the same command again, and waits.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from airflow_cdc_provider.core.lifecycle import Wanted
from tests.soak.life import Life

Processes = list[subprocess.Popen[bytes]]


@dataclass(frozen=True)
class Transition:
    """What begins it, and what is done until it is sure to be over."""

    begin: Callable[[Life], Processes]
    finish: Callable[[Life], None]


def drift(life: Life) -> None:
    """Make the sink wrong: rows that are missing, altered, or should not be there."""
    for statement in (
        "DELETE FROM orders WHERE id % 5 = 0",
        "UPDATE orders SET note = 'wrong' WHERE id % 7 = 0",
        "INSERT IGNORE INTO orders (id, note) VALUES (-4, 'extra'), (100001, 'extra')",
    ):
        life.sink.execute(statement, database=life.sink_database)


def asked(command: str, *options: str, drifts: bool = True) -> Transition:
    """Ask for rows to be read again; the same id is the same request."""
    ids: list[str] = []

    def words(life: Life) -> list[str]:
        table = f"{life.source_database}.orders"
        return ["--table", table, *options, "--yes", "--id", ids[-1]]

    def begin(life: Life) -> Processes:
        ids.append(f"soak-{uuid.uuid4().hex[:8]}")
        if drifts:
            drift(life)
        return [life.begin(command, *words(life))]

    def finish(life: Life) -> None:
        life.insist(command, *words(life))
        life.wait_until(lambda: life.is_closed(ids[-1]), f"{command} is not done")
        found = life.store.request(life.name, ids[-1])
        assert found is not None
        assert found.status.value == "done", found

    return Transition(begin, finish)


def cancelled(command: str, *options: str) -> Transition:
    """Ask, and give it up; the sink had not drifted, so whatever was read is right."""
    ids: list[str] = []

    def begin(life: Life) -> Processes:
        ids.append(f"soak-{uuid.uuid4().hex[:8]}")
        table = f"{life.source_database}.orders"
        words = ["--table", table, *options, "--yes", "--id", ids[-1]]
        life.insist(command, *words)
        return [life.begin("cancel", ids[-1])]

    def finish(life: Life) -> None:
        if not life.is_closed(ids[-1]):
            life.say("cancel", ids[-1])  # refused if it was closed in between
        life.wait_until(lambda: life.is_closed(ids[-1]), f"{command} is not cancelled")

    return Transition(begin, finish)


def paused(life: Life) -> Processes:
    return [life.begin("pause", "--wait-s", "1")]


def resumed(life: Life) -> None:
    life.insist("pause", "--wait-s", "30")
    assert life.store.ensure(life.name).wanted is Wanted.STOP
    life.insist("resume")
    life.stream()


def restarted(life: Life) -> Processes:
    return [life.begin("restart", "--wait-s", "1")]


def restarted_again(life: Life) -> None:
    life.insist("restart", "--wait-s", "30")
    life.wait_until(
        lambda: life.store.ensure(life.name).wanted is Wanted.RUN, "the restart is not heeded"
    )


def with_tables(
    change: Callable[[tuple[str, ...]], tuple[str, ...]],
) -> Callable[[Life], Processes]:
    """Have the file pick other tables, and run."""

    def begin(life: Life) -> Processes:
        life.kill_owner()
        life.pick(*change(life.tables))
        life.stream()
        return []

    return begin


def as_the_file_says(life: Life) -> None:
    """Wait until the plan has the file's tables, each read."""

    def is_so() -> bool:
        planned = {state.table.table for state in life.store.tables(life.name)}
        return planned == set(life.tables) and life.is_quiet()

    life.wait_until(is_so, "the plan has other tables than the file")


def removed_and_added(life: Life) -> None:
    """The table is gone; bring it back, for what comes next."""
    as_the_file_says(life)
    life.kill_owner()
    life.pick(*life.tables, "parts")
    life.stream()
    as_the_file_says(life)


def table_reset(life: Life) -> Processes:
    life.kill_owner()
    drift(life)
    return [life.begin("reset", "--table", f"{life.source_database}.orders", "--yes")]


def table_reset_again(life: Life) -> None:
    life.kill_owner()
    life.insist("reset", "--table", f"{life.source_database}.orders", "--yes")
    life.wait_until(life.is_quiet, "the table that was reset is not read")


def changed(*statements: str) -> Transition:
    """Change a definition at the source."""

    def begin(life: Life) -> Processes:
        for statement in statements:
            number = life.rng.randrange(1 << 30)
            life.source.execute(statement.format(number), database=life.source_database)
        return []

    return Transition(begin, lambda life: life.wait_until(life.is_quiet, "changes are not made"))


def repaired(life: Life) -> Processes:
    drift(life)
    return [life.begin("verify", "--repair", "--wait", "--yes", "--settle-s", "20")]


def repaired_again(life: Life) -> None:
    """Rows that change all the while are left for the next look, so the writer's are not asked."""
    life.insist("verify", "--repair", "--wait", "--yes", "--settle-s", "30", codes=(0, 1))
    life.wait_until(life.is_quiet, "repairs are not done")


TRANSITIONS = {
    "pause and resume": Transition(paused, resumed),
    "restart": Transition(restarted, restarted_again),
    "resync of a table": asked("resync"),
    "resync of a range": asked("resync", "--from-key", "-5", "--to-key", "100002"),
    "backfill": asked("backfill", "--column", "id", "--from", "-5", "--to", "100002"),
    "cancel of a resync": cancelled("resync"),
    "cancel of a backfill": cancelled(
        "backfill", "--column", "id", "--from", "0", "--to", "100000"
    ),
    "add": Transition(with_tables(lambda tables: (*tables, "added")), as_the_file_says),
    "remove": Transition(
        with_tables(lambda tables: tuple(each for each in tables if each != "parts")),
        removed_and_added,
    ),
    "reset of a table": Transition(table_reset, table_reset_again),
    "verify --repair": Transition(repaired, repaired_again),
    "columns come": changed(
        "ALTER TABLE orders ADD COLUMN c{} INT NOT NULL DEFAULT 5",
        "ALTER TABLE names ADD COLUMN c{} DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)",
    ),
    "types change": changed(
        "ALTER TABLE orders MODIFY note VARCHAR(80)", "ALTER TABLE orders MODIFY amount DOUBLE"
    ),
    "truncate": changed("TRUNCATE TABLE parts"),
    "another table in its place": changed(
        "DROP TABLE IF EXISTS parts_new, parts_old",
        "CREATE TABLE parts_new LIKE parts",
        "INSERT INTO parts_new SELECT * FROM parts WHERE n % 2 = 0",
        "RENAME TABLE parts TO parts_old, parts_new TO parts",
    ),
}
