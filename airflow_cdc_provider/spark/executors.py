"""Whether the executors' Python has what this package imports there, asked before any work.

The package itself is shipped; what it imports is installed by whoever runs the cluster. Without a
look a missing one shows as a task that fails again and again. Workers that come later are not
asked. Over Spark Connect nobody can be.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_cdc_provider.core.errors import SparkInstallationError
from airflow_cdc_provider.systems.kinds import KINDS

if TYPE_CHECKING:
    from pyspark import SparkContext

Bounds = tuple[str, str]
"""The oldest version, and the first one that is too new; empty is none."""
NEEDED: Mapping[str, Bounds] = {
    "numpy": ("1.26", ""),
    "pandas": ("2.2", "3"),
    "pyarrow": ("18", ""),
    **{name: bounds for kind in KINDS.values() for name, bounds in kind.packages.items()},
}


def require_packages(context: SparkContext, needed: Mapping[str, Bounds] = NEEDED) -> None:
    """Raise `SparkInstallationError` if an executor lacks a package or has a wrong version."""

    def lacking(_: Iterable[int]) -> Iterator[tuple[str, str]]:
        for name, bounds in needed.items():
            problem = _problem_of(name, *bounds)
            if problem:
                yield socket.gethostname(), problem

    count = max(1, context.defaultParallelism)
    found = context.parallelize(range(count), count).mapPartitions(lacking).collect()
    if not found:
        return
    hosts: dict[str, set[str]] = {}
    for host, problem in found:
        hosts.setdefault(problem, set()).add(host)
    told = sorted(f"{problem} on {', '.join(sorted(names))}" for problem, names in hosts.items())
    wanted = " ".join(f"'{name}{_range(*bounds)}'" for name, bounds in needed.items())
    raise SparkInstallationError(
        f"the executors' Python lacks what a job needs: {'; '.join(told)}",
        where=f"workers of {context.master}",
        risk="none: nothing was read or written",
        remedy=f"install it in the Python that PYSPARK_PYTHON names there: pip install {wanted}",
    )


def _problem_of(name: str, oldest: str, too_new: str) -> str:
    """Describe what is wrong with an installed package; empty if nothing is."""
    try:
        there = str(import_module(name).__version__)
    except ImportError as error:
        return f"{name} cannot be imported ({error})"
    if _numbers(there) < _numbers(oldest) or (too_new and _numbers(there) >= _numbers(too_new)):
        return f"{name} is {there}, wanted is {_range(oldest, too_new)}"
    return ""


def _range(oldest: str, too_new: str) -> str:
    """Return a range of versions as text."""
    return f">={oldest}" + (f",<{too_new}" if too_new else "")


def _numbers(text: str) -> list[int]:
    """Return the leading numbers of a version, for comparison."""
    numbers = []
    for part in text.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return numbers
