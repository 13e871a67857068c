"""Whether this Python's PySpark is one whole, looked at before Spark starts.

The distributions `pyspark` and `pyspark-client` put their files into the same folder, and Airflow's
Spark provider asks for the second. If their versions differ, each file is of whichever was
installed last, and Python then calls what the Java side does not have, long after the start and
with a message that names neither. Two versions side by side are harmless while every file is still
the full package's own; so the files that both brought are compared with what `pyspark` says it
installed, and only then: elsewhere this costs two look-ups.

Nothing but the standard library and `core`: this runs before anything of Spark is called.
"""

from __future__ import annotations

import csv
import hashlib
import sys
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.metadata import Distribution
from pathlib import Path

from airflow_cdc_provider.core.errors import SparkInstallationError

_FULL, _CLIENT = "pyspark", "pyspark-client"
_OLDEST = (3, 5)


def require_supported(version: str, *, where: str) -> None:
    """Raise `SparkInstallationError` if a Spark is older than jobs need."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers >= _OLDEST:
        return
    raise SparkInstallationError(
        f"Spark {version} is too old: jobs need 3.5 or newer",
        where=where,
        risk="none: nothing was read or written",
        remedy="run the job on Spark 3.5 or newer, with a pyspark of the same version; or leave "
        "what is little to the driver alone, which needs no Spark",
    )


def require_one_pyspark(path: Sequence[str] | None = None) -> None:
    """Raise `SparkInstallationError` if `pyspark` has files of two versions."""
    where = list(sys.path if path is None else path)
    full, client = _installed(_FULL, where), _installed(_CLIENT, where)
    if full is None or client is None or full.version == client.version:
        return
    if not _is_imported(full, where):
        return
    foreign = _foreign_files(full, client)
    if not foreign:
        return
    folder = Path(str(full.locate_file(_FULL)))
    raise SparkInstallationError(
        f"PySpark is made of two versions: {len(foreign)} files of {_FULL} {full.version} were "
        f"replaced by those of {_CLIENT} {client.version}, such as {foreign[0]}",
        where=str(folder),
        risk="none: Spark was not started; its Python would call what its Java does not have",
        remedy=f"pip install --force-reinstall --no-deps {_FULL}=={full.version}; or have both of "
        f"one version: pip install --force-reinstall --no-deps {_CLIENT}=={client.version} "
        f"{_FULL}=={client.version}",
    )


def _installed(name: str, where: list[str]) -> Distribution | None:
    """Return an installed distribution by name, None if there is none."""
    return next(iter(Distribution.discover(name=name, path=where)), None)


def _is_imported(full: Distribution, where: list[str]) -> bool:
    """Tell whether `import pyspark` uses that distribution's folder."""
    spec = PathFinder.find_spec(_FULL, where)
    if spec is None or spec.origin is None:
        return False
    return Path(spec.origin).parent == Path(str(full.locate_file(_FULL)))


def _foreign_files(full: Distribution, client: Distribution) -> list[str]:
    """Return the files of `full` that `client` has overwritten."""
    folder, theirs = Path(str(full.locate_file(""))), _record(client)
    return sorted(
        name
        for name, recorded in _record(full).items()
        if name in theirs and not _is_its_own(folder / name, recorded)
    )


def _record(installed: Distribution) -> dict[str, str]:
    """Return the recorded hash of each file that a distribution installed."""
    rows = csv.reader((installed.read_text("RECORD") or "").splitlines())
    return {row[0]: row[1] for row in rows if len(row) > 1}


def _is_its_own(file: Path, recorded: str) -> bool:
    """Tell whether a file is as its distribution installed it; True without a record."""
    algorithm, _, expected = recorded.partition("=")
    if not expected:
        return True
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return False
    digest = urlsafe_b64encode(hashlib.new(algorithm, content).digest()).rstrip(b"=")
    return digest.decode() == expected
