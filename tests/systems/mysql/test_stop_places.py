"""Which transactions of the log a GTID set has, and which of them are its last."""

from __future__ import annotations

import numpy as np
import pytest

from airflow_cdc_provider.core.errors import RefusedError
from airflow_cdc_provider.core.stream_stops import StreamStop
from airflow_cdc_provider.systems.mysql.binlog.events.gtid_events import GtidColumns
from airflow_cdc_provider.systems.mysql.positions.gtid import (
    GtidSet,
    GtidSource,
    MariaDbGtidPosition,
)
from airflow_cdc_provider.systems.mysql.source.stop_places import _left, marks_of

ONE, TWO = (f"{number}{number * 7}-0000-0000-0000-{number * 12}" for number in "12")
STOP = StreamStop.at("gtid", "x")


def columns(*gtids: tuple[GtidSource | tuple[int, int] | None, int]) -> GtidColumns:
    origins = list(dict.fromkeys(origin for origin, _ in gtids))
    return GtidColumns(
        origins,
        np.array([origins.index(origin) for origin, _ in gtids], np.int64),
        np.array([number for _, number in gtids], np.int64),
        np.zeros(len(gtids), np.int64),
    )


def test_each_transaction_of_a_set_counts_gaps_and_tags_and_all() -> None:
    one, tagged, two = GtidSource(ONE), GtidSource(ONE, "tag"), GtidSource(TWO)
    wanted = GtidSet.parse(f"{ONE}:1-3:7:tag:5")
    found = columns((one, 3), (one, 4), (one, 7), (tagged, 5), (tagged, 6), (two, 1), (None, 0))
    inside, counts = marks_of(found, wanted)
    assert inside.tolist() == [True, False, True, True, False, False, False]
    assert counts.tolist() == inside.tolist()
    assert _left(STOP, wanted, GtidSet.parse(f"{ONE}:1-2")) == 3


def test_the_last_transaction_of_each_domain_counts() -> None:
    wanted = MariaDbGtidPosition.parse("0-1-5,1-2-3")
    found = columns(((0, 1), 4), ((0, 9), 4), ((0, 1), 5), ((0, 9), 5), ((1, 2), 3), ((2, 1), 1))
    inside, counts = marks_of(found, wanted)
    assert inside.tolist() == [True, True, True, False, True, False]
    assert counts.tolist() == [False, False, True, False, True, False]
    assert _left(STOP, wanted, MariaDbGtidPosition.parse("0-1-5")) == 1


@pytest.mark.parametrize(
    ("wanted", "has"),
    [
        (GtidSet.parse(f"{ONE}:3-5"), GtidSet.parse(f"{ONE}:1-2")),
        (GtidSet.parse(f"{ONE}:1-5"), GtidSet.parse(f"{TWO}:1")),
        (MariaDbGtidPosition.parse("0-1-5"), MariaDbGtidPosition.parse("0-1-6")),
        (MariaDbGtidPosition.parse("0-1-5"), MariaDbGtidPosition.parse("1-1-1")),
    ],
)
def test_a_set_without_what_the_sink_has_is_refused_with_the_whole_one(
    wanted: GtidSet | MariaDbGtidPosition, has: GtidSet | MariaDbGtidPosition
) -> None:
    with pytest.raises(RefusedError, match="leaves out") as refused:
        _left(STOP, wanted, has)
    assert "write the whole set" in refused.value.remedy
