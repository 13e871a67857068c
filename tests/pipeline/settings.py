"""The settings of a table, each with a table that has it and what the sink is to hold of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

ALL = "id, city, n, day, mail"
SALT = "0123456789abcdef0123"
"""In the variable `SHOP_SALT`."""


class Stage(StrEnum):
    """What writes or compares rows; the columns of the docs' table."""

    SNAPSHOT = "snapshot"
    STREAM = "stream"
    RESYNC = "resync"
    RANGE = "a part again"
    BACKFILL = "backfill"
    ADDED = "added table"
    SCHEMA = "schema change"
    VERIFY = "verify"
    REPAIR = "repair"


@dataclass(frozen=True)
class Setting:
    """One line of the docs' table."""

    title: str
    table: str
    """The table of it; one that is added later has `_later` behind the name."""
    in_file: str = ""
    """What the file says of both."""
    more: str = ""
    """Columns that the table has besides, at the source."""
    key: str = "id INT PRIMARY KEY"
    at_source: str = ALL
    """What the sink is to have, as the source says it; `at_sink` as the sink does."""
    at_sink: str = ALL
    where: str = "TRUE"
    living: str = "TRUE"
    """Which of the sink's rows the source has, too."""
    added: str = ", extra"
    """What of a column `extra`, added at the source, both are to have."""
    refused: dict[Stage, str] = field(default_factory=dict)
    """What a stage is refused with."""
    by: str = "id"
    """A column of the sink that has the numbers of the rows."""
    only: str = ""
    """The source's family that has such a table, if but one has."""

    def definition(self, table: str) -> str:
        """Return the statement that makes it at the source."""
        return (
            f"CREATE TABLE {table} ({self.key}, city VARCHAR(20) CHARACTER SET utf8mb4 COLLATE "
            f"utf8mb4_bin, n INT, day DATE, mail VARCHAR(40){self.more})"
        )


_NO_PART = "has no key, so a part of its rows cannot be read"
_HASHED = "has hashes of its key at the sink, so a part of its rows cannot be read"

SETTINGS = (
    Setting("`where`", "filtered", """where: "city = 'Ulm'" """, where="city = 'Ulm'"),
    Setting(
        "`columns.include`",
        "included",
        "columns: {include: [day, id, n, city]}",
        at_source="day, id, n, city",
        at_sink="day, id, n, city",
        added="",
    ),
    Setting(
        "`columns.exclude`",
        "excluded",
        "columns: {exclude: [mail]}",
        at_source="id, city, n, day",
        at_sink="id, city, n, day",
    ),
    Setting(
        "`columns.rename`, `constants`",
        "renamed",
        "columns: {rename: {n: number, day: on_day}, constants: {region: EU, part: 7}}",
        at_source="id, city, n, day, mail, 'EU', 7",
        at_sink="id, city, number, on_day, mail, region, part",
    ),
    Setting(
        "`columns.mask`",
        "masked",
        "columns: {mask: {mail: {last: 3}, n: null}}",
        at_source="id, city, NULL, day, RIGHT(mail, 3)",
    ),
    Setting(
        "`columns.mask` with `sha256`",
        "hashed",
        "columns: {mask: {mail: {sha256: {salt_env: SHOP_SALT}}, "
        "n: {sha256: {salt_env: SHOP_SALT}}}}",
        at_source=f"id, city, SHA2(CONCAT('{SALT}', n), 256), day, "
        f"SHA2(CONCAT('{SALT}', mail), 256)",
    ),
    Setting(
        "`sha256` in the key",
        "hashed_key",
        "columns: {mask: {id: {sha256: {salt_env: SHOP_SALT}}}}",
        at_source=f"SHA2(CONCAT('{SALT}', id), 256), city, n, day, mail",
        by="n",
        refused={Stage.RANGE: _HASHED, Stage.BACKFILL: _HASHED},
    ),
    Setting(
        "`columns.type`",
        "typed",
        'columns: {type: {u: "char(40)"}}',
        more=", u UUID",
        at_source=f"{ALL}, CAST(u AS CHAR)",
        at_sink=f"{ALL}, CAST(u AS CHAR)",
        only="mariadb",
    ),
    Setting("`deletes: soft`", "soft", "deletes: soft", living="_deleted = 0"),
    Setting(
        "`metadata`",
        "stamped",
        "metadata: {operation: op, position: pos, committed_at: at, table: source, server: server}",
    ),
    Setting(
        "`shard`",
        "sharded",
        "shard: {column: shop, value: table}",
        at_source=f"{ALL}, 'sharded'",
        at_sink=f"{ALL}, LEFT(shop, 7)",
    ),
    Setting("a unique key instead of a primary one", "unique_key", key="id INT NOT NULL UNIQUE"),
    Setting(
        "`key`",
        "named_key",
        "key: by_id",
        key="code INT NOT NULL AUTO_INCREMENT, id INT NOT NULL, UNIQUE by_code (code), "
        "UNIQUE by_id (id)",
        at_source=f"code, {ALL}",
        at_sink=f"code, {ALL}",
    ),
    Setting(
        "no key",
        "keyless",
        key="id INT",
        refused={Stage.RANGE: _NO_PART, Stage.BACKFILL: _NO_PART},
    ),
)
