"""Errors, sorted by what the reader should do about them.

Every error says what happened, where, what is at risk and what to do next. The arguments are
plain text and positional, so an error survives pickling between Spark's processes. Between other
processes it travels as its facts (`to_json`, `from_json`), and so it is stored (`StoredError`);
what is printed is for people and is not read back. Codes are append-only: a code never changes its
meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

RESET = "`reset` the pipeline: the next run reads all tables again"
"""The remedy where only a new snapshot brings the sink to the source."""
ACCEPT_PURGED = (
    "`accept` the source with --source, and all tables are read again while they flow; or `reset`; "
    "keep logs longer than the longest pause"
)
"""The remedy where log was purged that was not applied."""

NOTHING_STARTED = "none: nothing was started"
NOTHING_CHANGED = "none: nothing was changed"
"""The risk where something was refused before it was begun."""
UNHARMED = "none: what is committed stays, and the next try goes on from there"
"""The risk where a server does not answer or refuses, whatever it was asked for."""

SEE_LOG = "see what stands there with `log`"
"""The beginning of a remedy where a stream stops at an event."""
CODES = "CDC-"
"""What all codes begin with."""
MARKS = ("; where: ", "; at risk: ", "; what to do: ")
"""What is printed before each text but the first."""


class CdcError(Exception):
    """An error of the product: what happened, where, the risk, and the remedy."""

    code: ClassVar[str] = "CDC-000"
    ends_the_stream: ClassVar[bool] = False
    """The log will always hold what a stream ended with: trying again ends there again."""
    server_error: int = 0
    """The number of the server's answer that this error is made from, 0 if it is from none."""
    tables: tuple[str, ...] = ()
    """Tables of the source that alone are concerned; none where it may be more than that."""

    def __init__(self, what: str, where: str = "", risk: str = "", remedy: str = "") -> None:
        super().__init__(what, where, risk, remedy)
        self.what = what
        self.where = where
        self.risk = risk
        self.remedy = remedy

    def __str__(self) -> str:
        return printed(self.code, *self.args)

    def short_message(self) -> str:
        """Return a short message, without the remedy, for a failure that will be retried.

        A remedy is for the error that ends something; only one that may pass keeps its own.
        """
        return str(self._with(self.what, self.where, "", ""))

    def to_json(self) -> dict[str, Any]:
        """Return the error's facts as plain values."""
        names = ("what", "where", "risk", "remedy")
        form = {"code": self.code, **dict(zip(names, self.args, strict=True))}
        return {**form, "tables": list(self.tables)} if self.tables else form

    @staticmethod
    def from_json(form: Mapping[str, Any]) -> CdcError:
        """Read an error from its JSON form; one without a known code becomes a plain `CdcError`."""
        facts = [str(form.get(name, "")) for name in ("what", "where", "risk", "remedy")]
        code = str(form.get("code", ""))
        kind = error_class(code)
        if code and kind.code != code:
            facts[0] = f"{code}: {facts[0]}"
        return kind(*facts).about(*form.get("tables", ()))

    def about(self, *tables: object) -> Self:
        """Return a copy of the error that concerns only these tables of the source."""
        found = self._with(*self.args)
        found.tables = tuple(map(str, tables))
        return found

    def located(self, where: str) -> Self:
        """Return a copy of the error with one more place added to `where`."""
        both = f"{self.where}; {where}" if self.where else where
        return self._with(self.what, both, self.risk, self.remedy)

    def saying(self, what: str) -> Self:
        """Return a copy of the error with another `what`."""
        return self._with(what, self.where, self.risk, self.remedy)

    def with_remedy(self, remedy: str) -> Self:
        """Return a copy of the error with another remedy."""
        return self._with(self.what, self.where, self.risk, remedy)

    def rewritten(self, rewrite: Callable[[str], str]) -> Self:
        """Return a copy of the error with each of its texts rewritten."""
        return self._with(*map(rewrite, self.args))

    def _with(self, *facts: str) -> Self:
        """Return a copy of the error with other texts; server error and tables are kept."""
        found = type(self)(*facts)
        found.server_error = self.server_error
        found.tables = self.tables
        return found


# --- the same call, unchanged, may work later -------------------------------------------------


class RetryableError(CdcError):
    """The same call, unchanged, may work later."""

    code = "CDC-RETRY-001"

    def short_message(self) -> str:
        """Return the message with its remedy: a person may have to do that before a retry works."""
        return str(self)


