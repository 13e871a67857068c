"""The one grammar of DSNs: `scheme://user:password@host:port/path?option=value`, URL-encoded.

Python's own splitter is not used: its errors repeat what they refuse, and it takes what stands
before a `/`, `?` or `#` in a password that is not encoded for host and port, which are then shown.
What cannot be read is a `DsnError`, and none of its text is ever repeated. Whatever a password may
hold, the `@` of a whole DSN comes after it: an `@` behind host and port means that they are none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*")
_PARTS = re.compile(r"([^/?#]*)(?:/([^?#]*))?(?:\?([^#]*))?")
_PLACE = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]*))(?::([0-9]{1,5}))?")
TOKEN_OPTION = "aws_session_token"  # noqa: S105 - the name of an option
"""An option whose value is as secret as a password."""
CATALOG_OPTION = "catalog_dsn"
"""An option whose value is a DSN itself."""
_ENCODE = "write /, ?, #, @ and % of user and password URL-encoded, such as %2F for / and %40 for @"


class DsnError(ValueError):
    """Raised for a text that is no DSN; the message never repeats any of the text."""


@dataclass(frozen=True, slots=True)
class Dsn:
    """The parts of a DSN, decoded."""

    scheme: str
    host: str
    port: int | None
    user: str
    password: str = field(repr=False)
    path: str
    """Without the slash before it."""
    options: Mapping[str, str] = field(repr=False)

    def text(self) -> str:
        """Return the DSN as text, URL-encoded; `parse_dsn` reads that back."""
        account = quote(self.user, safe="")
        if self.password:
            account += f":{quote(self.password, safe='')}"
        # the address of IPv6 is written in brackets
        host = f"[{self.host}]" if ":" in self.host and self.host[0] != "[" else self.host
        port = f":{self.port}" if self.port else ""
        path, query = quote(self.path, safe=""), urlencode(self.options)
        return (
            f"{self.scheme}://{account and account + '@'}{host}{port}/{path}{query and '?' + query}"
        )


def parse_dsn(text: str) -> Dsn:
    """Read a DSN, or raise `DsnError`."""
    scheme, mark, rest = text.strip().partition("://")
    if not mark or not _SCHEME.fullmatch(scheme):
        raise DsnError("it does not begin with a scheme and ://")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in rest):
        raise DsnError("it has a control character, such as the end of a line")
    parts = _PARTS.fullmatch(rest)
    if parts is None:
        raise DsnError(f"it has a # that is not URL-encoded: {_ENCODE}")
    authority, path, query = (parts[group] or "" for group in (1, 2, 3))
    if "@" in path or "@" in query:
        raise DsnError(f"an @ stands behind the first / or ?: {_ENCODE}")
    account, _, place = authority.rpartition("@")
    user, _, password = account.partition(":")
    host, port = _host_and_port(place)
    return Dsn(
        scheme=scheme.lower(),
        host=host,
        port=port,
        user=unquote(user),
        password=unquote(password),
        path=unquote(path),
        options=dict(parse_qsl(query, keep_blank_values=True)),
    )


def _host_and_port(place: str) -> tuple[str, int | None]:
    """Parse host and port of a DSN; `DsnError` if they are wrong."""
    found = _PLACE.fullmatch(place)
    if found is None:
        raise DsnError(f"what stands for host and port is neither: {_ENCODE}")
    port = int(found[3]) if found[3] else None
    if port is not None and port > 65_535:
        raise DsnError("its port is greater than 65535")
    return (found[1] or found[2]).lower(), port


def passwords_in(text: str) -> frozenset[str]:
    """Return each part of a DSN that may be the password, also where the DSN is malformed."""
    if text.startswith("sqlite:"):
        return frozenset()  # a path, in which an @ is a letter
    try:
        dsn = parse_dsn(text)
    except DsnError:
        # all that stands between the first colon and the last @, and each piece that an error
        # of someone else's might show
        account = text.partition("://")[2].rpartition("@")[0] or text
        password = account.partition(":")[2] or account
        pieces = re.split(r"[/?#@:\[\]]", password)
        return frozenset(piece for piece in (password, *pieces) if len(piece) > 2)
    written = text.partition("://")[2].rpartition("@")[0].partition(":")[2]
    found = (dsn.password, written, dsn.options.get(TOKEN_OPTION, ""))
    inner = passwords_in(dsn.options[CATALOG_OPTION]) if CATALOG_OPTION in dsn.options else ()
    encoded = (quote(each, safe="") for each in inner)
    return frozenset(each for each in (*found, *inner, *encoded) if each)
