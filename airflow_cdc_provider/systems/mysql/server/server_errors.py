"""What a server's error number means for us: each becomes the error whose remedy fits.

Numbers are the servers' own; both families share those below 1900, MariaDB adds 1900-1999 and
4000 up, MySQL 3000 up. A number that is not known is an `IntegrityError` (law 9): nothing is
retried on a guess. The server's text is kept, because it names the key or the table, and the
password is taken out of it in case it was ever part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

import pymysql

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import (
    ACCEPT_PURGED,
    RESET,
    UNHARMED,
    AccessDeniedError,
    CdcError,
    CorruptLogError,
    IntegrityError,
    LogPurgedError,
    RefusedError,
    RetryableError,
    RowRefusedError,
    SchemaMovedError,
    SinkBusyError,
    SinkUnreachableError,
    SnapshotRequiredError,
    SourceIdentityError,
    SourceUnreachableError,
)
from airflow_cdc_provider.systems.mysql.dialect.sql_tokens import TokenKind, tokens


class Role(StrEnum):
    """The side of the copy that a server is on: source or sink."""

    SOURCE = "source"
    SINK = "sink"


_CLIENT = range(2000, 2060)
_TLS_SIGNS = ("CERTIFICATE_VERIFY_FAILED", "SSL is required", "certificate verify failed")
_UNREACHABLE = {
    *range(2000, 2060),  # the client library's: cannot connect, gone away, lost
    0,  # PyMySQL's for a connection that is closed already
    1040,  # too many connections
    1053,  # shutdown in progress
    1077,
    1078,  # the server got a signal
    1079,
    1080,
    1135,  # the server can start no thread for us
    1152,
    *range(1154, 1162),  # packets lost, network timeouts
    1184,
    1203,  # the account has too many connections
    1226,  # the account's hourly resources
    1317,  # query interrupted
    1836,  # read-only mode
    1927,  # MariaDB: connection was killed
    3032,  # offline mode
    3168,  # the server is not available
    3169,  # session was killed
    4031,  # disconnected for inactivity
} - {2014, 2054, 2059}
_BUSY = {
    1020,  # MariaDB: the row changed since this transaction's snapshot
    *(1180, 1205, 1206, 1213, 1613, 1614, 1637, 3058, 3101, 3572),
}
_LATER = {
    1021,  # disk full
    1026,  # an error on writing a file, such as no space
    1037,  # out of memory
    1041,  # out of memory, or of what the system gives a process
    1030,  # the engine's own error, such as no space
    1114,  # table is full
    1197,  # the transaction outgrew the log cache
    1461,  # too many prepared statements
    1969,  # MariaDB: max_statement_time
    3024,  # max_execution_time
}
_DENIED = {
    1044,
    1045,
    1095,
    1129,  # host is blocked after many errors
    1130,  # host is not allowed
    1142,
    1143,
    1227,
    1251,
    1370,
    1396,
    1410,
    1698,
    1820,  # password must be changed first
    1862,
    1873,
    2054,
    2059,
    3118,  # account locked
    3159,  # only secure transport
    3955,
    4151,
}
_ROW = {
    1048,
    1062,
    1118,
    1136,
    1138,
    1153,
    1216,
    1217,
    1263,
    1264,
    1265,
    1292,
    1300,
    1301,
    1364,
    1365,
    1366,
    1367,
    1406,
    1411,
    1416,
    1441,
    1451,
    1452,
    1526,
    1557,
    1586,
    1690,
    1748,
    3105,
    3140,
    3141,
    3144,
    3156,
    3157,
    3819,
    4025,
}
_REFUSED = {
    *(1007, 1008, 1046, 1049, 1050, 1051, 1054, 1064, 1072, 1091, 1146, 1193, 1231, 1290),
    *(1071, 1075, 1115, 1170, 1235, 1273, 1286, 1506, 3109, 4161),  # a definition it cannot have
    *(1005, 1215, 1822, 1823, 1824, 1825, 1826, 3780),  # a foreign key it cannot have
}
_TABLE_MOVED = {1176, 1412, 1615}
_LOG = {1220, 1236, 1789}

_REFUSALS: tuple[type[CdcError], ...] = (AccessDeniedError, RefusedError, IntegrityError)
_LONGEST_READ = 1000
_LONGEST_SHOWN = 300
_GRANTS_REMEDY = (
    "check user and password, and the account's grants: those it needs are on the page "
    "'Rights at the servers' (docs/rights.md)"
)

_NO_SUCH_TABLE = 1146
_GONE = {
    Role.SOURCE: "bring the table back, or grant the account SELECT on it, and run; or leave it "
    "out of the pipeline file's `tables`, and `remove` it with --table: the others stay read",
    Role.SINK: "`reset` with --table and run: it alone is made anew and read; or bring it back "
    "with its rows, and `resume` with --table",
}


def translated(
    error: pymysql.Error, where: str, *, role: Role = Role.SOURCE, statement: str = ""
) -> CdcError:
    """Return an error of the server or client library as ours, with the remedy that fits.

    A statement that the server refused is named, without the values in it.
    """
    number, text = _number_and_text(error)
    kind, remedy = _kind(number, text, role)
    what = f"the {role} answered error {number}: {text}" if number else f"the {role}: {text}"
    if statement and kind in _REFUSALS and number not in _CLIENT:
        what += f"; the statement was: {without_values(statement)}"
    is_sinks_table = (number, role) == (_NO_SUCH_TABLE, Role.SINK)
    risk = "the table's rows at the sink are gone with it" if is_sinks_table else _risk(kind)
    found = kind(what, where, risk, remedy)
    found.server_error = number
    return found


def without_values(statement: str) -> str:
    """Return the beginning of a statement with a `?` in place of each value."""
    words: list[str] = []
    end = 0
    for token in tokens(statement[:_LONGEST_READ]):
        is_value = token.kind is TokenKind.STRING or token.text[:1].isdigit()
        text = "?" if is_value else statement[token.start : token.end]
        words.append(text if token.start == end else f" {text}")
        end = token.end
    text = "".join(words).strip()
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} ..."


@contextmanager
def server_errors(endpoint: Endpoint, doing: str, *, role: Role = Role.SOURCE) -> Iterator[None]:
    """Raise PyMySQL's errors within the block as ours, without the password."""
    try:
        yield
    except pymysql.Error as error:
        found = translated(error, f"{doing} at {endpoint}", role=role)
        raise _redacted(found, endpoint.password) from None