class SourceUnreachableError(RetryableError):
    """The source did not answer, or the connection to it was lost."""

    code = "CDC-SRC-001"


class SinkUnreachableError(RetryableError):
    """The sink did not answer, or the connection to it was lost."""

    code = "CDC-SNK-001"


class SinkBusyError(RetryableError):
    """The sink rolled the transaction back: deadlock or lock wait."""

    code = "CDC-SNK-002"


class LedgerSetBackError(RetryableError):
    """The sink's ledger does not know the owner that has committed there: it is another one."""

    code = "CDC-SNK-005"


class SchemaMovedError(RetryableError):
    """The table changed its definition while a split was read; read the split again."""

    code = "CDC-SRC-002"


class ResultAbortedError(RetryableError):
    """The server ended a query's result with an error, after some of its rows."""

    code = "CDC-SRC-003"


class SplitOutdatedError(RetryableError):
    """A split's rows cannot be brought to the stream's position; read the split again."""

    code = "CDC-SRC-004"


class StillPreparedError(RetryableError):
    """XA transactions stay prepared over a low watermark; read the split when they have ended."""

    code = "CDC-SRC-005"


class ReplicationStoppedError(RetryableError):
    """A server that is named as a replica does not replicate, so its lag is not known."""

    code = "CDC-LOA-002"


class StateUnreachableError(RetryableError):
    """The state store's database did not answer."""

    code = "CDC-STA-001"


class SparkLostError(RetryableError):
    """Spark's JVM is gone, and with it this process's Spark; a new job may work."""

    code = "CDC-SPK-001"


class SparkUnreachableError(RetryableError):
    """Spark's master did not answer; no job was started."""

    code = "CDC-SPK-002"


class AssignerPortError(RetryableError):
    """None of the ports that the file gives is free for the assigner."""

    code = "CDC-SPK-003"


# --- someone else is the owner now ------------------------------------------------------------


class FencedError(CdcError):
    """A newer generation owns the pipeline; this writer must stop and may not write any more."""

    code = "CDC-OWN-001"


class StateMovedError(CdcError):
    """Another process has changed the stored state since it was read."""

    code = "CDC-OWN-002"


class LeaseHeldError(RetryableError):
    """Another live owner has the pipeline's lease."""

    code = "CDC-OWN-003"


class NotStoppedYetError(RetryableError):
    """The owner was asked to stop, and has not in the time that was given to it."""

    code = "CDC-OWN-005"


class NotRestartedYetError(NotStoppedYetError):
    """The owner was asked to begin again, and has not in the time that was given to it."""

    code = "CDC-OWN-007"


class PauseTakenBackError(CdcError):
    """A pause was taken back by somebody else before it was reached."""

    code = "CDC-OWN-006"


class StepMissingError(CdcError):
    """A step that must come before this one is not done; a retry of this step does not do it."""

    code = "CDC-OWN-004"


# --- the log no longer has what we need -------------------------------------------------------


class SnapshotRequiredError(CdcError):
    """The log cannot bring the sink up to the source; the tables must be read again."""

    code = "CDC-LOG-001"
    ends_the_stream = True


class LogPurgedError(SnapshotRequiredError):
    """The server has purged log that was not yet applied."""

    code = "CDC-LOG-002"


class SourceIdentityError(SnapshotRequiredError):
    """Another server answers, and it lacks transactions that were read before."""

    code = "CDC-LOG-003"
    ends_the_stream = False  # the right server may answer again; each start asks who it is


class NotConsistentError(CdcError):
    """The log was applied to its end, and a table is still not at its consistent point."""

    code = "CDC-LOG-004"


# --- fix the pipeline file, the connection or the server's settings ---------------------------


class RefusedError(CdcError):
    """The configuration, or a server's settings, do not allow a correct copy."""

    code = "CDC-CFG-001"


class PipelineFileError(RefusedError):
    """The pipeline file is wrong."""

    code = "CDC-CFG-002"


class PreflightError(RefusedError):
    """Preflight found settings or tables that do not allow a correct copy."""

    code = "CDC-CFG-003"


class UnsupportedTableError(RefusedError):
    """A table cannot be copied correctly as it is."""

    code = "CDC-CFG-004"


class UnsupportedServerError(RefusedError):
    """The server's version or settings do not allow its log to be read safely."""

    code = "CDC-CFG-005"


