"""From the pipeline file's `notify` to receivers that one can send to.

Airflow's connections are read as its own providers read them: `http`, `slackwebhook` and `smtp`. A
command of Airflow stores such a type as `generic` where no installed provider brings it. Other
types are refused. What a connection says about how the receiver is reached is obeyed or refused,
never dropped. No error repeats a URL: whoever has a webhook's URL can write to it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from airflow_cdc_provider.core.errors import CdcError
from airflow_cdc_provider.pipeline.connection_fields import ConnectionFields
from airflow_cdc_provider.pipeline.connections import Connections
from airflow_cdc_provider.pipeline.file.model import (
    EmailSection,
    NotifySection,
    Reference,
    UrlReference,
)
from airflow_cdc_provider.pipeline.file.problems import Path

_SLACK = "https://hooks.slack.com/services"
_HTTP_OPTIONS = frozenset(
    {
        "allow_redirects", "cert", "check_response", "max_redirects", "proxies", "proxy", "stream",
        "timeout", "trust_env", "verify",
    }
)  # fmt: skip
"""What Airflow's HTTP hook takes from the extra for itself; all else there are headers."""
_UNKNOWN_TYPES = frozenset({"generic", ""})
"""What Airflow makes of a type that no installed provider brings, and of none."""
_HTTP_TYPES = frozenset({"http", "https"}) | _UNKNOWN_TYPES
_SLACK_TYPES = frozenset({"slackwebhook"}) | _HTTP_TYPES
_MAIL_TYPES = frozenset({"smtp", "email"}) | _UNKNOWN_TYPES
_KEYS = ("conn_id", "url_env", "dsn_env")
"""What names a receiver; one of them is written."""
_PORTS = {"tls": 465, "starttls": 587, "none": 25}
_SECRET_HEADER = re.compile(r"auth|token|key|secret|pass|cookie|sign", re.IGNORECASE)
_SECRET_PIECE = re.compile(r"(?=.*[A-Z0-9]).{8,}|.{16,}")
"""Other pieces of a URL are words, such as `services`, which stand in harmless texts as well."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL that receives notifications by POST; `repr` hides it."""

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def secrets(self) -> frozenset[str]:
        """Return the texts to be hidden: the URL, its secret pieces, and secret headers."""
        parts = urlsplit(self.url)
        pieces = {parts.path, parts.query, *re.split(r"[/=&]", f"{parts.path}&{parts.query}")}
        found = {piece for piece in pieces if _SECRET_PIECE.fullmatch(piece)}
        for name, value in self.headers.items():
            if value and _SECRET_HEADER.search(name):
                found |= {value, value.split()[-1]}
        return frozenset({self.url, *found})


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A mail server, with sender and receivers of the mail."""

    name: str
    host: str
    port: int
    security: Literal["tls", "starttls", "none"]
    sender: str
    to: tuple[str, ...]
    login: str = ""
    password: str = field(default="", repr=False)

    @property
    def secrets(self) -> frozenset[str]:
        """Return the texts to be hidden: the password, also as SMTP encodes it."""
        coded = b64encode(self.password.encode()).decode()
        plain = b64encode(f"\0{self.login}\0{self.password}".encode()).decode()
        return frozenset({self.password, coded, plain}) if self.password else frozenset()


Receiver = Webhook | Mailbox
Wrong = tuple[Path, str, str]
"""A key of the file, what is wrong with what it names, and the fix."""


class _WrongReceiverError(ValueError):
    """Raised for a connection or variable from which no receiver can be made."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what, fix)
        self.what, self.fix = what, fix


