"""`make demo`: a MySQL database copied while it is written to, and proven equal.

Two real MySQL servers, TPC-H with all its keys and two awkward tables, a writer that never
rests, a real Airflow that runs `demo__sync`. `SINK=iceberg` or `SINK=delta` copies to a lake in a
folder instead of to the second server. Progress is shown while it runs; at the end the
writer stops, the stream passes the last position, both sides are compared, and one table says
what it took. Exit code 0 only if the sink equals the source. `KEEP=1` leaves everything up.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from airflow_cdc_provider.core.errors import NotStoppedYetError
from airflow_cdc_provider.core.verify_report import VerifyReport
from airflow_cdc_provider.pipeline.file.loader import load_pipeline
from airflow_cdc_provider.pipeline.run import Run, open_run
from airflow_cdc_provider.pipeline.steps.pausing import pause
from airflow_cdc_provider.pipeline.steps.verifying import verify, wait_for_stream
from airflow_cdc_provider.views.display import Screen
from airflow_cdc_provider.views.status import PipelineStatus, status
from tests.end_to_end import data
from tests.end_to_end.airflow_server import REPOSITORY, AirflowFailedError, AirflowServer
from tests.end_to_end.demo_sinks import DemoSink, chosen_kind, demo_sink
from tests.end_to_end.writer import Writer
from tests.servers.accounts import source_account
from tests.servers.throwaway import MySqlServer, Options

SCALE = float(os.environ.get("CDC_DEMO_SCALE", "0.1"))
KEEP = os.environ.get("KEEP", "") not in {"", "0"}
DAG = "demo__sync"
_STREAM_FOR_S = 10.0
_COPY_TIMEOUT_S = 420.0
_CATCH_UP_TIMEOUT_S = 120.0
_OPTIONS: Options = {
    "innodb-buffer-pool-size": "512M",
    "innodb-redo-log-capacity": "512M",
    "max-allowed-packet": "64M",
    "sync-binlog": 1,
    "innodb-flush-log-at-trx-commit": 1,
}


class DemoFailedError(Exception):
    """The demo did not reach its end; the message says where it stood."""


@dataclass
class Figures:
    """What the demo took."""

    began: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    largest_lag_s: float = 0.0

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time this takes under `name`."""
        start = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start


@dataclass(frozen=True)
class Demo:
    """Everything that is up."""

    source: MySqlServer
    sink: DemoSink
    airflow: AirflowServer
    run: Run
    screen: Screen
    figures: Figures
    dag_run: str

    def status(self) -> PipelineStatus:
        """Look at the state store."""
        return status(self.run.store, self.run.name, now_us=self.run.store.now_us())

    def wait(self, until: Callable[[PipelineStatus], bool], what: str, timeout_s: float) -> None:
        """Show progress until something is so; a failed DAG run or a deadline ends the demo."""
        deadline = time.monotonic() + timeout_s
        checked = 0.0
        while True:
            seen = self.status()
            self.screen.progress(self.status)
            if seen.stream is not None and seen.stream.lag_us is not None:
                self.figures.largest_lag_s = max(
                    self.figures.largest_lag_s, seen.stream.lag_us / 1e6
                )
            if until(seen):
                return
            now = time.monotonic()
            if now - checked > 5:
                checked = now
                self._check_dag_run(what)
            if now > deadline:
                raise DemoFailedError(
                    f"{what} took longer than {timeout_s:.0f} s; the newest logs:\n"
                    f"{self.airflow.log_tail()}"
                )
            time.sleep(0.5)

    def _check_dag_run(self, what: str) -> None:
        if self.airflow.run_state(DAG, self.dag_run) == "failed":
            raise DemoFailedError(f"the DAG run failed during {what}:\n{self.airflow.log_tail()}")


