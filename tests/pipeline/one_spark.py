"""What several tests need of `test_one_spark`."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pipeline.conftest import Shop

JVM = b"java", b"org.apache.spark.deploy.SparkSubmit"


LAUNCHER = b"org.apache.spark.launcher.Main"


def processes(shop: Shop, kind: tuple[bytes, bytes]) -> set[int]:
    """Return the processes of the shop's jobs of a program that was given a word.

    What one of them has just begun is still called as it is, and is no other one.
    """
    program, mark = kind
    found = dict[int, int]()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            is_ours = os.fsencode(shop.path.parent) in (path / "environ").read_bytes()
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
        if is_ours and program in words[0] and mark in words and LAUNCHER not in words:
            found[int(path.name)] = parent
    return {pid for pid, parent in found.items() if parent not in found}


@contextmanager
def seen(shop: Shop, kind: tuple[bytes, bytes]) -> Iterator[set[int]]:
    """Collect the processes of a kind that there are in the meantime."""
    found, over = set[int](), threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            found.update(processes(shop, kind))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()
