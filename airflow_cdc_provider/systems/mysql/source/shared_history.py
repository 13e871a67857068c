"""What the history of a server has in common with ours, where it lacks a part of it.

After a failover that lost commits the server that took over has all up to some transaction, and
then others of its own. Transactions are known by their names, and one name must be one transaction
on both sides. A server that lost its own last ones in a crash, or was restored from a copy, gives
their names out again. So nothing is believed where it is the server that was read, or where what it
lacks was written by itself; nor without GTIDs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.history import SharedHistory
from airflow_cdc_provider.systems.mysql.positions.gtid import (
    GtidSet,
    MariaDbGtid,
    MariaDbGtidPosition,
)
from airflow_cdc_provider.systems.mysql.positions.position import MySqlPosition
from airflow_cdc_provider.systems.mysql.server.connection import query
from airflow_cdc_provider.systems.mysql.source.gtid_history import known_to_mariadb

if TYPE_CHECKING:
    from airflow_cdc_provider.systems.mysql.server.capabilities import Capabilities
    from airflow_cdc_provider.systems.mysql.server.connection import ServerConnection

_NOTHING = SharedHistory(None, ())


def shared_history(
    connection: ServerConnection,
    capabilities: Capabilities,
    read: MySqlPosition,
    others: Sequence[MySqlPosition],
) -> SharedHistory:
    """Return the GTIDs of `read` that another server has too, and which of `others` it has."""
    if read.server_uuid in {"", capabilities.server_uuid}:
        return _NOTHING
    if isinstance(read.gtids, GtidSet) and not capabilities.is_mariadb:
        return _by_sets(connection, capabilities.server_uuid, read, read.gtids, others)
    if isinstance(read.gtids, MariaDbGtidPosition) and capabilities.is_mariadb:
        return _by_domains(connection, read, read.gtids, others)
    return _NOTHING


def _by_sets(
    connection: ServerConnection,
    server: str,
    read: MySqlPosition,
    ours: GtidSet,
    others: Sequence[MySqlPosition],
) -> SharedHistory:
    """Return the GTIDs that a MySQL server shares with ours, and which positions it has."""
    executed = GtidSet.parse(str(query(connection, "SELECT @@global.gtid_executed")[0][0]))
    common = ours.intersection(executed)
    sets = [each.gtids for each in others]
    lost = [ours.subtract(executed)]
    lost += [each.subtract(executed) for each in sets if isinstance(each, GtidSet)]
    if not common or any(source.uuid == server for each in lost for source in each.intervals):
        return _NOTHING
    has = tuple(isinstance(each, GtidSet) and executed.covers(each) for each in sets)
    return SharedHistory(MySqlPosition(read.server_uuid, None, common), has)


def _by_domains(
    connection: ServerConnection,
    read: MySqlPosition,
    ours: MariaDbGtidPosition,
    others: Sequence[MySqlPosition],
) -> SharedHistory:
    """Return each domain's last GTID that MariaDB shares with us, and which positions it has."""
    known = known_to_mariadb(connection)
    own_id = int(query(connection, "SELECT @@global.server_id")[0][0])
    positions = [each.gtids for each in others]
    named = [g for each in positions if isinstance(each, MariaDbGtidPosition) for g in each]
    lost = [gtid for gtid in (*ours, *named) if not _has(known, gtid)]
    common = MariaDbGtidPosition()
    for gtid in ours:
        last = min(gtid.sequence, known.get((gtid.domain, gtid.server), 0))
        if not last:
            return _NOTHING
        common = common.add(MariaDbGtid(gtid.domain, gtid.server, last))
    if not ours or any(gtid.server == own_id for gtid in lost):
        return _NOTHING
    has = tuple(
        isinstance(each, MariaDbGtidPosition) and all(_has(known, gtid) for gtid in each)
        for each in positions
    )
    return SharedHistory(MySqlPosition(read.server_uuid, None, common), has)


def _has(known: Mapping[tuple[int, int], int], gtid: MariaDbGtid) -> bool:
    """Tell whether the server knows a MariaDB GTID."""
    return known.get((gtid.domain, gtid.server), 0) >= gtid.sequence
