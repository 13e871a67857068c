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

import hashlib
import sys
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, PackagePath
from pathlib import Path

from airflow_cdc_provider.core.errors import SparkInstallationError

_FULL, _CLIENT = "pyspark", "pyspark-client"


def require_one_pyspark(path: Sequence[str] | None = None) -> None:
    """Raise `SparkInstallationError` if `pyspark` is made of parts of two versions."""
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
    return next(iter(Distribution.discover(name=name, path=where)), None)


def _is_imported(full: Distribution, where: list[str]) -> bool:
    """Tell whether `import pyspark` takes that distribution's folder, not Spark's own archive."""
    spec = PathFinder.find_spec(_FULL, where)
    if spec is None or spec.origin is None:
        return False
    return Path(spec.origin).parent == Path(str(full.locate_file(_FULL)))


def _foreign_files(full: Distribution, client: Distribution) -> list[str]:
    theirs = {str(file) for file in client.files or ()}
    both = (file for file in full.files or () if str(file) in theirs)
    return sorted(str(file) for file in both if not _is_its_own(file))


def _is_its_own(file: PackagePath) -> bool:
    """Tell whether the file is still what its distribution installed; true without a record."""
    if file.hash is None:
        return True
    try:
        content = Path(str(file.locate())).read_bytes()
    except FileNotFoundError:
        return False
    digest = urlsafe_b64encode(hashlib.new(file.hash.mode, content).digest()).rstrip(b"=")
    return digest.decode() == file.hash.value