def main() -> int:
    """Run the demo; returns its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    screen, figures = Screen(as_json=False), Figures()
    try:
        to = demo_sink(chosen_kind(), _OPTIONS, data.TPCH, data.EXTRAS)
        with MySqlServer(_OPTIONS) as source, to as sink:
            return _with_servers(source, sink, screen, figures)
    except (DemoFailedError, AirflowFailedError) as failure:
        screen.close()
        screen.say(f"demo failed: {failure}")
        return 1
    finally:
        screen.close()


def _with_servers(source: MySqlServer, sink: DemoSink, screen: Screen, figures: Figures) -> int:
    screen.say(f"source: MySQL {source.version} on port {source.port}")
    screen.say(f"sink:   {sink.shown}")
    with figures.timed("load"):
        data.load(source, SCALE)
    screen.say(f"TPC-H at scale {SCALE} and two awkward tables are loaded")
    account = source_account(source, data.TPCH, data.EXTRAS)
    dsns = {"cdc_demo_source": account.dsn, **sink.connections}
    airflow = AirflowServer(dsns, dags=sink.dags, keep=KEEP)
    dsns["cdc_demo_state"] = f"sqlite:///{airflow.home}/cdc_state.db"
    with Writer(source) as writer:
        with figures.timed("start Airflow"):
            airflow.__enter__()
        try:
            return _with_airflow(airflow, dsns, (source, sink), writer, screen, figures)
        except BaseException as error:
            airflow.__exit__(type(error), error, None)
            raise


def _with_airflow(
    airflow: AirflowServer,
    dsns: dict[str, str],
    servers: tuple[MySqlServer, DemoSink],
    writer: Writer,
    screen: Screen,
    figures: Figures,
) -> int:
    screen.say(f"Airflow: {airflow.url}  user admin, password {airflow.password}")
    loaded = load_pipeline(servers[1].dags / "pipelines" / "demo.yaml")
    with open_run(loaded, lambda ref: dsns.get(ref.conn_id or ""), owner="demo") as run:
        dag_run = airflow.trigger(DAG)
        demo = Demo(*servers, airflow, run, screen, figures, dag_run)
        report = _copied_and_compared(demo, writer)
        wrong = demo.sink.differences(demo.source, run)
        screen.close()
        _show_figures(demo, writer, report)
        for line in wrong:
            screen.say(f"the independent comparison found: {line}")
        equal = report.equal and not wrong
        screen.say("the sink equals the source" if equal else "THE SINK DIFFERS FROM THE SOURCE")
        if KEEP:
            _leave_up(demo)
        else:
            screen.say("all of it is stopped now; KEEP=1 would leave it up to be looked at")
        _end(demo)
    airflow.stop()
    return 0 if equal else 1


def _copied_and_compared(demo: Demo, writer: Writer) -> VerifyReport:
    timed = demo.figures.timed
    with timed("snapshot"):
        demo.wait(lambda seen: seen.stream is not None, "the snapshot", _COPY_TIMEOUT_S)
    with timed("to the consistent point"):
        demo.wait(_is_streaming, "reaching the consistent point", _COPY_TIMEOUT_S)
    with timed("streaming under load"):
        until = time.monotonic() + _STREAM_FOR_S
        demo.wait(lambda _: time.monotonic() > until, "streaming", _COPY_TIMEOUT_S)
    writer.stop()
    with timed("catching up"):
        if not wait_for_stream(demo.run, timeout_s=_CATCH_UP_TIMEOUT_S):
            raise DemoFailedError(
                f"the stream did not pass the last position in {_CATCH_UP_TIMEOUT_S:.0f} s; the "
                f"newest logs:\n{demo.airflow.log_tail()}"
            )
    demo.screen.progress(demo.status)
    with timed("verify"):
        return verify(demo.run)


def _is_streaming(seen: PipelineStatus) -> bool:
    stream = seen.stream
    return stream is not None and stream.heartbeat_us > 0 and seen.is_consistent


def _show_figures(demo: Demo, writer: Writer, report: VerifyReport) -> None:
    seen = demo.status()
    rows = Table(title="demo", title_justify="left", show_header=False)
    rows.add_column(style="bold")
    rows.add_column(justify="right")
    snapshot_s = demo.figures.seconds["snapshot"]
    facts = [
        ("tables", f"{len(seen.tables)}"),
        ("splits", f"{seen.splits_finished}"),
        ("rows of the snapshot", f"{seen.rows:,}"),
        ("snapshot, from the trigger to the hand-off", f"{snapshot_s:.1f} s"),
        ("transactions written meanwhile", f"{writer.transactions:,}"),
    ]
    facts += [(f"  {kind}", f"{count:,}") for kind, count in sorted(writer.changes.items())]
    facts += [
        ("changes applied by the stream", f"{seen.stream.changes if seen.stream else 0:,}"),
        ("largest lag seen", f"{demo.figures.largest_lag_s:.1f} s"),
        ("rows compared", f"{sum(table.rows_source for table in report.tables):,}"),
        ("missing, extra, different", _differing(report)),
    ]
    facts += [
        (name, f"{seconds:.1f} s")
        for name, seconds in demo.figures.seconds.items()
        if name != "snapshot"
    ]
    facts.append(("altogether", f"{time.monotonic() - demo.figures.began:.1f} s"))
    for name, value in facts:
        rows.add_row(name, value)
    Console(highlight=False).print(rows)


def _differing(report: VerifyReport) -> str:
    counts = [
        sum(getattr(table, name) for table in report.tables)
        for name in ("missing", "extra", "different")
    ]
    return ", ".join(str(count) for count in counts)


def _leave_up(demo: Demo) -> None:
    """Wait until the user has seen enough."""
    password = f"mysql --host=127.0.0.1 --user=root --port={demo.source.port} tpch"
    demo.screen.say(
        f"\neverything stays up (KEEP=1):\n"
        f"  Airflow  {demo.airflow.url}  admin / {demo.airflow.password}\n"
        f"  source   {password}\n"
        f"  sink     {demo.sink.where()}\n"
        f"  logs     {demo.airflow.home}\n"
        "write to the source and watch the sink follow; Ctrl-C ends all of it"
    )
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        demo.screen.say("stopping")


def _end(demo: Demo) -> None:
    """Stop the stream at a boundary before its servers go away."""
    with suppress(NotStoppedYetError):
        pause(demo.run, wait_s=30.0)


def _check_place() -> None:
    if not (REPOSITORY / "dags" / "pipelines" / "demo.yaml").is_file():
        raise SystemExit(f"run the demo from a checkout; {REPOSITORY} is none")


if __name__ == "__main__":
    _check_place()
    raise SystemExit(main())
