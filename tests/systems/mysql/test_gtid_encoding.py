"""The binary form of GTID sets, compared with what servers write themselves."""

from __future__ import annotations

import struct

import pytest

from airflow_cdc_provider.core.errors import UnsupportedServerError
from airflow_cdc_provider.systems.mysql.positions.gtid import GtidSet
from airflow_cdc_provider.systems.mysql.source.gtid_encoding import encode_gtid_set
from tests.servers.throwaway import MySqlServer

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_a_set_without_tags_has_the_form_that_every_server_reads() -> None:
    encoded = encode_gtid_set(GtidSet.parse(f"{UUID}:1-5:7"), version=(8, 0, 36))
    intervals = struct.pack("<QQQQQ", 2, 1, 6, 7, 8)
    assert encoded == struct.pack("<Q", 1) + bytes.fromhex(UUID.replace("-", "")) + intervals


def test_tags_are_refused_on_a_server_that_does_not_know_them() -> None:
    with pytest.raises(UnsupportedServerError, match="tagged"):
        encode_gtid_set(GtidSet.parse(f"{UUID}:orders:1"), version=(8, 0, 36))


@pytest.mark.parametrize("tags", [(), ("orders",), ("a", "much_longer_tag_of_32_characters")])
def test_the_form_is_the_one_the_server_writes_at_the_start_of_its_files(
    tags: tuple[str, ...],
) -> None:
    with MySqlServer() as server:
        connection = server.connect()
        with connection.cursor() as cursor:
            for tag in tags:
                cursor.execute(f"SET gtid_next = 'AUTOMATIC:{tag}'")
                cursor.execute(f"CREATE DATABASE d_{tag}")
        connection.close()
        server.execute("CREATE DATABASE plain")
        server.execute("FLUSH BINARY LOGS")
        executed = GtidSet.parse(server.execute("SELECT @@global.gtid_executed")[0][0])
        name = server.execute("SHOW BINARY LOG STATUS")[0][0]
        log = (server.datadir / name).read_bytes()
    format_end = 4 + struct.unpack("<I", log[13:17])[0]
    size = struct.unpack("<I", log[format_end + 9 : format_end + 13])[0]
    previous_gtids = log[format_end + 19 : format_end + size - 4]
    assert encode_gtid_set(executed, version=(9, 7, 0)) == previous_gtids
