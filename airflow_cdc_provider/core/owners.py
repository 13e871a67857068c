"""Names of processes that own pipelines, and whether such a process is still there."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_process() -> str:
    """Name this process as an owner."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def is_gone(owner: str) -> bool:
    """Tell whether the owner was a process of this machine that has ended.

    Of other machines' processes, and of owners that are none, nobody here can tell.
    """
    words = owner.split()
    if len(words) == 4 and words[0] == "process" and words[3] == socket.gethostname():
        return not Path(f"/proc/{words[1]}").exists()
    return False
