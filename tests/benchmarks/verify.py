"""What a comparison costs by each digest: lineitem on two servers, equal on both.

`make bench ONLY=verify`: the servers' own digest, then the one by columns, in turn. The seconds of
CPU are those of this process, which hashes by columns, and of both servers, which hash by their
own; each per million rows of the table.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psutil

from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.identifiers import PipelineName, TableId
from airflow_cdc_provider.core.records import TablePlan
from airflow_cdc_provider.engine.sink.port import Owner
from airflow_cdc_provider.engine.verify.verify import verify
from airflow_cdc_provider.systems.mysql.mysql_sink import MySqlSink
from airflow_cdc_provider.systems.mysql.mysql_source import MySqlSource
from tests.benchmarks.world import DATABASE, World, world

_RUNS = 3
_TABLE = TableId(DATABASE, "lineitem")
_DIGESTS = {"the servers' own": False, "by columns": True}


@dataclass(frozen=True, slots=True)
class Found:
    """One comparison by one digest."""

    digest: str
    rows: int
    seconds: float
    cpu_s: float
    """Of this process."""
    server_cpu_s: float
    """Of both servers."""
    load: float


def measured() -> Iterator[Found]:
    """Copy the table, and compare it by each digest in turn."""
    with world(float(os.environ.get("CDC_BENCH_SCALE", "0.1"))) as bench:
        _copy(bench)
        source = MySqlSource(Endpoint.parse(bench.source.dsn()))
        sink = MySqlSink(Endpoint.parse(bench.sink.dsn()), Owner(PipelineName("verify"), 1))
        with source.catalogue() as catalogue:
            plan = TablePlan.alike(catalogue.schemas([_TABLE])[_TABLE], _TABLE, 0)
        for run in range(_RUNS + 1):
            for digest, by_columns in _DIGESTS.items():
                load, servers = os.getloadavg()[0], _server_cpu_s(bench)
                cpu_s, began = time.process_time(), time.monotonic()
                report = verify(source, sink, [plan], by_columns=by_columns)
                if not report.equal:
                    raise RuntimeError(f"{report.tables[0]}")
                found = Found(
                    digest,
                    bench.rows,
                    time.monotonic() - began,
                    time.process_time() - cpu_s,
                    _server_cpu_s(bench) - servers,
                    load,
                )
                if run:  # the first one fills the servers' caches
                    yield found


def lines(found: Iterable[Found]) -> Iterator[str]:
    """Yield the medians of each digest as a line."""
    every = list(found)
    yield f"{'digest':18} {'rows/s':>10} {'CPU s/M':>8} {'servers, CPU s/M':>17} {'load':>5}"
    for digest in _DIGESTS:
        runs = [each for each in every if each.digest == digest]
        rate = statistics.median(each.rows / each.seconds for each in runs)
        own = statistics.median(each.cpu_s * 1e6 / each.rows for each in runs)
        servers = statistics.median(each.server_cpu_s * 1e6 / each.rows for each in runs)
        load = max(each.load for each in runs)
        yield f"{digest:18} {rate:10,.0f} {own:8.2f} {servers:17.2f} {load:5.1f}"


def _copy(bench: World) -> None:
    """Copy the table to the sink's server."""
    dump = " ".join(bench.source.client_command("mysqldump"))
    load = " ".join(bench.sink.client_command("mysql"))
    bench.sink.execute(f"CREATE DATABASE {DATABASE}")
    command = f"{dump} --set-gtid-purged=OFF {DATABASE} lineitem | {load} {DATABASE}"
    subprocess.run(command, shell=True, check=True)


def _server_cpu_s(bench: World) -> float:
    """Return the CPU that both servers have used so far."""
    times = [psutil.Process(pid).cpu_times() for pid in bench.pids]
    return sum(each.user + each.system for each in times)
