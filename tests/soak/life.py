"""One pipeline as its user has it: a file, commands, and a continuous run that may be killed.

Its source is written to all the while, but for the moments in which both sides are compared.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName
from airflow_cdc_provider.core.positions import LogPosition
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.systems.registry import open_source
from tests.end_to_end.compare import differences
from tests.servers.given import SqlServer

_FILE = """\
pipeline: {name}
source: {{dsn_env: SOAK_SOURCE, tables: [{tables}], server_id: 5700-5719}}
sink:
  {{type: mysql, dsn_env: SOAK_SINK, existing_rows: replace, route: {{"{source}.*": "{sink}.*"}}}}
state: {{dsn_env: SOAK_STATE}}
snapshot: {{split_rows: 200}}
stream: {{mode: continuous}}
"""
_PATIENCE_S = 120.0


@dataclass
class Life:
    """A pipeline, its servers, and who is at work."""

    source: SqlServer
    sink: SqlServer
    source_database: str
    sink_database: str
    folder: Path
    rng: random.Random
    tables: tuple[str, ...]
    store: SqlStateStore = field(init=False)
    _owner: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        state = f"sqlite:///{self.folder / 'state.db'}"
        self.name = PipelineName(f"soak_{self.sink_database}")
        self.environment = {
            **os.environ,
            "SOAK_SOURCE": self.source.dsn(),
            "SOAK_SINK": self.sink.dsn(),
            "SOAK_STATE": state,
            "XDG_STATE_HOME": str(self.folder),
        }
        self.store = open_store(state)
        self.pick(*self.tables)

    @property
    def file(self) -> Path:
        return self.folder / "soak.yaml"

    def pick(self, *tables: str) -> None:
        """Have the file pick these tables."""
        self.tables = tables
        names = ", ".join(f'"{self.source_database}.{table}"' for table in tables)
        text = _FILE.format(
            name=self.name, tables=names, source=self.source_database, sink=self.sink_database
        )
        self.file.write_text(text, encoding="utf-8")

    # --- who is at work -------------------------------------------------------------------------

    def begin(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a command in a process of its own."""
        words = [sys.executable, "-m", "airflow_cdc_provider", command, str(self.file), *options]
        with self.told.open("ab") as told:
            told.write(f"--- {command} {' '.join(options)}\n".encode())
            told.flush()
            return subprocess.Popen(
                words, env=self.environment, stdin=subprocess.DEVNULL, stdout=told, stderr=told
            )

    def say(self, command: str, *options: str) -> int:
        """Run a command to its end; returns its exit code."""
        return self.begin(command, *options).wait(_PATIENCE_S)

    def insist(self, command: str, *options: str, codes: tuple[int, ...] = (0,)) -> None:
        """Give a command until it is heard: it is refused while another owner is just beginning."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.say(command, *options) not in codes:
            assert time.monotonic() < deadline, f"{command}: {self.last_words}"
            time.sleep(1)

    def stream(self) -> None:
        """Let somebody be at work, unless somebody is."""
        if self._owner is None or self._owner.poll() is not None:
            self._owner = self.begin("run", "--master", "local[1]")

    def kill_owner(self) -> None:
        """Kill who is at work, with all it has started."""
        if self._owner is not None:
            kill(self._owner)
            self._owner = None

    @property
    def told(self) -> Path:
        return self.folder / "told.txt"

    # --- waiting --------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, while somebody is at work; one that ends by itself is followed by another."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.last_words}"
            self.stream()
            time.sleep(0.1)

    def is_closed(self, request_id: str) -> bool:
        found = self.store.request(self.name, request_id)
        return found is not None and not found.status.is_open

    def is_quiet(self) -> bool:
        """Tell whether nothing is asked of the pipeline, and every table is consistent."""
        stream = self.store.stream(self.name)
        asked = self.store.requests(self.name, only_open=True)
        return stream is not None and not asked and not stream.inconsistent

    @property
    def last_words(self) -> str:
        return self.told.read_text(errors="replace")[-4000:]

    # --- the oracle -----------------------------------------------------------------------------

    def assert_equal(self) -> None:
        """Compare both sides at the position where the source is now; nobody may write to it."""
        end = self.end_of_log()

        def is_there() -> bool:
            stream = self.store.stream(self.name)
            return self.is_quiet() and stream is not None and stream.position.reaches(end)

        self.wait_until(is_there, f"the stream does not reach {end}")
        pairs = {
            f"{self.source_database}.{table}": f"{self.sink_database}.{table}"
            for table in self.tables
        }
        assert differences(self.source, self.sink, pairs) == [], f"at {end}"

    def end_of_log(self) -> LogPosition:
        """Ask the source how far it is, behind a change that the stream has to commit."""
        self.source.execute(
            f"REPLACE INTO {self.tables[0]} (id) VALUES (-1)", database=self.source_database
        )
        source = open_source(Endpoint.parse(self.source.dsn()))
        with closing(source.log_end(purpose="test")) as log_end:
            return log_end.now()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all it has started."""
    with suppress(psutil.Error):
        every = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for each in every:
            with suppress(psutil.Error):
                each.kill()
    process.kill()
    process.wait()


@contextmanager
def living(life: Life) -> Iterator[Life]:
    try:
        yield life
    finally:
        life.kill_owner()
        life.store.close()
