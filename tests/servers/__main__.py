"""Keep servers up between test runs: `python -m tests.servers up|down|fetch`.

`fetch` only unpacks them. `up` leaves an owner behind that holds the servers and writes their DSNs
to `build/servers.env` once they accept connections; `down` ends the owner, and the servers with it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from tests.servers.given import MARIADB_DSN, MYSQL_DSN, MYSQL_SINK_DSN
from tests.servers.packages import POSTGRES, unpacked
from tests.servers.programs import mariadb_programs, mysql_programs
from tests.servers.throwaway import MariaDbServer, MySqlServer

ROOT = Path(__file__).resolve().parents[2]
ENV_FILE = ROOT / "build" / "servers.env"
OWNER_FILE = ROOT / "build" / "servers.pid"
OWNER_LOG = ROOT / "build" / "servers.log"
_UP_TIMEOUT_S = 180.0
_DOWN_TIMEOUT_S = 30.0


def say(text: str) -> None:
    """Tell the person at the terminal."""
    sys.stdout.write(f"{text}\n")


def owner_pid() -> int | None:
    """Give the living owner's process id; a number that another program has by now is not it."""
    try:
        pid = int(OWNER_FILE.read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if b"tests.servers" in words else None


def up() -> int:
    """Start an owner in the background and wait until its servers are ready."""
    if ENV_FILE.exists() and owner_pid() is not None:
        say(f"servers are up already; their DSNs are in {ENV_FILE}")
        return 0
    OWNER_LOG.parent.mkdir(exist_ok=True)
    ENV_FILE.unlink(missing_ok=True)
    with OWNER_LOG.open("wb") as log:
        owner = subprocess.Popen(
            [sys.executable, "-m", "tests.servers", "own"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    OWNER_FILE.write_text(str(owner.pid))
    deadline = time.monotonic() + _UP_TIMEOUT_S
    while not ENV_FILE.exists():
        if owner.poll() is not None or time.monotonic() > deadline:
            say(OWNER_LOG.read_text())
            return 1
        time.sleep(0.1)
    say(f"servers are up; to use them: set -a; . {ENV_FILE.relative_to(ROOT)}")
    return 0


def own() -> int:
    """Hold the servers until told to end."""
    told_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told_to_end.set())
    servers = {
        MYSQL_DSN: MySqlServer(),
        MYSQL_SINK_DSN: MySqlServer(),
        MARIADB_DSN: MariaDbServer(),
    }
    with ExitStack() as stack:
        stack.callback(ENV_FILE.unlink, missing_ok=True)
        lines = [
            f"{variable}={shlex.quote(stack.enter_context(server).dsn())}\n"
            for variable, server in servers.items()
        ]
        unfinished = ENV_FILE.with_suffix(".unfinished")
        unfinished.write_text("".join(lines))
        unfinished.rename(ENV_FILE)
        told_to_end.wait()
    return 0


def down() -> int:
    """End the owner, and with it the servers."""
    pid = owner_pid()
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_TIMEOUT_S
    while owner_pid() is not None:
        if time.monotonic() > deadline:
            say(f"the servers' owner, process {pid}, does not end")
            return 1
        time.sleep(0.05)
    OWNER_FILE.unlink(missing_ok=True)
    ENV_FILE.unlink(missing_ok=True)
    say("servers are down")
    return 0


def fetch() -> int:
    """Find or unpack all servers and say which they are."""
    for programs in (mysql_programs(), mariadb_programs()):
        say(f"{programs.server_name} {programs.version}: {' '.join(programs.server_command()[:1])}")
    say(f"postgres: {unpacked(POSTGRES)}")
    return 0


COMMANDS = {"up": up, "own": own, "down": down, "fetch": fetch}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    sys.exit(COMMANDS[parser.parse_args().command]())
