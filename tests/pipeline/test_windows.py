"""Windows of a schedule, on real servers: what lies in them is read again, whatever the clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.findings import Level
from airflow_cdc_provider.core.windows import Epoch, Window
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.pipeline.steps.carrying_out import carry_out
from airflow_cdc_provider.pipeline.steps.checking import check
from airflow_cdc_provider.pipeline.steps.converging import run_until_caught_up
from airflow_cdc_provider.pipeline.steps.range_requests import ask_resync
from airflow_cdc_provider.pipeline.steps.windows import TimeColumn, window_scope
from tests.pipeline.conftest import Shop
from tests.pipeline.test_nothing_to_stream import shop

__all__ = ["shop"]

HOUR, DAY, QUARTER = timedelta(hours=1), timedelta(days=1), timedelta(minutes=15)
BERLIN = "Europe/Berlin"
AUTUMN = datetime(2026, 10, 25, 1, tzinfo=UTC)  # in Berlin 03:00 is 02:00 again
SPRING = datetime(2026, 3, 29, 1, tzinfo=UTC)  # in Berlin 02:00 is 03:00
COLUMNS = (
    TimeColumn("wall", timezone=BERLIN),
    TimeColumn("moment"),
    TimeColumn("day", timezone=BERLIN),
    TimeColumn("counted", epoch=Epoch.MILLISECONDS),
)


@pytest.fixture
def run(shop: Shop) -> Iterator[Run]:
    """A pipeline whose rows lie around both changes, each quarter of an hour on the wall."""
    shop.at_source(
        "CREATE TABLE visits (id INT PRIMARY KEY, wall DATETIME(3), moment TIMESTAMP(3) NULL, "
        "day DATE, counted BIGINT, year_ YEAR, note VARCHAR(9), KEY (wall))"
    )
    rows = [row for change in (AUTUMN, SPRING) for row in around(change)]
    values = ", ".join(
        f"({number}, '{wall}', FROM_UNIXTIME({moment.timestamp()}), '{wall:%Y-%m-%d}', "
        f"{int(moment.timestamp() * 1000)}, 2026, 'right')"
        for number, (wall, moment) in enumerate(rows)
    )
    shop.at_source(f"INSERT INTO visits VALUES {values}")
    with closing(shop.run()) as opened:
        run_until_caught_up(opened)
        yield opened


def around(change: datetime) -> list[tuple[datetime, datetime]]:
    """Return readings of a day's clocks, also those that no clock shows, with moments of as many.

    The moments lie from a day before the change on, and the last one is a millisecond early.
    """
    midnight = (change - HOUR).astimezone(ZoneInfo(BERLIN)).replace(hour=0, tzinfo=None)
    return [
        (midnight + number * QUARTER, change - 12 * HOUR + number * QUARTER)
        for number in range(24 * 4)
    ]


def read_again(shop: Shop, run: Run, by: TimeColumn, windows: list[Window]) -> set[int]:
    """Let all rows at the sink go wrong, read windows again; return which rows are right then."""
    with closing(shop.sink.connect(database=shop.target)) as connection:
        connection.cursor().execute("UPDATE visits SET note = 'wrong'")
    for window in windows:
        ask_resync(run, window_scope(run, f"{shop.database}.visits", by, window))
    carry_out(run)
    return {
        int(str(key)) for (key,) in shop.sink_rows("SELECT id FROM visits WHERE note = 'right'")
    }


def meant(shop: Shop, condition: str) -> set[int]:
    """Ask the source which rows are meant."""
    with closing(shop.source.connect(database=shop.database)) as connection:
        cursor = connection.cursor()
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT id FROM visits WHERE {condition}")
        return {key for (key,) in cursor.fetchall()}


def hours(change: datetime, count: int) -> list[Window]:
    first = change - count // 2 * HOUR
    return [Window(first + n * HOUR, first + (n + 1) * HOUR) for n in range(count)]


@pytest.mark.parametrize("change", [AUTUMN, SPRING], ids=["autumn", "spring"])
def test_hours_over_a_change_of_the_clocks_leave_out_no_row_and_read_no_other(
    shop: Shop, run: Run, change: datetime
) -> None:
    wall, moment, day, counted = COLUMNS
    span = hours(change, 4)
    here = f"wall >= '{change:%Y-%m-%d} 01:00' AND wall < '{change:%Y-%m-%d} 04:00'"
    if change is SPRING:
        here = here.replace("01:00", "00:00").replace("04:00", "05:00")
    assert read_again(shop, run, wall, span) == meant(shop, here)
    start, end = (f"{at:%Y-%m-%d %H:%M:%S}" for at in (span[0].start, span[-1].end))
    instants = meant(shop, f"moment >= '{start}' AND moment < '{end}'")
    assert len(instants) == 4 * 4
    assert read_again(shop, run, moment, span) == instants
    assert read_again(shop, run, counted, span) == instants
    assert read_again(shop, run, day, span) == meant(shop, f"day = '{change:%Y-%m-%d}'")


@pytest.mark.parametrize("change", [AUTUMN, SPRING], ids=["autumn", "spring"])
def test_each_hour_alone_has_the_rows_of_its_own_and_of_the_hour_that_is_there_twice(
    shop: Shop, run: Run, change: datetime
) -> None:
    def read(window: Window) -> set[str]:
        found = read_again(shop, run, COLUMNS[0], [window])
        chosen = f"id IN ({', '.join(map(str, found))})"
        distinct = f"SELECT DISTINCT HOUR(wall) FROM visits WHERE {chosen}"
        return {str(hour) for (hour,) in shop.sink_rows(distinct)}

    before, after = hours(change, 2)
    twice = {"2"} if change is AUTUMN else {"1", "2"}
    assert read(before) == twice
    assert read(after) == ({"2"} if change is AUTUMN else {"3"})


def test_days_over_a_change_leave_out_no_row_wherever_they_begin(shop: Shop, run: Run) -> None:
    for zone in (UTC, ZoneInfo(BERLIN)):
        first = datetime(2026, 10, 24, tzinfo=zone)
        days = [Window(first + n * DAY, first + (n + 1) * DAY) for n in range(3)]
        found = read_again(shop, run, COLUMNS[0], days)
        assert found == meant(shop, "wall >= '2026-10-24' AND wall < '2026-10-28'")


WRONG = [
    (TimeColumn("wall"), "in which zone its values are written is not said"),
    (TimeColumn("day", epoch=Epoch.SECONDS), "in which zone"),
    (TimeColumn("moment", timezone=BERLIN), "whose values are moments"),
    (TimeColumn("counted"), "what it counts since 1970 is not said"),
    (TimeColumn("counted", timezone="UTC"), "what it counts since 1970"),
    (TimeColumn("year_", epoch=Epoch.SECONDS), "tells no time"),
    (TimeColumn("note", timezone="UTC"), "the order of varchar is the server's own"),
    (TimeColumn("wlal", timezone="UTC"), "no column 'wlal'"),
]


def test_what_tells_no_time_is_refused_and_found_by_preflight(shop: Shop, run: Run) -> None:
    text = shop.path.read_text()
    for by, words in WRONG:
        with pytest.raises(RefusedError, match=words) as refused:
            window_scope(run, f"{shop.database}.visits", by, hours(AUTUMN, 2)[0])
        assert refused.value.remedy
        timezone = "" if by.timezone is None else f", timezone: {by.timezone}"
        epoch = "" if by.epoch is None else f", epoch: {by.epoch.value}"
        table = f"{{column: {by.name}{timezone}{epoch}}}"
        shop.path.write_text(f'{text}backfill: {{"{shop.database}.visits": {table}}}\n')
        with closing(shop.run()) as later:
            (found,) = [each for each in check(later).findings if each.code == "backfill.column"]
        assert (found.level, found.observed) == (Level.WARN, refused.value.what)


def test_before_the_snapshot_a_wrong_column_blocks(shop: Shop) -> None:
    with shop.path.open("a") as file:
        file.write(f'backfill: {{"{shop.database}.orders": {{column: note}}}}\n')
    with closing(shop.run()) as opened:
        (found,) = check(opened).blocks
    assert (found.code, found.subject) == ("backfill.column", f"{shop.database}.orders")
