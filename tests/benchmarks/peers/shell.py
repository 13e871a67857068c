"""A peer that is a command line: dump tools, mysqlbinlog."""

from __future__ import annotations

import subprocess

from tests.benchmarks import subject


def main() -> None:
    given = subject.arguments()

    def run() -> int:
        subprocess.run(
            ["bash", "-o", "pipefail", "-c", given["command"]],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        return int(given["rows"])

    subject.work(run)


if __name__ == "__main__":
    main()
