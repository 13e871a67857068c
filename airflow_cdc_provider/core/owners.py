"""Names of processes that own pipelines, and whether such a process is still there."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_process() -> str:
    """Return the name under which this process owns pipelines: its id and host."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def is_gone(owner: str) -> bool:
    """Tell whether an owner is a process of this machine that has ended.

    Of processes on other machines, and of owners that are no process, it is False.
    """
    words = owner.split()
    if len(words) == 4 and words[0] == "process" and words[3] == socket.gethostname():
        return not Path(f"/proc/{words[1]}").exists()
    return False
