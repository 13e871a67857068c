"""Empty data folders, initialised once per version and copied for each server.

Initialising takes seconds, a copy a tenth of one. The binary log is off while the folder is made,
so a new server's executed GTID set is empty and its log starts with the test's own statements.
Users are made in the same step: `root` without a password, and `USER`, whose password needs
escaping in a DSN and makes a client go through the whole of `caching_sha2_password`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from tests.servers.cache import cache_dir, made_once
from tests.servers.programs import Programs

USER = "cdc"
PASSWORD = "pa55/@:% word"

_USERS = f"""\
CREATE USER IF NOT EXISTS 'root'@'127.0.0.1';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;
"""
_MARIADB_TABLES = (
    "mysql_system_tables.sql",
    "mysql_performance_tables.sql",
    "mysql_system_tables_data.sql",
    "maria_add_gis_sp_bootstrap.sql",
    "mysql_sys_schema.sql",
)


class ServerSetupError(Exception):
    """A server did not initialise, start or stop; the message holds the end of its log."""


def as_root_option() -> list[str]:
    """Give the option a server wants before it runs as root, as in a container."""
    return ["--user=root"] if os.geteuid() == 0 else []


def template_datadir(programs: Programs) -> Path:
    """Give the data folder to copy for a new server of this version."""
    flavour = "mariadb" if programs.is_mariadb else "mysql"
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    folder = cache_dir() / "templates" / f"{flavour}-{programs.version}-{recipe}"
    make = _make_mariadb if programs.is_mariadb else _make_mysql
    return made_once(folder, lambda unfinished: make(programs, unfinished))


def _make_mysql(programs: Programs, folder: Path) -> None:
    users = folder.with_name(folder.name + ".sql")
    users.write_text(_USERS)
    options = [
        "--initialize-insecure",
        f"--datadir={folder}",
        f"--init-file={users}",
        "--innodb-redo-log-capacity=8M",
        "--disable-log-bin",
        "--mysqlx=OFF",
        "--secure-file-priv=NULL",
    ]
    _run([*programs.server_command(), *options, *as_root_option()])
    users.unlink()
    (folder / "auto.cnf").unlink(missing_ok=True)  # every copy shall get a server_uuid of its own


def _make_mariadb(programs: Programs, folder: Path) -> None:
    script = [
        "SET @auth_root_socket = NULL, @skip_auth_anonymous = 1;",
        "CREATE DATABASE mysql;",
        "CREATE DATABASE performance_schema;",
        "USE mysql;",
        *(programs.sql_file(name) for name in _MARIADB_TABLES),
        "FLUSH PRIVILEGES;",  # bootstrap runs without the grant tables until told to read them
        _USERS,
    ]
    options = [
        "--bootstrap",
        f"--datadir={folder}",
        "--innodb-log-file-size=8M",
        "--skip-log-bin",
        "--loose-enforce-storage-engine=",
        "--secure-file-priv=",
    ]
    _run([*programs.server_command(), *options, *as_root_option()], script="\n".join(script))


def _run(command: list[str], script: str = "") -> None:
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    if done.returncode != 0 or "ERROR" in done.stderr:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise ServerSetupError(f"initialising a data folder failed ({done.returncode}):\n{tail}")