def find_receivers(
    notify: NotifySection | None, connections: Connections | None
) -> tuple[tuple[Receiver, ...], tuple[Wrong, ...]]:
    """Return the receivers of notifications, and the problems of those that cannot be made."""
    if notify is None or connections is None:
        return (), ()
    found: list[Receiver] = []
    wrong: list[Wrong] = []
    for name, section, make in _named(notify, connections):
        try:
            found.append(make())
        except _WrongReceiverError as error:
            key = next(key for key, value in section if value is not None and key in _KEYS)
            wrong.append((("notify", name, key), error.what, error.fix))
    return tuple(found), tuple(wrong)


def _named(
    notify: NotifySection, connections: Connections
) -> Iterator[tuple[str, UrlReference | Reference, Callable[[], Receiver]]]:
    """Yield the file's receivers: name, section, and the function that makes each."""
    webhook, slack, email = notify.webhook, notify.slack, notify.email
    if webhook is not None:
        yield "webhook", webhook, lambda: _webhook("webhook", webhook, connections)
    if slack is not None:
        yield "slack", slack, lambda: _webhook("slack", slack, connections)
    if email is not None:
        yield "email", email, lambda: _mailbox(email, connections)


def _webhook(name: str, section: UrlReference, connections: Connections) -> Webhook:
    """Make the receiver of a webhook section, from a variable or a connection."""
    if section.url_env is not None:
        return _of_url(name, _variable(connections, section.url_env))
    fields = _fields(connections, section.conn_id or "")
    if name == "slack":
        _require_type(fields, _SLACK_TYPES, wanted="slackwebhook")
        return _of_slack(fields)
    _require_type(fields, _HTTP_TYPES, wanted="http")
    return _of_http(name, fields)


def _require_type(fields: ConnectionFields, types: frozenset[str], *, wanted: str) -> None:
    """Refuse a connection of another type: it was made for something else."""
    if fields.kind not in types:
        raise _WrongReceiverError(
            f"connection {fields.conn_id!r} is of type {fields.kind!r}",
            f"name one of type {wanted}; where no provider of Airflow brings that type, its "
            "command line stores it as generic, which will do as well",
        )


def _of_slack(fields: ConnectionFields) -> Webhook:
    """Make a webhook from the fields of a connection of Slack's, or of the URL of one."""
    is_token = fields.kind == "slackwebhook" or (fields.kind in _UNKNOWN_TYPES and not fields.login)
    if is_token and fields.password:  # elsewhere it is no part of a URL
        _require_no_options(fields)
        token = fields.password
        return _of_url("slack", token if "://" in token else f"{_slack_base(fields)}/{token}")
    if not fields.host:
        raise _WrongReceiverError(
            f"connection {fields.conn_id!r} has no token",
            "write T.../B.../..., or the webhook's whole URL, as its password",
        )
    return _of_http("slack", fields)


def _slack_base(fields: ConnectionFields) -> str:
    """Return the base URL of Slack's webhooks that a connection names."""
    if not fields.host:
        return _SLACK
    host = fields.host if "://" in fields.host else f"{fields.schema or 'https'}://{fields.host}"
    port = f":{fields.port}" if fields.port else ""
    return f"{host.rstrip('/')}{port}"


def _of_http(name: str, fields: ConnectionFields) -> Webhook:
    """Make a webhook from the fields of an HTTP connection."""
    _require_no_options(fields)
    if not fields.host:
        raise _WrongReceiverError(
            f"connection {fields.conn_id!r} names no host", "write the URL's host, or all of it"
        )
    scheme, path = "https" if fields.kind == "https" else "http", ""
    if fields.schema in {"http", "https"}:
        scheme = fields.schema
    elif fields.schema:
        path = f"/{fields.schema.lstrip('/')}"
    port = f":{fields.port}" if fields.port else ""
    host = fields.host if "://" in fields.host else f"{scheme}://{fields.host}{port}{path}"
    made = _of_url(name, host)
    headers = {key: str(value) for key, value in fields.extra.items()}
    if fields.login:
        headers["Authorization"] = _basic(fields.login, fields.password)
    return Webhook(name, made.url, {**made.headers, **headers})


