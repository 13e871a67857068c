"""What the demo and the end-to-end tests copy: TPC-H with its keys, and two awkward tables.

The text key is compared without regard to case and accents, so only the server can tell which of
two keys is smaller. The composite key's first column is nearly always the same, so splits must
be cut over the whole key.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers.given import SqlServer

TPCH = "tpch"
EXTRAS = "extras"

# Column names and keys as the TPC-H specification has them; parents before children.
TPCH_TABLES = {
    "region": "r_regionkey INT PRIMARY KEY, r_name CHAR(25) NOT NULL, r_comment VARCHAR(152)",
    "nation": "n_nationkey INT PRIMARY KEY, n_name CHAR(25) NOT NULL, "
    "n_regionkey INT NOT NULL, n_comment VARCHAR(152), "
    "FOREIGN KEY (n_regionkey) REFERENCES region (r_regionkey)",
    "supplier": "s_suppkey INT PRIMARY KEY, s_name CHAR(25) NOT NULL, "
    "s_address VARCHAR(40) NOT NULL, s_nationkey INT NOT NULL, s_phone CHAR(15) NOT NULL, "
    "s_acctbal DECIMAL(15,2) NOT NULL, s_comment VARCHAR(101) NOT NULL, "
    "UNIQUE (s_name), FOREIGN KEY (s_nationkey) REFERENCES nation (n_nationkey)",
    "customer": "c_custkey INT PRIMARY KEY, c_name VARCHAR(25) NOT NULL, "
    "c_address VARCHAR(40) NOT NULL, c_nationkey INT NOT NULL, c_phone CHAR(15) NOT NULL, "
    "c_acctbal DECIMAL(15,2) NOT NULL, c_mktsegment CHAR(10) NOT NULL, "
    "c_comment VARCHAR(117) NOT NULL, "
    "FOREIGN KEY (c_nationkey) REFERENCES nation (n_nationkey)",
    "part": "p_partkey INT PRIMARY KEY, p_name VARCHAR(55) NOT NULL, p_mfgr CHAR(25) NOT NULL, "
    "p_brand CHAR(10) NOT NULL, p_type VARCHAR(25) NOT NULL, p_size INT NOT NULL, "
    "p_container CHAR(10) NOT NULL, p_retailprice DECIMAL(15,2) NOT NULL, "
    "p_comment VARCHAR(23) NOT NULL",
    "partsupp": "ps_partkey INT NOT NULL, ps_suppkey INT NOT NULL, ps_availqty INT NOT NULL, "
    "ps_supplycost DECIMAL(15,2) NOT NULL, ps_comment VARCHAR(199) NOT NULL, "
    "PRIMARY KEY (ps_partkey, ps_suppkey), "
    "FOREIGN KEY (ps_partkey) REFERENCES part (p_partkey), "
    "FOREIGN KEY (ps_suppkey) REFERENCES supplier (s_suppkey)",
    "orders": "o_orderkey BIGINT PRIMARY KEY, o_custkey INT NOT NULL, "
    "o_orderstatus CHAR(1) NOT NULL, o_totalprice DECIMAL(15,2) NOT NULL, "
    "o_orderdate DATE NOT NULL, o_orderpriority CHAR(15) NOT NULL, o_clerk CHAR(15) NOT NULL, "
    "o_shippriority INT NOT NULL, o_comment VARCHAR(79) NOT NULL, "
    "FOREIGN KEY (o_custkey) REFERENCES customer (c_custkey)",
    "lineitem": "l_orderkey BIGINT NOT NULL, l_partkey INT NOT NULL, l_suppkey INT NOT NULL, "
    "l_linenumber INT NOT NULL, l_quantity DECIMAL(15,2) NOT NULL, "
    "l_extendedprice DECIMAL(15,2) NOT NULL, l_discount DECIMAL(15,2) NOT NULL, "
    "l_tax DECIMAL(15,2) NOT NULL, l_returnflag CHAR(1) NOT NULL, l_linestatus CHAR(1) NOT NULL, "
    "l_shipdate DATE NOT NULL, l_commitdate DATE NOT NULL, l_receiptdate DATE NOT NULL, "
    "l_shipinstruct CHAR(25) NOT NULL, l_shipmode CHAR(10) NOT NULL, "
    "l_comment VARCHAR(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber), "
    "FOREIGN KEY (l_orderkey) REFERENCES orders (o_orderkey)",
}

_TEXT_KEY = (
    "CREATE TABLE text_key (code VARCHAR(40) PRIMARY KEY, label VARCHAR(60), seen TIMESTAMP(3) "
    "NOT NULL DEFAULT CURRENT_TIMESTAMP(3), amount DOUBLE) "
    "DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_general_ci"
)
_COMPOSITE_KEY = (
    "CREATE TABLE composite_key (tenant VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, "
    "number BIGINT UNSIGNED NOT NULL, kind ENUM('a','b','c') NOT NULL, body BLOB, "
    "PRIMARY KEY (tenant, number))"
)
_NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"


def load(server: SqlServer, scale: float) -> None:
    """Make and fill all tables; TPC-H at `scale`, the extras in proportion."""
    load_tpch(server, scale)
    load_extras(server, max(2000, int(300_000 * scale)))


def load_tpch(server: SqlServer, scale: float) -> None:
    """Make TPC-H's eight tables with their keys and load them."""
    server.execute(f"CREATE DATABASE {TPCH}")
    connection = server.connect(database=TPCH, local_infile=True, autocommit=True)
    try:
        with tempfile.TemporaryDirectory() as folder, connection.cursor() as cursor:
            generator = str(Path(sys.executable).with_name("tpchgen-cli"))
            subprocess.run(
                [generator, "-s", str(scale), "--output-dir", folder],
                check=True,
                capture_output=True,
            )
            for table, columns in TPCH_TABLES.items():
                cursor.execute(f"CREATE TABLE {table} ({columns})")
                file = next(Path(folder).rglob(f"{table}.tbl"))
                cursor.execute(
                    f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table} "
                    "FIELDS TERMINATED BY '|' LINES TERMINATED BY '|\\n'"
                )
    finally:
        connection.close()


def load_extras(server: SqlServer, rows: int) -> None:
    """Make the two awkward tables with `rows` rows each."""
    server.execute(f"CREATE DATABASE {EXTRAS}")
    connection = server.connect(database=EXTRAS, autocommit=True)
    try:
        with connection.cursor() as cursor:
            cursor.execute(_TEXT_KEY)
            cursor.execute(_COMPOSITE_KEY)
            depth = (
                "max_recursive_iterations"
                if "mariadb" in server.version.lower()
                else "cte_max_recursion_depth"
            )
            cursor.execute(f"SET SESSION {depth} = {rows + 1}")
            numbers = _NUMBERS.format(count=rows)
            # Neighbours differ in case only in letters that the hash brings to the front.
            cursor.execute(
                f"INSERT INTO text_key (code, label, amount) {numbers} SELECT "
                "CONCAT(IF(i % 2, UPPER(LEFT(SHA2(i, 256), 6)), LEFT(SHA2(i, 256), 6)), '-', i, "
                "CASE i % 5 WHEN 0 THEN 'é' WHEN 1 THEN ' x' WHEN 2 THEN '''q' ELSE '' END), "
                "CONCAT('label ', i), i / 3 FROM n"
            )
            cursor.execute(
                f"INSERT INTO composite_key {numbers} SELECT IF(i % 50, 'main', 'other'), i, "
                "1 + i % 3, UNHEX(SHA2(i, 256)) FROM n"
            )
    finally:
        connection.close()
