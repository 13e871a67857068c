"""The ledger's tables in the sink: schema `airflow_cdc`, created on first use.

Whoever comes first creates them; two at once are harmless, because every statement says IF NOT
EXISTS and the version row is inserted with IGNORE. Names compare byte by byte. Positions and
splits are kept as the canonical JSON of `core.codec`, in text columns, because a server's own
JSON type would order and print them anew.

- `pipeline`: who may commit (generation) and whose splits are below (plan).
- `finished_split`: one row a published split, with its report, written with its rows.
- `stream`: one row a writer slot: the position up to which the sink holds the source, and the
  name of its stream split; of an edge also its name, and what its source knew of this sink's log.
- `stream_split`: the stream splits that these rows name.
- `stream_table`: the tables the stream owns; no split of these may be published any more.
- `joined_split`: one row a split that was read again for a request, written with its rows.
- `schema_change`: one row a change of a table's definition, from before anything was done about it.
- `stopped_table`: one row a table that the stream leaves alone: the position where it stands.
- `changed_table`: one row a table: how much of it was changed, written with its rows.
- `target`: which pipeline owns which table of the sink (see `targets`).
- `target_shard`: which source tables share a table that a pipeline owns (see `target_shards`).
- `edge_target`: which edges of which topology write a table of the sink: several of one may.
- `conflict`: one row a row that both nodes of an edge had changed, written with what was kept.
- `writer`: sessions that may hold row locks; a new owner ends those of older generations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_cdc_provider.core.errors import AccessDeniedError, CdcError, RefusedError
from airflow_cdc_provider.core.identifiers import LEDGER_DATABASE, PipelineName
from airflow_cdc_provider.systems.mysql.dialect.sql import literal
from airflow_cdc_provider.systems.mysql.sink.sink_session import SinkSession

LEDGER = f"`{LEDGER_DATABASE}`"
NOW_US = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)"
VERSION = 12
"""Tables and columns are only added: a ledger of an older version gets what it lacks, and a stream
of an older release that runs goes on."""

_NAME = "VARCHAR(63) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_TABLE_NAME = "VARCHAR(260) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_SINK_NAME = "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_REQUEST = "VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_TEXT = "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
_COUNT = "BIGINT UNSIGNED NOT NULL DEFAULT 0"

_LATER = {
    "pipeline": {"edge": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL"},
    "changed_table": dict.fromkeys(("inserts", "updates", "deletes", "changed_us"), _COUNT),
    "stream": {
        "edge": "VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT ''",
        "knew": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL",
        "apart": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL",
    },
    "stopped_table": {"knew": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL"},
}
"""Columns that a table of an older version lacks."""
_LATER_COLUMNS = {
    table: ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    for table, columns in _LATER.items()
}

_TABLES = {
    "ledger_version": "`version` INT UNSIGNED NOT NULL PRIMARY KEY",
    "pipeline": f"""
        `pipeline` {_NAME} PRIMARY KEY,
        `generation` {_COUNT},
        `plan_id` VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
        `updated_us` {_COUNT},
        {_LATER_COLUMNS["pipeline"]}""",
    "finished_split": f"""
        `pipeline` {_NAME},
        `table_name` {_TABLE_NAME},
        `number` INT UNSIGNED NOT NULL,
        `plan_id` VARCHAR(190) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        `generation` {_COUNT},
        `split` {_TEXT},
        `report` {_TEXT},
        `rows_written` {_COUNT},
        `committed_us` {_COUNT},
        PRIMARY KEY (`pipeline`, `table_name`, `number`)""",
    "stream": f"""
        `pipeline` {_NAME},
        `slot` SMALLINT UNSIGNED NOT NULL,
        `slots` SMALLINT UNSIGNED NOT NULL DEFAULT 1,
        `generation` {_COUNT},
        `batch` {_COUNT},
        `position` {_TEXT},
        `split` {_TEXT},
        `changes` {_COUNT},
        `transactions` {_COUNT},
        `source_committed_us` {_COUNT},
        `committed_us` {_COUNT},
        {_LATER_COLUMNS["stream"]},
        PRIMARY KEY (`pipeline`, `slot`)""",
    "stream_split": f"""
        `pipeline` {_NAME},
        `digest` CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
        `split` {_TEXT},
        PRIMARY KEY (`pipeline`, `digest`)""",
    "stream_table": f"""
        `pipeline` {_NAME},
        `table_name` {_TABLE_NAME},
        PRIMARY KEY (`pipeline`, `table_name`)""",
    "joined_split": f"""
        `pipeline` {_NAME},
        `request` {_REQUEST},
        `table_name` {_TABLE_NAME},
        `number` INT UNSIGNED NOT NULL,
        `generation` {_COUNT},
        `split` {_TEXT},
        `rows_written` {_COUNT},
        `position` {_TEXT},
        `committed_us` {_COUNT},
        PRIMARY KEY (`pipeline`, `request`, `table_name`, `number`)""",
    "schema_change": f"""
        `pipeline` {_NAME},
        `number` INT UNSIGNED NOT NULL,
        `table_name` {_TABLE_NAME},
        `state` VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
        `generation` {_COUNT},
        `body` {_TEXT},
        `begun_us` {_COUNT},
        PRIMARY KEY (`pipeline`, `number`)""",
    "stopped_table": f"""
        `pipeline` {_NAME},
        `table_name` {_TABLE_NAME},
        `generation` {_COUNT},
        `batch` {_COUNT},
        `position` {_TEXT},
        `split` {_TEXT},
        `changes` {_COUNT},
        `transactions` {_COUNT},
        `source_committed_us` {_COUNT},
        `committed_us` {_COUNT},
        `error` {_TEXT},
        `since_us` {_COUNT},
        {_LATER_COLUMNS["stopped_table"]},
        PRIMARY KEY (`pipeline`, `table_name`)""",
    "changed_table": f"""
        `pipeline` {_NAME},
        `table_name` {_TABLE_NAME},
        `changes` {_COUNT},
        `position` {_TEXT},
        {_LATER_COLUMNS["changed_table"]},
        PRIMARY KEY (`pipeline`, `table_name`)""",
    "target": f"""
        `database_name` {_SINK_NAME},
        `table_name` {_SINK_NAME},
        `pipeline` {_NAME},
        `source_table` {_TABLE_NAME},
        `sink_table` {_TABLE_NAME},
        PRIMARY KEY (`database_name`, `table_name`),
        KEY `pipeline` (`pipeline`)""",
    "target_shard": f"""
        `database_name` {_SINK_NAME},
        `table_name` {_SINK_NAME},
        `source_table` {_TABLE_NAME},
        `pipeline` {_NAME},
        PRIMARY KEY (`database_name`, `table_name`, `source_table`),
        KEY `pipeline` (`pipeline`)""",
    "edge_target": f"""
        `database_name` {_SINK_NAME},
        `table_name` {_SINK_NAME},
        `pipeline` {_NAME},
        `topology` {_SINK_NAME},
        `source_table` {_TABLE_NAME},
        `sink_table` {_TABLE_NAME},
        PRIMARY KEY (`database_name`, `table_name`, `pipeline`),
        KEY `pipeline` (`pipeline`)""",
    "conflict": f"""
        `number` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
        `pipeline` {_NAME},
        `table_name` {_TABLE_NAME},
        `kept` {_SINK_NAME},
        `row_key` {_TEXT},
        `source_change` {_TEXT},
        `sink_change` {_TEXT},
        `source_position` {_TEXT},
        `sink_position` {_TEXT},
        `noted_us` {_COUNT},
        KEY `pipeline` (`pipeline`, `number`)""",
    "writer": f"""
        `lock_name` VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
        `pipeline` {_NAME},
        `generation` {_COUNT},
        KEY `pipeline` (`pipeline`)""",
}


def pipeline_is(name: PipelineName) -> str:
    """Return the SQL condition that picks one pipeline's rows."""
    return f"pipeline = {literal(str(name))}"


