"""Hypothesis strategies for the values of `core`, shared by all rooms' tests."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import strategies as st

from airflow_cdc_provider.core.identifiers import TableId
from airflow_cdc_provider.core.keys import KeyKind, KeyRange
from airflow_cdc_provider.core.splits import SnapshotSplit, SplitReport
from airflow_cdc_provider.systems.mysql.positions.gtid import (
    Gtid,
    GtidSet,
    GtidSource,
    MariaDbGtid,
    MariaDbGtidPosition,
)
from airflow_cdc_provider.systems.mysql.positions.position import (
    BinlogPosition,
    Imprint,
    MySqlPosition,
)

UUIDS = (
    "3e11fa47-71ca-11e1-9e33-c80aa9429562",
    "4350f323-7565-4e59-8763-4b1b83a0ce0e",
    "aaaaaaaa-0000-11ee-bbbb-0242ac110002",
)
TAGS = ("", "tag_a", "_b")

sources = st.builds(GtidSource, st.sampled_from(UUIDS), st.sampled_from(TAGS))
gtids = st.builds(Gtid, sources, st.integers(1, 12))
gtid_sets = st.lists(gtids, max_size=14).map(
    lambda members: GtidSet.parse(",".join(str(member) for member in members))
)
"""Small numbers and few sources, so that sets meet, touch and leave gaps."""

mariadb_gtids = st.builds(MariaDbGtid, st.integers(0, 2), st.integers(1, 3), st.integers(1, 40))
mariadb_positions = st.lists(mariadb_gtids, max_size=3, unique_by=lambda g: g.domain).map(
    lambda members: MariaDbGtidPosition.parse(",".join(str(member) for member in members))
)

binlog_positions = st.builds(
    BinlogPosition, st.integers(1, 1_000_001), st.integers(4, 1 << 40), st.just("binlog")
)
imprints = st.builds(
    Imprint,
    binlog_positions,
    st.integers(4, 1 << 40),
    st.integers(0, (1 << 32) - 1),
    st.sampled_from(["", "a1b2", "00ff"]),
)
log_positions = st.builds(
    MySqlPosition,
    st.sampled_from(UUIDS),
    binlog_positions,
    st.one_of(st.none(), gtid_sets, mariadb_positions),
    st.none() | imprints,
) | st.builds(MySqlPosition, st.sampled_from(UUIDS), st.none(), gtid_sets)

names = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"),
    min_size=1,
    max_size=12,
).filter(lambda name: not name.startswith(".") and not name.endswith("."))
table_ids = st.builds(TableId, names, names)

key_parts = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.decimals(allow_nan=False, allow_infinity=False, places=4).map(Decimal),
    st.text(max_size=8),
    st.binary(max_size=8),
)
keys = st.lists(key_parts, min_size=1, max_size=3).map(tuple)
key_ranges = st.builds(KeyRange, st.none() | keys, st.none() | keys)
splits = st.builds(
    SnapshotSplit,
    table_ids,
    st.integers(0, 1 << 31),
    st.lists(names, min_size=1, max_size=3).map(tuple),
    st.lists(st.sampled_from(KeyKind), min_size=1, max_size=3).map(tuple),
    key_ranges,
)
reports = st.builds(
    SplitReport,
    split_id=st.text(max_size=20),
    low=log_positions,
    high=log_positions,
    rows=st.integers(0, 1 << 40),
    bytes=st.integers(0, 1 << 40),
    fingerprint=st.text(max_size=16),
    attempt=st.integers(1, 9),
    changes=st.integers(0, 1 << 30),
    read_s=st.floats(0, 1e6),
    publish_s=st.floats(0, 1e6),
)
