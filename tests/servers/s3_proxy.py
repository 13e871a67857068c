"""A proxy before a server that speaks S3, which does to single requests what a test says."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.s3 import S3Server

Rule = Callable[["Request"], str]
"""What is done to a request: one of the names below, or nothing for an empty text."""
DROP_ANSWER, DENY, NOT_IMPLEMENTED, STRIP = "drop answer", "deny", "not implemented", "strip"
FAIL_AFTERWARDS, EXPIRED, DENY_EACH = "fail afterwards", "expired", "deny each"
_ANSWERS = {
    DENY: (403, "AccessDenied", "Access Denied"),
    EXPIRED: (400, "ExpiredToken", "The provided token has expired."),
    NOT_IMPLEMENTED: (501, "NotImplemented", "A header implies what is not implemented"),
}
_EACH = """<?xml version="1.0" encoding="UTF-8"?>
<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Error><Key>{key}</Key>\
<Code>AccessDenied</Code><Message>Access Denied</Message></Error></DeleteResult>"""
"""S3's answer, of status 200, to who may not delete the files that a request names."""
_ERROR = "<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>{text}</Message></Error>"


@dataclass
class Request:
    """A request as the proxy gets it."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def is_put(self) -> bool:
        return self.method == "PUT"


@dataclass
class Proxy:
    """A proxy that obeys a rule."""

    server: S3Server
    behind: S3Server
    rule: Rule = field(default=lambda _: "")
    seen: list[Request] = field(default_factory=list)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: Proxy


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def _any(self) -> None:
        proxy = self.server.proxy
        request = Request(self.command, self.path, dict(self.headers.items()))
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy.seen.append(request)
        does = proxy.rule(request)
        if does in _ANSWERS:
            self._say(*_ANSWERS[does])
            return
        if does == DENY_EACH:
            key = content.partition(b"<Key>")[2].partition(b"</Key>")[0].decode()
            body = _EACH.format(key=key).encode()
            self.send_response(200)
            self._end(str(len(body)), body)
            return
        if does == STRIP:
            request.headers.pop("if-none-match", None)
            request.headers.pop("If-None-Match", None)
        answer, text = self._forward(request, content)
        if does == DROP_ANSWER:
            self.close_connection = True
        elif does == FAIL_AFTERWARDS:
            self._say(500, "InternalError", "We encountered an internal error")
        else:
            self._pass_on(answer, text)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _any  # noqa: N815

    def _forward(self, request: Request, content: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.server.proxy.behind.port, timeout=20
        )
        with closing(connection):
            connection.request(request.method, request.path, content, request.headers)
            answer = connection.getresponse()
            return answer, answer.read()

    def _pass_on(self, answer: http.client.HTTPResponse, text: bytes) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"connection", "transfer-encoding", "content-length"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self._end(length or str(len(text)), text)

    def _say(self, status: int, code: str, text: str) -> None:
        body = _ERROR.format(code=code, text=text).encode()
        self.send_response(status)
        self._end(str(len(body)), body)

    def _end(self, length: str, body: bytes) -> None:
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def before(behind: S3Server) -> Iterator[Proxy]:
    """Run a proxy until the block ends."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.proxy = Proxy(S3Server(server.server_address[1]), behind)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.proxy
        finally:
            server.shutdown()
            thread.join()
