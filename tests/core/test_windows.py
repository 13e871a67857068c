"""Windows that follow each other leave out no value of a column, whatever its clock is."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_cdc_provider.core.windows import (
    Epoch,
    Window,
    counted,
    rounded_up,
    wall_readings,
    whole_days,
)

ODD_ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # half an hour
    "Pacific/Apia",  # a day that was left out, in 2011
    "Pacific/Kwajalein",
    "America/Juneau",  # a day twice, in 1867
    "Africa/Casablanca",
    "Africa/Monrovia",  # 44 minutes and 30 seconds, in 1972
    "Asia/Kathmandu",
    "Antarctica/Troll",
    "UTC",
)
US, HOUR, DAY = timedelta(microseconds=1), timedelta(hours=1), timedelta(days=1)
BERLIN = ZoneInfo("Europe/Berlin")
AUTUMN = datetime(2026, 10, 25, 1, tzinfo=UTC)  # 03:00 is 02:00 again
SPRING = datetime(2026, 3, 29, 1, tzinfo=UTC)  # 02:00 is 03:00
instants = st.datetimes(
    datetime(1850, 1, 1),  # noqa: DTZ001 - hypothesis wants it so
    datetime(2090, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
) | st.sampled_from([AUTUMN, SPRING]).flatmap(
    lambda at: st.integers(-300, 300).map(lambda minutes: at + timedelta(minutes=minutes))
)
zones = st.sampled_from(ODD_ZONES).map(ZoneInfo)
lengths = st.sampled_from([timedelta(minutes=7), HOUR, DAY, timedelta(days=40)])
chains = st.tuples(instants, lengths, st.integers(2, 40)).map(
    lambda drawn: [drawn[0] + number * drawn[1] for number in range(drawn[2])]
)


def wall(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None)


@given(zone=zones, borders=chains, at=st.floats(0, 1, exclude_max=True))
@example(zone=BERLIN, borders=[AUTUMN - HOUR, AUTUMN], at=0.5)
@example(zone=BERLIN, borders=[AUTUMN, AUTUMN + HOUR], at=0.5)
@example(zone=BERLIN, borders=[AUTUMN - HOUR / 2, AUTUMN + HOUR / 2], at=0.4)
@example(zone=BERLIN, borders=[AUTUMN - HOUR / 2, AUTUMN + HOUR / 2], at=0.6)
@example(
    zone=ZoneInfo("Pacific/Apia"),
    borders=[datetime(2011, 12, 30, 9, tzinfo=UTC), datetime(2011, 12, 30, 11, tzinfo=UTC)],
    at=0.6,
)
@example(  # ends a second and a half behind a change
    zone=BERLIN, borders=[AUTUMN - HOUR, AUTUMN + timedelta(seconds=1.5)], at=0.5
)
def test_a_window_has_every_reading_that_a_clock_shows_in_it(
    zone: ZoneInfo, borders: list[datetime], at: float
) -> None:
    for start, end in pairwise(borders):
        low, high = wall_readings(Window(start, end), zone)
        inside = start + min((end - start) * at, end - start - US)  # a product is rounded
        assert low <= wall(inside, zone) < high


@given(zone=zones, borders=chains, share=st.floats(0, 1, exclude_max=True))
@example(zone=BERLIN, borders=[SPRING - HOUR, SPRING, SPRING + HOUR], share=0.5)
@example(zone=BERLIN, borders=[AUTUMN - HOUR, AUTUMN, AUTUMN + HOUR], share=0.5)
def test_windows_that_follow_each_other_leave_out_no_reading_even_one_no_clock_shows(
    zone: ZoneInfo, borders: list[datetime], share: float
) -> None:
    read = [wall_readings(Window(start, end), zone) for start, end in pairwise(borders)]
    for (_, behind), (first, _) in pairwise(read):
        assert first <= behind
    lowest, highest = min(low for low, _ in read), max(high for _, high in read)
    value = lowest + min((highest - lowest) * share, highest - lowest - US)
    assert any(low <= value < high for low, high in read)


@given(zone=zones, start=instants, length=lengths)
def test_a_window_reads_no_more_than_the_clock_shows_in_it_and_leaves_out(
    zone: ZoneInfo, start: datetime, length: timedelta
) -> None:
    """Where no clock is changed it is the window itself, on the wall."""
    end = start + length
    offsets = {
        (start - HOUR + number * (length + 2 * HOUR) / 2000).astimezone(zone).utcoffset()
        for number in range(2001)
    }
    if len(offsets) == 1:
        assert wall_readings(Window(start, end), zone) == (wall(start, zone), wall(end, zone))


def test_the_hour_that_is_there_twice_is_read_by_both_windows_and_the_missing_one_by_one() -> None:
    def hours(first: datetime, count: int) -> list[tuple[str, str]]:
        windows = [Window(first + n * HOUR, first + (n + 1) * HOUR) for n in range(count)]
        read = (wall_readings(window, BERLIN) for window in windows)
        return [(f"{low:%H:%M}", f"{high:%H:%M}") for low, high in read]

    assert hours(AUTUMN - 2 * HOUR, 4) == [
        ("01:00", "02:00"),
        ("02:00", "03:00"),
        ("02:00", "03:00"),
        ("03:00", "04:00"),
    ]
    assert hours(SPRING - 2 * HOUR, 4) == [
        ("00:00", "01:00"),
        ("01:00", "03:00"),
        ("03:00", "04:00"),
        ("04:00", "05:00"),
    ]


def test_a_day_of_23_or_25_hours_is_a_day_on_the_wall() -> None:
    for day in (date(2026, 3, 29), date(2026, 10, 25)):
        start = datetime(day.year, day.month, day.day, tzinfo=BERLIN)
        read = wall_readings(Window(start, start + DAY), BERLIN)  # wall time: a day later
        assert read == (start.replace(tzinfo=None), start.replace(tzinfo=None) + DAY)


@given(borders=chains, epoch=st.sampled_from(Epoch), digits=st.integers(0, 6))
def test_counts_and_rounded_ends_are_in_one_window_each(
    borders: list[datetime], epoch: Epoch, digits: int
) -> None:
    windows = [Window(start, end) for start, end in pairwise(borders)]
    for (_, behind), (first, _) in pairwise(counted(window, epoch) for window in windows):
        assert first == behind
    for window in windows:
        first, behind = counted(window, epoch)
        moments = [datetime(1970, 1, 1, tzinfo=UTC) + n * epoch.unit for n in (first, behind)]
        assert window.start <= moments[0] < window.start + epoch.unit
        assert window.end <= moments[1] < window.end + epoch.unit
        up = rounded_up(window.start, digits)
        assert window.start <= up < window.start + timedelta(seconds=1) / 10**digits
        assert f"{up:%f}"[digits:].strip("0") == ""


@given(zone=zones, borders=chains)
def test_the_days_of_windows_that_follow_each_other_leave_out_no_day(
    zone: ZoneInfo, borders: list[datetime]
) -> None:
    read = [wall_readings(Window(start, end), zone) for start, end in pairwise(borders)]
    days = [whole_days(*each) for each in read]
    for (low, high), (first, last) in zip(read, days, strict=True):
        assert first <= low
        assert high <= last
        assert first.time() == last.time() == datetime.min.time()
        assert last - first < high - low + 2 * DAY
    for (_, behind), (first, _) in pairwise(days):
        assert first <= behind


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (datetime(2026, 1, 1), datetime(2026, 1, 2, tzinfo=UTC), "need a time zone"),  # noqa: DTZ001
        (AUTUMN, AUTUMN, "ends after it starts"),
    ],
)
def test_what_is_no_window_is_refused(start: datetime, end: datetime, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Window(start, end)