def _require_no_options(fields: ConnectionFields) -> None:
    """Refuse what the extra says about how the receiver is reached."""
    options = sorted(_HTTP_OPTIONS & fields.extra.keys())
    if options:
        raise _WrongReceiverError(
            f"the extra of connection {fields.conn_id!r} has {', '.join(options)}, which is not "
            "obeyed here",
            "leave it out; what else is in the extra is sent as headers",
        )


def _of_url(name: str, url: str) -> Webhook:
    """Make a webhook from a URL; a login in it becomes a header."""
    parts = _split(url.strip())
    if parts is None:
        raise _WrongReceiverError(
            "what it holds is no URL", "write it whole, as in https://host/path"
        )
    account, _, place = parts.netloc.rpartition("@")
    login, _, password = account.partition(":")
    headers = {"Authorization": _basic(unquote(login), unquote(password))} if account else {}
    return Webhook(name, urlunsplit(parts._replace(netloc=place, fragment="")), headers)


def _split(url: str) -> SplitResult | None:
    """Split a URL to which notifications can be sent, None if it is no such URL."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_one and url.isascii() and url.isprintable() and " " not in url else None


def _basic(login: str, password: str) -> str:
    """Return the header value of HTTP basic authentication."""
    return f"Basic {b64encode(f'{login}:{password}'.encode()).decode()}"


def _mailbox(section: EmailSection, connections: Connections) -> Mailbox:
    """Make the receiver of the email section, from a variable or a connection."""
    if section.dsn_env is not None:
        fields = _read(section.dsn_env, _variable(connections, section.dsn_env))
    else:
        fields = _fields(connections, section.conn_id or "")
        _require_type(fields, _MAIL_TYPES, wanted="smtp")
    extra = fields.extra
    sender = section.sender or str(extra.get("from_email") or "")
    if not fields.host or not sender:
        raise _WrongReceiverError(
            f"{fields.conn_id!r} names no {'sender' if fields.host else 'host'}",
            "write notify.email.sender, or from_email in the connection's extra"
            if fields.host
            else "write the mail server's name or address as its host",
        )
    if str(extra.get("auth_type") or "basic") != "basic" or extra.get("ssl_context") == "none":
        raise _WrongReceiverError(
            f"{fields.conn_id!r} asks for OAuth2, or for a server that is not verified",
            "give it a login and a password, and a certificate that this machine trusts",
        )
    security: Literal["tls", "starttls", "none"] = "tls"
    if _is(extra.get("disable_ssl")):
        security = "none" if _is(extra.get("disable_tls")) else "starttls"
    return Mailbox(
        "email",
        fields.host,
        fields.port or _PORTS[security],
        security,
        sender,
        section.to,
        fields.login,
        fields.password,
    )


def _read(name: str, text: str) -> ConnectionFields:
    """Read a connection from a variable's text."""
    try:
        return ConnectionFields.read(name, text)
    except CdcError as error:
        raise _WrongReceiverError(error.what, error.remedy) from None


def _variable(connections: Connections, name: str) -> str:
    """Return the text of an environment variable, which must be set."""
    found = connections(Reference(dsn_env=name))
    if not found:
        raise _WrongReceiverError(
            f"the environment variable {name} is not set", f"export {name}, with the whole URL"
        )
    return found


def _fields(connections: Connections, conn_id: str) -> ConnectionFields:
    """Return the fields of an Airflow connection, which must exist."""
    try:
        found = connections.fields(conn_id)
    except CdcError as error:
        raise _WrongReceiverError(error.what, error.remedy) from None
    if found is None:
        raise _WrongReceiverError(
            f"there is no connection {conn_id!r}",
            f"add it to Airflow; outside Airflow set AIRFLOW_CONN_{conn_id.upper()}",
        )
    return found


def _is(value: Any) -> bool:
    """Tell whether a setting is true."""
    return str(value).lower() in {"true", "1", "yes"}
