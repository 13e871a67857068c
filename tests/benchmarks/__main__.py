"""`make bench`: all works, or those named by ONLY.

`CDC_BENCH_SCALE` is TPC-H's scale factor, `CDC_BENCH_RUNS` the runs of each subject.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import day, gaps, latency, mirror, ranges, resync, start, tables, verify
from tests.benchmarks.debian import DebianPeers
from tests.benchmarks.measure import Result, Sample, measured, summarised
from tests.benchmarks.ours.ablation import STEPS
from tests.benchmarks.report import OURS, machine, store, table
from tests.benchmarks.workload import WORKLOADS
from tests.benchmarks.world import DATABASE, Log, World, world

SCALE = float(os.environ.get("CDC_BENCH_SCALE", "0.1"))
RUNS = int(os.environ.get("CDC_BENCH_RUNS", "3"))
_PEERS, _OURS = "tests.benchmarks.peers", "tests.benchmarks.ours"
_PART_ROWS = 30_000
"""Peers that take minutes per million rows are measured on this many."""


@dataclass(frozen=True)
class Subject:
    """One subject of one work: what to run, and what to do before each run."""

    name: str
    module: str
    arguments: Mapping[str, object]
    prepare: Callable[[], None] = lambda: None


class Bench:
    """The works over one world."""

    def __init__(self, bench: World, folder: Path) -> None:
        self._world = bench
        self._folder = folder
        self._debian = DebianPeers.fetched()
        self.results: list[Result] = []
        self._ports = {"source": bench.source.port, "sink": bench.sink.port}

    def run(self, work: str, subjects: list[Subject], runs: int = RUNS) -> None:
        """Measure every subject in turn, so that a slow moment of the machine hits all."""
        samples: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
        for _ in range(runs):
            for subject in subjects:
                subject.prepare()
                arguments = {**self._ports, **subject.arguments}
                sample = measured(subject.module, arguments, self._world.pids)
                samples[subject.name].append(sample)
                print(f"{work:22} {subject.name:26} {sample}", flush=True)
        for subject in subjects:
            self.results.append(summarised(work, subject.name, samples[subject.name]))

    def read(self) -> None:
        """Measure lineitem to Parquet."""
        (largest,) = self._world.source.execute(f"SELECT MAX(l_orderkey) FROM {DATABASE}.lineitem")[
            0
        ]
        out = str(self._folder / "lineitem.parquet")
        whole = {"out": out, "rows": self._world.rows}
        jdbc = {"jar": str(self._debian.jdbc_jar.resolve()), "largest": largest}
        self.run(
            "snapshot to Parquet",
            [
                Subject(OURS, f"{_OURS}.parquet", whole, self._clear),
                Subject("connectorx", f"{_PEERS}.connectorx_parquet", whole, self._clear),
                Subject("Spark JDBC", f"{_PEERS}.spark_jdbc_parquet", whole | jdbc, self._clear),
                Subject(
                    "PyMySQL",
                    f"{_PEERS}.pymysql_parquet",
                    whole | {"limit": _PART_ROWS},
                    self._clear,
                ),
            ],
        )

    def lake(self) -> None:
        """Measure lineitem to a table of each format, and what a user would take instead."""
        (largest,) = self._world.source.execute(f"SELECT MAX(l_orderkey) FROM {DATABASE}.lineitem")[
            0
        ]
        jdbc = {"jar": str(self._debian.jdbc_jar.resolve()), "largest": largest}
        for form in ("iceberg", "delta"):
            whole = {"out": str(self._folder / form), "rows": self._world.rows, "form": form}
            self.run(
                f"snapshot to {form}",
                [
                    Subject(OURS, f"{_OURS}.lake", whole, self._clear),
                    Subject("connectorx", f"{_PEERS}.connectorx_lake", whole, self._clear),
                    Subject(
                        "Spark JDBC, Parquet",
                        f"{_PEERS}.spark_jdbc_parquet",
                        whole | jdbc,
                        self._clear,
                    ),
                ],
            )

    def copy(self) -> None:
        """Measure lineitem from server to server, with LOAD DATA and without."""
        rows = {"rows": self._world.rows}
        source, sink = self._world.source, self._world.sink
        dump = " ".join(source.client_command("mysqldump"))
        load = " ".join(sink.client_command("mysql"))
        pipe = f"{dump} --single-transaction --set-gtid-purged=OFF {DATABASE} lineitem"
        account = "-h 127.0.0.1 -u root -t 2"
        dumped = self._folder / "mydumper"
        mydumper = (
            f"{self._debian.command('mydumper')} {account} -P {source.port} -r 50000 "
            f"-B {DATABASE} -T lineitem -o {dumped} && {self._debian.command('myloader')} "
            f"{account} -P {sink.port} -B {DATABASE} -d {dumped}"
        )
        peers = [
            Subject(
                "mysqldump | mysql",
                f"{_PEERS}.shell",
                rows | {"command": f"{pipe} | {load} {DATABASE}"},
                self._empty_database,
            ),
            Subject(
                "mydumper, myloader",
                f"{_PEERS}.shell",
                rows | {"command": mydumper},
                self._empty_database,
            ),
        ]
        self.run("copy, LOAD allowed", [Subject(OURS, f"{_OURS}.copy", rows, self._empty), *peers])
        self.run(
            "copy, INSERT only", [Subject(OURS, f"{_OURS}.copy", rows, self._empty_no_load), *peers]
        )

    def decode(self) -> None:
        """Measure the four logs, small transactions, and an echo."""
        (uuid,) = self._world.source.execute("SELECT @@server_uuid")[0]
        for name in ("w1", "w2", "w3", "w4", "w5", "w6"):
            log = self._world.make_log(name)
            given = {
                "file": log.file,
                "table": log.table,
                "gtids": log.gtids_before,
                "size": log.path.stat().st_size,
                "server_uuid": uuid,
                "rows": log.rows,
            }
            if name == "w5":
                given |= {"path": str(log.path)}
                small = Subject(OURS, f"{_OURS}.decode_small", given)
                self.run("decode w5, ten rows at a time", [small])
            elif name == "w6":
                passed = Subject(OURS, f"{_OURS}.decode", given | {"echo": True})
                self.run("pass over w3, written at another node", [passed])
            else:
                self.run(f"decode {name}", list(self._decoders(log, given)))

    def _decoders(self, log: Log, given: dict[str, object]) -> Iterator[Subject]:
        reader = " ".join(self._world.source.client_command("mysqlbinlog"))
        command = f"{reader} --read-from-remote-server -v --base64-output=DECODE-ROWS {log.file}"
        yield Subject(OURS, f"{_OURS}.decode", given)
        yield Subject(
            "mysql-replication",
            f"{_PEERS}.mysql_replication_decode",
            given | {"limit": min(log.rows, _PART_ROWS // 2)},
        )
        yield Subject("mysqlbinlog -v", f"{_PEERS}.shell", given | {"command": command})
        if log.name in {"w1", "w3"}:
            # Of larger rows it reads so few a second that its start-up would be most of it.
            yield Subject("Debezium", f"{_PEERS}.debezium_stream", given | {"limit": log.rows})

    def apply(self) -> None:
        """Measure reading, decoding, merging and applying a log."""
        workload = WORKLOADS["w5"]
        connection = self._world.source.connect(user="root", password="", database=DATABASE)
        connection.autocommit(True)

        def fresh_table() -> None:
            self._empty()
            with connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE IF EXISTS {workload.table}")
                for statement in workload.prepare:
                    cursor.execute(statement)

        common = {"workload": "w5", "writers": 1}
        for work, given in (
            ("apply, transactions", {"mode": "transactions", "batch": 20_000}),
            ("apply, merged", {"mode": "merged", "batch": 50_000}),
            ("apply, merged, 2 writers", {"mode": "merged", "batch": 50_000, "writers": 2}),
        ):
            self.run(work, [Subject(OURS, f"{_OURS}.apply", common | given, fresh_table)])
        edges = common | {"mode": "transactions", "batch": 20_000}
        for work, beside in (("apply, edge", False), ("apply, edge, both write", True)):
            subjects = [
                Subject(f"{kind} edge", f"{_OURS}.apply", edges | given, fresh_table)
                for kind in ("plain", "guarded")
                if (given := {"edge": kind, "beside": beside})
            ]
            self.run(work, subjects)
        connection.close()

    def ablation(self) -> None:
        """Measure what each step of writing by INSERT adds."""
        self.run(
            "INSERT, step by step",
            [
                Subject(step, f"{_OURS}.ablation", {"step": step}, self._empty_no_load)
                for step in STEPS
            ],
        )

    def _empty(self) -> None:
        self._world.empty_sink()

    def _empty_no_load(self) -> None:
        self._world.empty_sink(local_infile=False)

    def _empty_database(self) -> None:
        self._world.empty_sink()
        self._world.sink.execute(f"CREATE DATABASE {DATABASE}")
        shutil.rmtree(self._folder / "mydumper", ignore_errors=True)

    def _clear(self) -> None:
        for left in self._folder.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()


WORKS = ("read", "lake", "copy", "decode", "apply", "ablation")
START, LATENCY, RESYNC = "start", "latency", "resync"
RANGES, TABLES, VERIFY, GAPS, MIRROR = "ranges", "tables", "verify", "gaps", "mirror"
DAY = "day"


def main() -> None:
    alone = {
        LATENCY: latency,
        RESYNC: resync,
        RANGES: ranges,
        TABLES: tables,
        VERIFY: verify,
        GAPS: gaps,
        MIRROR: mirror,
        DAY: day,
    }
    known = (*WORKS, START, *alone)
    wanted = sys.argv[1:] or list(known)
    unknown = set(wanted) - set(known)
    if unknown:
        raise SystemExit(f"no such work: {sorted(unknown)}; there are {', '.join(known)}")
    if START in wanted:
        wanted.remove(START)
        print("\n".join(start.lines(start.timings(RUNS))), flush=True)
    for name, module in alone.items():
        if name in wanted:
            wanted.remove(name)
            for line in module.lines(module.measured()):
                print(line, flush=True)
    if wanted:
        _measure(wanted)


def _measure(wanted: list[str]) -> None:
    with world(SCALE) as bench_world, tempfile.TemporaryDirectory() as folder:
        bench = Bench(bench_world, Path(folder))
        print(f"{machine()}, MySQL {bench_world.source.version}")
        print(f"lineitem: {bench_world.rows} rows, {RUNS} runs of each subject", flush=True)
        for work in wanted:
            getattr(bench, work)()
        print(table(bench.results))
        store(bench.results, Path("build/bench.json"))


if __name__ == "__main__":
    main()
