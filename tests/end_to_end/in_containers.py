"""The demo's data in the containers of docker/compose.yaml: fill and write, then compare.

`load` makes the demo's tables at the source and goes on writing; meanwhile the DAG `demo__sync` is
triggered in Airflow. `compare`, once writing has ended and the stream has caught up, reads both
sides whole and ends with 1 if they differ.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.end_to_end import data
from tests.end_to_end.compare import differences
from tests.end_to_end.writer import Writer
from tests.servers.given import GivenServer

SOURCE, SINK = "CDC_DEMO_SOURCE_DSN", "CDC_DEMO_SINK_DSN"


def main() -> int:
    """Do what the command line says; 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["load", "compare"])
    parser.add_argument("--scale", type=float, default=0.1, help="of TPC-H; 0.1 is 100 MB")
    parser.add_argument("--write-s", type=float, default=600.0, help="how long to go on writing")
    options = parser.parse_args()
    source = _server(SOURCE)
    if options.command == "compare":
        return _compare(source, _server(SINK))
    data.load(source, options.scale)
    print("the source is filled; trigger demo__sync in Airflow now", flush=True)
    with Writer(source, longest_s=options.write_s) as writer:
        time.sleep(options.write_s)
    print(f"{writer.transactions} transactions were written meanwhile")
    return 0


def _compare(source: GivenServer, sink: GivenServer) -> int:
    tables = [f"{data.TPCH}.{name}" for name in data.TPCH_TABLES]
    tables += [f"{data.EXTRAS}.{name}" for name in ("text_key", "composite_key")]
    wrong = differences(source, sink, {name: name for name in tables})
    for line in wrong or ["the sink equals the source"]:
        print(line)
    return 1 if wrong else 0


def _server(variable: str) -> GivenServer:
    server = GivenServer.from_environment(variable)
    if server is None:
        raise SystemExit(f"{variable} is not set")
    return server


if __name__ == "__main__":
    sys.exit(main())