class AccessDeniedError(RefusedError):
    """The account lacks a privilege."""

    code = "CDC-CFG-006"


class JavaNotFoundError(RefusedError):
    """This machine has no Java that Spark can use."""

    code = "CDC-CFG-007"


class SparkInstallationError(RefusedError):
    """The installation of Spark, or of Python on its executors, does not fit a job."""

    code = "CDC-CFG-008"


class PausedError(RefusedError):
    """The pipeline is paused, so nothing is started."""

    code = "CDC-CFG-010"


class StreamEndedError(RefusedError):
    """The stream ended with an error that a retry cannot mend."""

    code = "CDC-CFG-009"


# --- stop and ask a person --------------------------------------------------------------------


class IntegrityError(CdcError):
    """Continuing could lose or change rows."""

    code = "CDC-INT-001"


class UnknownEventError(IntegrityError):
    """An event of the log is not understood."""

    code = "CDC-INT-002"
    ends_the_stream = True


class UnknownTypeError(IntegrityError):
    """A column type, charset or stored value is not understood."""

    code = "CDC-INT-003"
    ends_the_stream = True


class ValueRefusedError(IntegrityError):
    """A value cannot be represented in the value model under the column's policy."""

    code = "CDC-INT-004"
    ends_the_stream = True


class CorruptLogError(IntegrityError):
    """An event's checksum or framing is wrong."""

    code = "CDC-INT-005"


class IncomparablePositionsError(IntegrityError):
    """Two positions cannot be compared: neither contains the other."""

    code = "CDC-INT-006"


class PositionWentBackError(IntegrityError):
    """A position moved backwards."""

    code = "CDC-INT-007"


class TableChangedError(IntegrityError):
    """A statement changed a captured table; the stream cannot go on with the old definition."""

    code = "CDC-INT-008"
    ends_the_stream = True


class PreparedTransactionError(IntegrityError):
    """An XA transaction commits, and its rows are not in the log that can be read."""

    code = "CDC-INT-009"


class RowsNotLoggedError(IntegrityError):
    """The log has a row change as a statement, without the rows that it changed."""

    code = "CDC-INT-010"


class UndecidedConflictError(IntegrityError):
    """Both nodes of an edge changed a row, and the table's rule leaves it to a person."""

    code = "CDC-INT-011"


class RowRefusedError(IntegrityError):
    """The sink refused a row; nothing of its batch was kept."""

    code = "CDC-SNK-003"


class SinkTableChangedError(IntegrityError):
    """A sink table was changed by others and may alter or refuse rows now."""

    code = "CDC-SNK-004"


class CriticalLoadError(CdcError):
    """The source's load was critical, so what read rows has ended; what was read stays."""

    code = "CDC-LOA-001"


class TablesStoppedError(CdcError):
    """Tables were isolated from the stream by errors; all others are at the end of the log."""

    code = "CDC-TBL-001"


class RequestEndedError(CdcError):
    """A request on the pipeline failed, or was cancelled."""

    code = "CDC-REQ-001"


class RequestWaitsError(CdcError):
    """A request on the pipeline is stored and cannot begin yet."""

    code = "CDC-REQ-002"


class SplitTooBigError(CdcError):
    """A split has more bytes than a reader may keep in memory; it is to be cut in two."""

    code = "CDC-SPL-001"


_OF_NO_TABLE = (RetryableError, FencedError, CorruptLogError)


@contextmanager
def only_of(table: object) -> Iterator[None]:
    """Mark errors raised in the block as concerning one table of the source, and no other.

    An error that may pass, or says that the log itself is broken, may concern all tables.
    """
    try:
        yield
    except CdcError as error:
        if error.tables or isinstance(error, _OF_NO_TABLE):
            raise
        raise error.about(table) from error.__cause__


def printed(code: str, what: str, *others: str) -> str:
    """Return an error's code and texts as one message."""
    message = f"{code} {what}"
    for mark, text in zip(MARKS, others, strict=True):
        if text:
            # a statement may end the text before
            message = f"{message.removesuffix(';')}{mark}{text}"
    return message


def error_class(code: str) -> type[CdcError]:
    """Return the error class that has a code, `CdcError` if none has."""
    return next((kind for kind in _family(CdcError) if kind.code == code), CdcError)


def _family(kind: type[CdcError]) -> Iterator[type[CdcError]]:
    """Yield an error class and all its subclasses."""
    yield kind
    for child in kind.__subclasses__():
        yield from _family(child)
