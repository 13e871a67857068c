"""The quick start of a lake, followed to the letter."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, blocks
from tests.servers.given import SqlServer

PAGE = DOCS / "quick_start_lake.md"


def test_whoever_follows_the_page_reads_the_current_rows(
    mysql_server: SqlServer, mysql_database: str, tmp_path: Path
) -> None:
    account, lake = f"qs_{secrets.token_hex(3)}", tmp_path / "lake"
    at = re.search(r"@([^/]+)/", mysql_server.dsn())
    assert at is not None

    def own(text: str) -> str:
        """Put in the server, the database, the account and the folder that there are here."""
        text = text.replace("'cdc'@'%'", f"'{account}'@'%'").replace("//cdc:", f"//{account}:")
        text = text.replace("@db1:3306/", f"@{at[1]}/").replace("/data/lake", str(lake))
        return re.sub(r"\bshop\b(?=[.`\"])", mysql_database, text)

    def said(*command: str) -> str:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    mysql_server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(9))", database=mysql_database
    )
    mysql_server.execute("INSERT INTO orders VALUES (1, 'one'), (2, NULL)", database=mysql_database)
    (sql,), (pipeline,) = blocks(PAGE, "sql"), blocks(PAGE, "yaml")
    (commands,), (reading,) = blocks(PAGE, "sh"), blocks(PAGE, "python")
    try:
        for statement in filter(str.strip, own(sql).split(";")):
            mysql_server.execute(statement)
        (tmp_path / "shop_lake.yaml").write_text(own(pipeline))
        told = said("bash", "-euo", "pipefail", "-c", own(commands))
        assert "equal: 1 table, 2 rows" in told
        query = own(reading).split('"""')[1].replace("orders", f'"{mysql_database}"."orders"')
        assert " ".join(query.split()) in " ".join(told.split())
        mysql_server.execute("DELETE FROM orders WHERE id = 1", database=mysql_database)
        said("bash", "-euo", "pipefail", "-c", own(commands))
        history, current = said(sys.executable, "-c", own(reading)).splitlines()
    finally:
        mysql_server.execute(f"DROP USER IF EXISTS '{account}'@'%'")
    assert history == "[('r', 1, 'one'), ('r', 2, None), ('d', 1, 'one')]"
    assert current == "[(2, None)]"
