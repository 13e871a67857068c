"""An Airflow of its own: a home, a metadata database, its command line and its REST API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.said import Said

_POST = """
import json, sys
from fastapi.testclient import TestClient
from airflow.api_fastapi.app import create_app, get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
with TestClient(create_app(apps="core"), base_url="http://testserver") as client:
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="a", role="ADMIN"))
    said = []
    for path, status, body in json.load(sys.stdin):
        answer = client.post(path, json=body, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status, (answer.status_code, answer.text[:2000])
        said.append(answer.json())
print("\\n" + json.dumps(said))
"""


@dataclass(frozen=True)
class RealAirflow:
    """One Airflow; each call is a process, as a person's is."""

    home: Path

    @property
    def dags(self) -> Path:
        return self.home / "dags"

    def environment(self) -> dict[str, str]:
        """Return an environment that knows no connection of a pipeline."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "_AIRFLOW"))}
        return {
            **kept,
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db",
            "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of tests, long enough for its signature",
            "AIRFLOW__CORE__FERNET_KEY": "cGFzc3dvcmQtb2YtdGVzdHMtMzItYnl0ZXMtbG9uZyE=",
        }

    def run(self, *words: str) -> Said:
        """Run `airflow ...`."""
        return self._process("-m", "airflow", *words)

    def migrate(self) -> None:
        """Make the metadata database."""
        self.dags.mkdir(parents=True)
        done = self.run("db", "migrate")
        assert done.code == 0, done.err

    def add_by_command(self, name: str, uri: str) -> None:
        """Add a connection as a person does on the command line."""
        done = self.run("connections", "add", name, "--conn-uri", uri)
        assert done.code == 0, done.err

    def add_by_api(self, *connections: Mapping[str, Any]) -> None:
        """Add connections over the REST API, as the UI does."""
        self._post("/api/v2/connections", 201, connections)

    def test_by_api(self, *connections: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Press the test button of connections, and give what each says."""
        return self._post("/api/v2/connections/test", 200, connections)

    def _post(
        self, path: str, status: int, bodies: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        given = json.dumps([(path, status, body) for body in bodies])
        done = self._process("-c", _POST, given=given)
        assert done.code == 0, done.err
        said: list[dict[str, Any]] = json.loads(done.out.splitlines()[-1])
        return said

    def _process(self, *words: str, given: str = "") -> Said:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *words],
            env=self.environment(),
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        return Said(done.returncode, done.stdout, done.stderr)
