"""When the ledger follows log that was passed over."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from airflow_cdc_provider.core.idle_log import IdleRange
from airflow_cdc_provider.engine.stream.idle_commits import IdleCommits
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition

HOUR_S = 3600.0


def at(offset: int, file: int = 1) -> MySqlPosition:
    return MySqlPosition("server", BinlogPosition(file, offset))


@dataclass
class Committed:
    """Remembers what it was moved over."""

    moved: list[IdleRange] = field(default_factory=list)

    def pass_over(self, quiet: IdleRange) -> None:
        self.moved.append(quiet)


OTHERS = IdleRange(at(100), at(200), only_ledgers=False)
LEDGERS = IdleRange(at(100), at(200), only_ledgers=True)
NEXT_FILE = IdleRange(at(100), at(4, file=2), only_ledgers=True)


@pytest.mark.parametrize(
    ("quiet", "position", "every_s", "moves"),
    [
        (OTHERS, at(100), 0.0, True),
        (OTHERS, at(100), HOUR_S, False),
        (OTHERS, at(200), 0.0, False),
        (OTHERS, at(50), 0.0, False),
        (LEDGERS, at(100), 0.0, False),
        (NEXT_FILE, at(100), 0.0, True),
        (None, at(100), 0.0, False),
    ],
)
def test_the_ledger_follows_what_others_wrote_and_where_the_file_ends(
    quiet: IdleRange | None, position: MySqlPosition, every_s: float, moves: bool
) -> None:
    passed_over, ledger = IdleCommits(every_s), Committed()
    passed_over.log = quiet
    assert passed_over.commit_in_time(ledger, position) is moves
    assert ledger.moved == ([quiet] if moves else [])
    assert passed_over.log == (None if moves else quiet)


def test_the_ledger_is_left_alone_while_a_micro_batch_holds_its_rows() -> None:
    passed_over, ledger = IdleCommits(0.0), Committed()
    passed_over.log = OTHERS
    with passed_over.micro_batch:
        assert not passed_over.commit_in_time(ledger, at(100))
    assert passed_over.commit_in_time(ledger, at(100))


def test_at_the_end_the_ledger_follows_over_ledgers_too() -> None:
    passed_over, ledger = IdleCommits(HOUR_S), Committed()
    passed_over.commit(ledger)
    passed_over.log = LEDGERS
    passed_over.commit(ledger)
    assert ledger.moved == [LEDGERS]


def test_nothing_waits_up_to_where_the_log_was_read() -> None:
    passed_over = IdleCommits()
    assert passed_over.reached(at(100)) == at(100)
    passed_over.log = LEDGERS
    assert passed_over.reached(at(100)) == at(200)
    assert passed_over.reached(at(50)) == at(50), "changes may lie before the quiet log"
    assert passed_over.reached(at(300)) == at(300)
