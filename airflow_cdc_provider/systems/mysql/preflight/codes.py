"""What preflight may find of MySQL and MariaDB; the page of preflight says the same."""

from __future__ import annotations

from airflow_cdc_provider.core.findings import FindingCode


class Code(FindingCode):
    """The codes of preflight findings for MySQL and MariaDB: name, levels and meaning."""

    SOURCE_SERVER = ("source.server", "info", "family, version and identity of the server")
    SOURCE_VERSION = ("source.version", "block", "older than MySQL 8.0 or MariaDB 10.5")
    SOURCE_WATERMARK = (
        "source.watermark",
        "info, block",
        "how low watermarks are taken; there is no log, or no safe way (Aurora, Galera)",
    )
    SOURCE_BINLOG_FORMAT = ("source.binlog_format", "block", "not `ROW`")
    SOURCE_BINLOG_ROW_IMAGE = ("source.binlog_row_image", "block", "not `FULL`")
    SOURCE_BINLOG_ROW_METADATA = (
        "source.binlog_row_metadata",
        "block",
        "not `FULL`; it holds for events written from then on",
    )
    SOURCE_BINLOG_ROW_VALUE_OPTIONS = (
        "source.binlog_row_value_options",
        "info",
        "`PARTIAL_JSON` is on: putting the documents together costs the reader CPU",
    )
    SOURCE_BINLOG_ORDER_COMMITS = (
        "source.binlog_order_commits",
        "block",
        "`OFF`: rows become visible in another order than the log's",
    )
    SOURCE_LOWER_CASE_TABLE_NAMES = (
        "source.lower_case_table_names",
        "block",
        "2: how the log spells the names of tables is not known",
    )
    SOURCE_SYNC_BINLOG = (
        "source.sync_binlog",
        "warn",
        "not 1: a crash of the machine may lose what the sink has",
    )
    SOURCE_STATEMENTS = (
        "source.statements",
        "warn",
        "a change log is to tell statements (`include_query`), and the server logs none",
    )
    SOURCE_GTID_MODE = (
        "source.gtid_mode",
        "warn",
        "MySQL without GTIDs: a failover needs a new snapshot",
    )
    SOURCE_BINLOG_TRANSACTION_COMPRESSION = (
        "source.binlog_transaction_compression",
        "info",
        "compressed transactions cost the reader CPU",
    )
    SOURCE_LOG_BIN_COMPRESS = ("source.log_bin_compress", "info", "the same on MariaDB")
    SOURCE_RETENTION = ("source.retention", "warn", "the log is kept for less than three days")
    SOURCE_RETENTION_ESTIMATE = (
        "source.retention_estimate",
        "warn",
        "the log is kept for less than twice what the snapshot takes, estimated from the "
        "tables' sizes at 10 MB/s",
    )
    SOURCE_LOG_SIZE_LIMIT = (
        "source.log_size_limit",
        "warn",
        "the log is also purged by its size (`max_binlog_total_size`, Percona's "
        "`binlog_space_limit`)",
    )
    SOURCE_BINLOG_DO_DB = ("source.binlog_do_db", "block", "the log is filtered")
    SOURCE_BINLOG_IGNORE_DB = ("source.binlog_ignore_db", "block", "the log is filtered")
    SOURCE_LOG_REPLICA_UPDATES = (
        "source.log_replica_updates",
        "block",
        "a replica that does not log what it replicates",
    )
    SOURCE_REPLICA_PRESERVE_COMMIT_ORDER = (
        "source.replica_preserve_commit_order",
        "block",
        "a replica whose workers commit in any order",
    )
    SOURCE_REPLICATION_FILTERS = (
        "source.replication_filters",
        "warn",
        "a replica that leaves something out",
    )
    SOURCE_REPLICATION_DELAY = (
        "source.replication_delay",
        "warn",
        "a replica that is late on purpose",
    )
    SOURCE_REPLICATION_STOPPED = (
        "source.replication_stopped",
        "warn",
        "a replica whose own replication does not run",
    )
    SOURCE_REPLICATION_LAG = (
        "source.replication_lag",
        "warn",
        "a replica that is more than a minute behind",
    )
    SOURCE_PREPARED_TRANSACTIONS = (
        "source.prepared_transactions",
        "warn, block",
        "XA transactions are prepared and not committed; blocks a snapshot without GTIDs",
    )
    SOURCE_LONG_TRANSACTIONS = (
        "source.long_transactions",
        "warn",
        "transactions are open for more than ten minutes",
    )
    SOURCE_SERVER_ID = (
        "source.server_id",
        "block",
        "the pipeline's range holds the source's own id",
    )
    SOURCE_SERVER_ID_UNSET = (
        "source.server_id_unset",
        "block",
        "the source's `server_id` is 0: it refuses every reader",
    )
    SOURCE_SERVER_ID_TAKEN = (
        "source.server_id_taken",
        "block, warn",
        "a reader with an id of the range is connected; perhaps the pipeline's own, and blocks "
        "one without a plan, which has none",
    )
    SOURCE_MAX_CONNECTIONS = (
        "source.max_connections",
        "warn",
        "little room for the readers' connections",
    )
    SOURCE_REPLICATION_SLAVE = (
        "source.replication_slave",
        "block",
        "`REPLICATION SLAVE` is missing: the log cannot be read",
    )
    SOURCE_REPLICATION_CLIENT = (
        "source.replication_client",
        "block",
        "`REPLICATION CLIENT` (MariaDB: `BINLOG MONITOR`) is missing: neither the end of "
        "the log nor its filters can be seen",
    )
    SOURCE_UNSEEN = (
        "source.unseen",
        "info, warn, block",
        "something could not be looked at. Blocks: whether a server that does not log what "
        "it replicates is a replica (`SLAVE MONITOR` on MariaDB), and on MySQL without "
        "GTIDs whether XA transactions are prepared (`XA_RECOVER_ADMIN`), a warning once the "
        "snapshot is done: what is read from then on needs it",
    )
    SOURCE_SELECT = (
        "source.select",
        "block",
        "a table, or some of its columns, may not be read; tried, not deduced",
    )
    SOURCE_BACKUP_ADMIN = (
        "source.backup_admin",
        "warn",
        "MySQL without GTIDs: `BACKUP_ADMIN`, with `SELECT` on "
        "`performance_schema.log_status`, would spare replaying log",
    )
    TABLE_HIDDEN = (
        "table.hidden",
        "block",
        "a pattern with a star, and no right on all it may fit: a server lists only the "
        "tables an account has rights on, so others would be left out without a word",
    )
    TABLE_PRIMARY_KEY = (
        "table.primary_key",
        "block, warn",
        "there is none, and no unique key over columns that are NOT NULL in its place; it blocks "
        "in a topology and for a lake of current rows, see [Tables without a key](keyless.md)",
    )
    TABLE_GENERATED_KEY = (
        "table.generated_key",
        "block",
        "the primary key, or the unique key in its place, holds generated columns",
    )
    TABLE_PERIOD_KEY = (
        "table.period_key",
        "block",
        "a unique key `WITHOUT OVERLAPS` is in a primary key's place",
    )
    TABLE_ENGINE = ("table.engine", "block", "neither InnoDB nor RocksDB")
    TABLE_TYPE = ("table.type", "block", "a column's type is not in the [value model](types.md)")
    TABLE_CASCADE = (
        "table.cascade",
        "block",
        "a foreign key changes rows by itself, and the server does not log that",
    )
    TABLE_KIND = (
        "table.kind",
        "info, block",
        "a view, sequence or the like is left out; a table with system versioning blocks",
    )
    TABLE_UNSEEN = (
        "table.unseen",
        "block",
        "a default is printed with a `?`, and the account may not ask what it is",
    )
    TABLE_DEFINITION = (
        "table.definition",
        "block",
        "an `ENUM` or `SET` member, or on MariaDB a default, has a character of four bytes, "
        "which the server prints as `?`",
    )
    TABLE_MEMBERS = (
        "table.members",
        "warn",
        "a member has a `?`, and no row was found that shows whether it is one; if not, the "
        "first such row stops the pipeline",
    )
    TABLE_PARTITIONS = (
        "table.partitions",
        "warn",
        "it is partitioned; the table that is created at the sink is not",
    )
    TABLE_MIGRATION = (
        "table.migration",
        "warn",
        "it looks like a work table of gh-ost or pt-online-schema-change",
    )
    TABLE_UNSPLIT = (
        "table.unsplit",
        "info, warn",
        "the key's first column cannot bound a range (FLOAT, DOUBLE, TIME, ENUM, SET, BIT, "
        "UUID, a prefix), so the table is one split; a warning above five million rows",
    )
    TABLE_TEXT_KEY = (
        "table.text_key",
        "info",
        "only the server can compare the key, so the stream applies some changes again",
    )
    SINK_SERVER = ("sink.server", "info", "family and version")
    SINK_PRIVILEGES = (
        "sink.privileges",
        "block",
        "something is missing on a target database or on `airflow_cdc`; on MySQL `TRIGGER` "
        "too, without which triggers are not seen",
    )
    SINK_REFERENCES = (
        "sink.references",
        "block",
        "`REFERENCES` is missing, and foreign keys are copied; MariaDB does not ask for it",
    )
    SINK_CLOCK = (
        "sink.clock",
        "warn",
        "its clock and the source's differ by more than five seconds: lag is shown wrong",
    )
    SINK_DISK = (
        "sink.disk",
        "warn",
        "less free than one and a half times the tables' size, where it can be seen: "
        "MariaDB with its plugin `DISKS`, to accounts with `FILE`",
    )
    SINK_READ_ONLY = ("sink.read_only", "block", "the server takes no writes")
    SINK_SAME_TABLE = (
        "sink.same_table",
        "block",
        "source and sink are one server, and a table would be copied onto a copied one",
    )
    SINK_NAME_CASE = (
        "sink.name_case",
        "block",
        "two targets differ by case alone, and the sink does not tell them apart",
    )
    SINK_CREATE_TABLE = (
        "sink.create_table",
        "block",
        "the sink's family cannot have the table's definition",
    )
    SINK_STAND_IN = (
        "sink.stand_in",
        "info, block",
        "columns of types that the sink lacks, and which types they have there; blocks an edge of "
        "a topology",
    )
    SINK_PRIMARY_KEY = ("sink.primary_key", "block", "an existing table has another primary key")
    SINK_KEY_COLLATION = (
        "sink.key_collation",
        "block",
        "a key column has another order or equality: another collation, or one whose name "
        "means another order in the sink's family",
    )
    SINK_ENGINE = ("sink.engine", "block", "an existing table is not InnoDB")
    SINK_TRIGGER = (
        "sink.trigger",
        "block",
        "an existing table has triggers that do not ask for `@airflow_cdc`",
    )
    SINK_COLUMN = (
        "sink.column",
        "block",
        "a column is missing there, or only one side computes it",
    )
    SINK_COLUMN_TYPE = (
        "sink.column_type",
        "block",
        "a column's type does not hold every value as it is: another type, less room, fewer "
        "digits, other members",
    )
    SINK_COLUMN_NULL = ("sink.column_null", "block", "a column takes no NULL, the source's does")
    SINK_COLUMN_CHARSET = (
        "sink.column_charset",
        "block",
        "a column's charset is neither the source's nor `utf8mb4`",
    )
    SINK_EXTRA_COLUMN = (
        "sink.extra_column",
        "info, warn",
        "a column the source does not have; a warning if it takes no NULL",
    )
    SINK_UNIQUE_KEY = ("sink.unique_key", "block", "a unique key the source does not have")
    SINK_SHARED_TABLE = (
        "sink.shared_table",
        "block",
        "two tables go to one as its shards, and their definitions do not go together",
    )
    SINK_UNIQUE_COLLATION = (
        "sink.unique_collation",
        "warn",
        "a unique key over a text whose equality the sink's family does not have: two texts "
        "may be one there, and the run then stops",
    )
    SINK_LOCAL_INFILE = (
        "sink.local_infile",
        "info",
        "`OFF`: rows are inserted instead of loaded, which is slower",
    )
    SINK_MAX_ALLOWED_PACKET = (
        "sink.max_allowed_packet",
        "warn",
        "smaller than the source's, or than 16 MiB",
    )
