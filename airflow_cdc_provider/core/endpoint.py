"""Where a server is and how to get in, read from a DSN in the form of Airflow's connection URIs."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_KNOWN = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_disabled", "ssl_verify_identity", "unix_socket"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server and one account. The password never shows in a repr."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str = ""
    unix_socket: str = ""
    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    ssl_disabled: bool = False
    ssl_verify_identity: bool = True

    @classmethod
    def parse(cls, dsn: str) -> Endpoint:
        """Read `mysql://user:password@host:port/database?ssl_ca=...`, URL-encoded.

        The error never repeats the DSN, because it holds a password.
        """
        parts = urlsplit(dsn)
        if parts.scheme not in {"mysql", "mariadb"} or not parts.hostname:
            raise ValueError(
                "a source or sink DSN looks like mysql://user:password@host:3306/?ssl_ca=...; "
                f"this one begins with {parts.scheme or 'no scheme'}://"
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(options.keys() - _KNOWN)
        if unknown:
            raise ValueError(f"unknown DSN options {unknown}; known are {sorted(_KNOWN)}")
        return cls(
            host=parts.hostname,
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=unquote(parts.path.lstrip("/")),
            unix_socket=options.get("unix_socket", ""),
            ssl_ca=options.get("ssl_ca", ""),
            ssl_cert=options.get("ssl_cert", ""),
            ssl_key=options.get("ssl_key", ""),
            ssl_disabled=_flag(options, "ssl_disabled", default=False),
            ssl_verify_identity=_flag(options, "ssl_verify_identity", default=True),
        )

    @property
    def is_loopback(self) -> bool:
        """Tell whether traffic to this server stays on this machine."""
        return bool(self.unix_socket) or self.host in _LOOPBACK

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"


def _flag(options: dict[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, "").lower()
    if not text:
        return default
    if text not in _FLAGS:
        raise ValueError(f"DSN option {name} is true or false, not {text!r}")
    return _FLAGS[text]
