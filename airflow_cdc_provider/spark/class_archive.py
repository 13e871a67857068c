"""Classes that Spark's JVM has loaded, kept for the next JVM (class-data sharing).

To find, verify and link ten thousand classes is most of what starting Spark costs. A JVM can write
them to a file when it ends and map that file when it starts. It checks itself that the file is from
the same Java and the same jars, and starts without it otherwise, so a file is never wrong, at worst
useless; one that was cut short while it was written has no header, and is not taken either.

The file is in this user's cache, about 170 MB, one for each Java and PySpark, and is written by the
first JVM that ends by itself. What cannot be written is done without. Whoever sets
`spark.driver.defaultJavaOptions` gets neither the file nor the rest of ours.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path

import pyspark

from airflow_cdc_provider.spark.java_home import cache_folder

_KEEP_DAYS = 30
_HEADER_BYTES = 4
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""What is wrong with an archive is no news: the JVM starts without it."""


def archive_options(java_home: Path) -> str:
    """Return JVM options that use the class archive, or write one at the JVM's end."""
    try:
        folder = cache_folder() / "class-archives"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        archive = folder / f"{_key(java_home)}.jsa"
        if " " in str(archive):
            return ""  # options are parted at blanks
        if _is_whole(archive):
            archive.touch()
            return f"-XX:SharedArchiveFile={archive} {_QUIET}"
        _remove_unused(folder)
    except (OSError, RuntimeError):
        return ""
    else:
        return f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"


def _key(java_home: Path) -> str:
    """Return a name for the archive by its Java, PySpark and jars."""
    release = java_home / "release"
    parts = [str(java_home.resolve()), pyspark.__version__, str(Path(pyspark.__file__).parent)]
    if release.is_file():
        parts.append(release.read_text(errors="replace"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _is_whole(archive: Path) -> bool:
    """Tell whether an archive was written to its end: its header is written last."""
    if not archive.is_file():
        return False
    with archive.open("rb") as file:
        return any(file.read(_HEADER_BYTES))


def _remove_unused(folder: Path) -> None:
    """Delete archives that were not used for a long time."""
    oldest = time.time() - _KEEP_DAYS * 24 * 3600  # noqa: TID251 - files carry this clock's time
    for archive in folder.glob("*.jsa"):
        with suppress(OSError):  # another process may be removing it too
            if archive.stat().st_mtime < oldest:
                archive.unlink()