@contextmanager
def errors_of_the_sink() -> Iterator[None]:
    """Raise errors within the block, of a sink that is read as sources are, as the sink's."""
    try:
        yield
    except CdcError as error:
        raise _of_the_sink(error) from None


def _of_the_sink(error: CdcError) -> CdcError:
    """Return an error that names the source as one that names the sink."""
    found = error.rewritten(lambda text: text.replace("the source", "the sink"))
    if not isinstance(error, SourceUnreachableError):
        return found
    unreachable = SinkUnreachableError(found.what, found.where, found.risk, found.remedy)
    unreachable.server_error = error.server_error
    return unreachable


def _number_and_text(error: pymysql.Error) -> tuple[int, str]:
    """Return the number and text of a PyMySQL error."""
    arguments = error.args
    if arguments and isinstance(arguments[0], int):
        text = str(arguments[1]) if len(arguments) > 1 else ""
        return arguments[0], text or "the connection is closed"
    return 0, str(error) or type(error).__name__


def _kind(number: int, text: str, role: Role) -> tuple[type[CdcError], str]:
    """Return the class and the remedy for a server's error number."""
    unreachable = SourceUnreachableError if role is Role.SOURCE else SinkUnreachableError
    if number in _LOG:
        return _log_error(text)
    if number in _CLIENT and any(sign in text for sign in _TLS_SIGNS):
        return RefusedError, (
            "give the authority that signed the server's certificate as ssl_ca; "
            "ssl_verify_identity=false skips the host's name, ssl_disabled=true all of TLS"
        )
    if number == _NO_SUCH_TABLE:
        return RefusedError, _GONE[role]
    if number == 1047 and "WSREP" in text:
        return unreachable, "the node is not part of its cluster now; it is tried again"
    if number == 1792 or (number == 1290 and "read-only" in text):
        return unreachable, "the server is read-only; it is tried again until it is writable"
    kinds: tuple[tuple[set[int], type[CdcError], str], ...] = (
        (_UNREACHABLE, unreachable, "check that the server runs and the network lets us through"),
        (_BUSY, SinkBusyError if role is Role.SINK else RetryableError, "it is tried again"),
        (_LATER, RetryableError, "free space or raise the limit the server names"),
        (_DENIED, AccessDeniedError, _GRANTS_REMEDY),
        (_ROW, RowRefusedError, "compare the two tables' definitions and the row that is named"),
        (_TABLE_MOVED, SchemaMovedError, "the read is repeated under the new definition"),
        (_REFUSED, RefusedError, "check the names and settings the server speaks of"),
    )
    for numbers, kind, remedy in kinds:
        if number in numbers:
            return kind, remedy
    return IntegrityError, "this answer is not known to be harmless: look it up, then resume"


def _log_error(text: str) -> tuple[type[CdcError], str]:
    """Return the class and the remedy for an error of a binlog dump, by its words."""
    words = text.lower()
    if "same server" in words or "same server_uuid" in words or "zombie" in words:
        return RetryableError, "another reader uses this server_id; give each its own"
    if "purged" in words or "could not find first log" in words:
        return LogPurgedError, ACCEPT_PURGED
    if any(sign in words for sign in ("diverged", "more gtids", "position > file size", "> end")):
        return SourceIdentityError, f"connect to a server that has our history, or {RESET}"
    if "anonymous transaction" in words:
        return SnapshotRequiredError, f"leave gtid_mode ON, and {RESET}"
    lacking = ("not in the master's binlog", "impossible position", "missing the gtid")
    if any(sign in words for sign in lacking):
        return SourceIdentityError, f"connect to a server that has our history, or {RESET}"
    if "i/o error reading log event" in words:
        # what a RESET does to a dump that is open: who reads again looks whose log it is
        return RetryableError, "the log is read on from the last boundary over a new connection"
    if any(sign in words for sign in ("max_allowed_packet", "bogus", "checksum", "corrupt")):
        return CorruptLogError, "check the log with mysqlbinlog --verify-binlog-checksum"
    return IntegrityError, f"read the server's error log, then run again, or {RESET}"


def _risk(kind: type[CdcError]) -> str:
    """Return the risk that errors of a class have."""
    if issubclass(kind, RetryableError | AccessDeniedError | RefusedError):
        return UNHARMED
    return "going on could lose or change rows, so nothing of this step was kept"


def _redacted(error: CdcError, password: str) -> CdcError:
    """Return an error with the password replaced in its text."""
    # A short password is left alone: replacing it would garble ordinary words.
    if len(password) < 4 or password not in error.what:
        return error
    return error.saying(error.what.replace(password, "***"))
