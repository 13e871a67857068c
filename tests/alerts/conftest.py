"""Real receivers on this machine, and a pipeline whose state is set as a driver would."""

from __future__ import annotations

import base64
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_string
from email.message import Message as Mail
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.lifecycle import Phase
from airflow_cdc_provider.core.owners import this_process
from airflow_cdc_provider.core.records import NoteKind, StreamState
from airflow_cdc_provider.core.stored_error import StoredError
from airflow_cdc_provider.core.stream_split import StreamSplit
from airflow_cdc_provider.state.store import SqlStateStore, open_store
from airflow_cdc_provider.systems.mysql.positions.position import BinlogPosition, MySqlPosition
from tests.behaviours.state_behaviours import plan_of

SHOP = PipelineName("shop")
ORDERS, CUSTOMERS = TableId("shop", "orders"), TableId("shop", "customers")
TOKEN = "planted0secret0token"
PATH = f"/hooks/{TOKEN}"
_US = 1_000_000


@dataclass
class HttpReceiver:
    """A web server that keeps what it is sent."""

    port: int = 0
    answer: int = 204
    hangs: bool = False
    asked: int = 0
    got: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PATH}"

    @property
    def kinds(self) -> list[tuple[str, bool]]:
        return [(one["kind"], one["over"]) for one in self.got]


@contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    made = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.asked += 1
            if made.hangs:
                made.released.wait(60)
                return
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if made.answer < 300 and self.path == PATH:
                made.got.append(json.loads(body))
                made.headers.append(dict(self.headers))
            self.send_response(made.answer if self.path == PATH else 404)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield made
        made.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as made:
        yield made


@dataclass
class MailServer:
    """A mail server that keeps mail, and wants a password if it is given one."""

    port: int = 0
    password: str = ""
    refused: str = ""
    got: list[Mail] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    made = MailServer()

    class Session(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            self.say("220 local")
            while line := self.rfile.readline().decode().strip():
                verb = line[:4].upper()
                if verb == "EHLO":
                    self.say("250-local\r\n250 AUTH PLAIN")
                elif verb == "AUTH":
                    given = base64.b64decode(line.split()[-1]).decode().split("\0")[-1]
                    self.say("235 fine" if given == made.password else f"535 no: {line}")
                elif verb == "RCPT":
                    is_refused = bool(made.refused) and made.refused in line
                    made.recipients += [] if is_refused else [line]
                    self.say("550 nobody" if is_refused else "250 fine")
                elif verb == "DATA":
                    self.say("354 go on")
                    body: list[str] = []
                    while (text := self.rfile.readline().decode()) != ".\r\n":
                        body.append(text)
                    made.got.append(message_from_string("".join(body)))
                    self.say("250 fine")
                else:
                    self.say("221 bye" if verb == "QUIT" else "250 fine")
                    if verb == "QUIT":
                        return

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield made
        server.shutdown()
        thread.join()


@dataclass
class ShopState:
    """A pipeline's state as its driver and people leave it, at a time that a test sets."""

    store: SqlStateStore
    dsn: str
    generation: int = 0
    ahead_us: int = 0

    def clock_us(self) -> int:
        return time.time_ns() // 1000 + self.ahead_us

    def later(self, seconds: float) -> None:
        """Let time pass; the driver is still at work."""
        self.ahead_us += int(seconds * _US)
        self.beat()

    def streaming(self, owner: str = "somebody") -> None:
        self.generation = self.store.take_over(SHOP, owner).generation
        phase = self.store.ensure(SHOP).phase
        if phase is Phase.NEW:
            for to in (Phase.PLANNING, Phase.SNAPSHOT, Phase.HANDED_OFF):
                self.store.move(SHOP, self.generation, expected=phase, to=to)
                phase = to
            self.store.store_hand_off(SHOP, self.generation, StreamSplit(_at(4), None, ()))
            self.store.start_plan(SHOP, self.generation, "plan-1", [plan_of(ORDERS)])
            phase = self.store.ensure(SHOP).phase
        self.store.move(SHOP, self.generation, expected=phase, to=Phase.STREAMING)
        self.beat()

    def beat(self, **changes: Any) -> None:
        told: dict[str, Any] = {"heartbeat_us": self.clock_us(), "lag_us": 0, **changes}
        self.store.renew_lease(SHOP, self.generation, lease_s=60)
        self.store.beat(SHOP, self.generation, StreamState(_at(4), **told))

    def failed(self, error: CdcError) -> None:
        phase = self.store.ensure(SHOP).phase
        self.store.move(
            SHOP, self.generation, expected=phase, to=Phase.FAILED, error=StoredError.of(error)
        )
        self.store.release_lease(SHOP, self.generation)

    def outage(self, *errors: Any, for_s: float = 90) -> None:
        since_us = self.clock_us() - int(for_s * _US)
        outages = [
            {"part": "work", "error": error.to_json(), "since_us": since_us, "tries": 3}
            | {"next_us": 0}
            for error in errors
        ]
        form = {"generation": self.generation, "process": this_process(), "outages": outages}
        self.store.keep_note(SHOP, NoteKind.OUTAGES, form)

    def warnings(self) -> list[str]:
        return [each.text for each in self.store.events(SHOP) if each.level == "warning"]


def _at(offset: int) -> MySqlPosition:
    return MySqlPosition("server", BinlogPosition(1, offset))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[ShopState]:
    dsn = f"sqlite:///{tmp_path}/state.db"
    store = open_store(dsn)
    made = ShopState(store, dsn)
    store._clock = made.clock_us
    made.streaming()
    yield made
    store.close()


def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