def ledger_version(session: SinkSession) -> int:
    """Return the version of the sink's ledger, 0 if there is none; a newer one is refused."""
    found = session.rows(
        "SELECT COUNT(*) FROM information_schema.tables "
        "WHERE table_schema = 'airflow_cdc' AND table_name = 'ledger_version'"
    )
    if not found[0][0]:
        return 0
    try:
        version = int(session.rows(f"SELECT MAX(version) FROM {LEDGER}.ledger_version")[0][0] or 0)
    except AccessDeniedError as error:
        raise error.with_remedy(
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP ON airflow_cdc.* TO "
            "the sink's account: the page 'Rights' has all that it needs"
        ) from None
    if version > VERSION:
        raise RefusedError(
            f"the sink's ledger has version {version}, this release knows version {VERSION}",
            where=f"schema airflow_cdc on {session.where}",
            risk="none: nothing was written",
            remedy="run the release that wrote it, or a newer one",
        )
    return version


def create_ledger(session: SinkSession) -> None:
    """Create the ledger's tables that are missing; several processes may do so at once."""
    if ledger_version(session) == VERSION:
        return
    session.execute(f"CREATE DATABASE IF NOT EXISTS {LEDGER} CHARACTER SET utf8mb4")
    for name, columns in _TABLES.items():
        session.execute(f"CREATE TABLE IF NOT EXISTS {LEDGER}.`{name}` ({columns}\n) ENGINE=InnoDB")
    for name, later in _LATER.items():
        _add_columns(session, name, later)
    # last, so that a ledger with this version's row is whole
    session.execute(f"INSERT IGNORE INTO {LEDGER}.ledger_version VALUES ({VERSION})")
    session.execute(f"DELETE FROM {LEDGER}.ledger_version WHERE version < {VERSION}")


def _add_columns(session: SinkSession, table: str, later: Mapping[str, str]) -> None:
    """Add the columns that a ledger table lacks, unless another session just added them."""
    lacking = _lacking(session, table, later)
    if not lacking:
        return
    columns = ", ".join(f"ADD COLUMN `{name}` {later[name]}" for name in lacking)
    try:
        session.execute(f"ALTER TABLE {LEDGER}.`{table}` {columns}")
    except CdcError:
        if _lacking(session, table, later):
            raise


def _lacking(session: SinkSession, table: str, columns: Iterable[str]) -> list[str]:
    """Return which of the columns a ledger table lacks."""
    found = session.rows(
        "SELECT column_name FROM information_schema.columns "
        f"WHERE table_schema = {literal(LEDGER_DATABASE)} AND table_name = {literal(table)}"
    )
    there = {str(row[0]) for row in found}
    return [name for name in columns if name not in there]
