"""What an owner starts under a guard ends with it, whatever it has made of itself."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.servers.guard import Guarded

HIDDEN = """
import os, sys, time
import setproctitle
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        setproctitle.setproctitle("a title that is longer than all of the environment " * 90)
        open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(120)
    os._exit(0)
time.sleep(120)
"""
OWNER = """
import os, sys, time
from pathlib import Path
from tests.servers.guard import Guarded
command, folder, told = sys.argv[1:]
with open(os.devnull, "wb") as log:
    env = dict(os.environ)
    guarded = Guarded([sys.executable, "-c", command, told], env=env, folder=Path(folder), log=log)
time.sleep(120)
"""


def told_pid(told: Path) -> psutil.Process:
    deadline = time.monotonic() + 30
    while not told.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return psutil.Process(int(told.read_text()))


def test_a_process_that_left_its_group_and_hid_its_environment_ends_with_its_killed_owner(
    tmp_path: Path,
) -> None:
    folder, told = tmp_path / "own", tmp_path / "told"
    folder.mkdir()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, HIDDEN, str(folder), str(told)],
        cwd=Path(__file__).parents[2],
    )
    with owner:
        hidden = told_pid(told)
        owner.kill()
    hidden.wait(20)
    deadline = time.monotonic() + 20
    while folder.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_owner_sees_all_it_started_ends_it_and_keeps_the_folder(tmp_path: Path) -> None:
    folder, told = tmp_path / "own", tmp_path / "told"
    folder.mkdir()
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-c", HIDDEN, str(told)]
        guarded = Guarded(command, env={"PATH": "/bin:/usr/bin"}, folder=folder, log=log)
    hidden = told_pid(told)
    assert guarded.is_running
    assert hidden in guarded.processes()
    second = tmp_path / "second"
    guarded.start([sys.executable, "-c", HIDDEN, str(second)])
    assert told_pid(second) in guarded.processes()
    guarded.end()
    assert not hidden.is_running()
    assert folder.exists()
