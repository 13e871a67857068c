"""Errors of a bucket as errors of the sink, which say what is missing and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from airflow_cdc_provider.core.endpoint import Store
from airflow_cdc_provider.core.errors import (
    AccessDeniedError,
    CdcError,
    RefusedError,
    SinkUnreachableError,
)

TAKEN = (AlreadyExistsError, PreconditionError)
"""Raised by a put if its name is taken, or was for a moment."""
FAILED = (BaseError, OSError)
"""Raised by a store for whatever it does not do."""
_NO_BUCKET = ("NoSuchBucket", "bucket does not exist", "ContainerNotFound")
_STATUS = re.compile(r"status code: ([0-9]{3})")
_REQUEST = re.compile(r"Error performing ([A-Z]+) ([^\s?]+)\S* in ")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_DENIED_FILE = "(code: AccessDenied)"
"""Of one of the files that an answer of status 200 is about."""
_CAUSE = re.compile(r'\b(?:message|error): "([^"]{1,150})"')
_TIMED_OUT = ("TimedOut", "Timeout")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})</Message>")
_DENIED = frozenset({"401", "403"})
_DENIED_CODES = frozenset({"ExpiredToken", "InvalidToken", "TokenRefreshRequired"})
"""What S3 says with status 400."""
_METADATA_SERVICE = "http://169.254."
"""Where a machine asks for the key of its role, in each cloud of Amazon."""
_LONGEST = 200


class Right(StrEnum):
    """A right that a request needs, as S3 calls it."""

    READ = "s3:GetObject"
    LIST = "s3:ListBucket"
    PUT = "s3:PutObject"
    DELETE = "s3:DeleteObject"


@dataclass(frozen=True, slots=True)
class BucketErrors:
    """Explains errors of one place."""

    place: Store

    @contextmanager
    def explained(
        self, right: Right, *, but: tuple[type[OSError], ...] | type[OSError] = ()
    ) -> Iterator[None]:
        """Raise errors of the store as errors of the sink; `right` is what the request needs.

        Errors `but` are for the caller.
        """
        try:
            yield
        except but:
            raise
        except FAILED as error:
            raise self._explanation(error, right) from None

    def require_bucket(self, error: BaseException) -> None:
        """Raise if it is the bucket that is not there, not the file."""
        if _is_without_bucket(error):
            raise self._no_bucket() from None

    def taken(self, name: str) -> SinkUnreachableError:
        """Return the error for a new file whose name another writer has."""
        return SinkUnreachableError(
            f"another writer has the name {name}",
            where=str(self.place),
            risk="none: what no manifest names does not count",
            remedy="run again: the next file has another name",
        )

    def _explanation(self, error: BaseException, right: Right) -> CdcError:
        """Return an error of the store in the words of the sink."""
        if _is_without_bucket(error):
            return self._no_bucket()
        if _METADATA_SERVICE in str(error):
            return self._without_key(error)
        if is_denied(error):
            return self._denied(error, right)
        if _is_unsupported(error):
            return RefusedError(
                f"the store cannot put a file only if its name is free: {short(error)}",
                where=str(self.place),
                risk="two writers could both believe that they committed; nothing was written",
                remedy="use a store whose puts obey If-None-Match, or a folder on a file system",
            )
        return SinkUnreachableError(
            short(error),
            where=str(self.place),
            risk="none: what no manifest names does not count",
            remedy="bring the store back, or correct endpoint_url and region_name; then run again",
        )

    def _no_bucket(self) -> RefusedError:
        """Return the error for a bucket that is not there."""
        return RefusedError(
            f"there is no bucket {self.place.bucket!r}",
            where=str(self.place),
            risk="none: nothing was written",
            remedy="create it, or correct the sink's path, region_name or endpoint_url",
        )

    def _without_key(self, error: BaseException) -> SinkUnreachableError:
        """Return the error for a machine without a key, whose role cannot be asked for one."""
        return SinkUnreachableError(
            f"there is no key for the store, and the machine's role gives none: {short(error)}",
            where=str(self.place),
            risk="none: the store was not asked",
            remedy="give a key by the sink's conn_id or dsn_env, or by AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY in the environment; or give the machine a role",
        )

    def _denied(self, error: BaseException, right: Right) -> AccessDeniedError:
        """Return the error for a right that is missing."""
        wanted = f"{right} on {'the bucket' if right is Right.LIST else 'the files of the prefix'}"
        if right is Right.READ:  # without it, S3 says of a file that is not there that it is denied
            wanted += f", and {Right.LIST} on the bucket"
        denied: str = right
        if self.place.scheme != "s3":
            denied, wanted = right.name.lower(), "to put, read, list and delete files of the prefix"
        return AccessDeniedError(
            f"the store denies {denied}: {short(error)}",
            where=str(self.place),
            risk="none: what no manifest names does not count",
            remedy=f"allow {wanted}; or correct the key and its secret",
        )


def is_denied(error: BaseException) -> bool:
    """Tell whether an error is that of a right that is missing."""
    status, code = _STATUS.search(str(error)), _CODE.search(str(error))
    is_said = status is not None and status[1] in _DENIED
    is_said |= _DENIED_FILE in str(error)
    is_old = code is not None and code[1] in _DENIED_CODES
    return is_said or is_old or isinstance(error, PermissionDeniedError | UnauthenticatedError)


def is_final(error: BaseException) -> bool:
    """Tell whether a request that failed so was not carried out, and will never be."""
    return is_denied(error) or _is_without_bucket(error) or _is_unsupported(error)


def is_silent(error: BaseException) -> bool:
    """Tell whether no answer came in time."""
    return _STATUS.search(str(error)) is None and any(mark in str(error) for mark in _TIMED_OUT)


def short(error: BaseException) -> str:
    """Return what a store said, without what it was sent."""
    text = str(error)
    status, code, message = (each.search(text) for each in (_STATUS, _CODE, _MESSAGE))
    request = _REQUEST.search(text)
    asked = "it" if request is None else f"{request[1]} {request[2]}"
    if status is None:
        cause = _CAUSE.search(text)
        why = cause[1] if cause is not None else ""
        if not why and is_silent(error):
            why = "no answer in time"
        if request is None:
            return text.partition("\n")[0][:_LONGEST]
        return f"{asked} is not answered{why and f': {why}'}"
    said = ", ".join(each[1] for each in (code, message) if each is not None)
    return f"{asked} answers {status[1]}{said and f' ({said})'}"


def _is_without_bucket(error: BaseException) -> bool:
    """Tell whether an error says that there is no bucket."""
    return any(mark in str(error) for mark in _NO_BUCKET)


def _is_unsupported(error: BaseException) -> bool:
    """Tell whether an error says that the store does not know what is asked of it."""
    status = _STATUS.search(str(error))
    return isinstance(error, NotSupportedError) or (status is not None and status[1] == "501")
