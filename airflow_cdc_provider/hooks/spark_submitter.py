"""The process that submits one job by Airflow's own `SparkSubmitHook`, and lasts as long as it.

Its order comes on standard input; the connection is in its environment, where the hook looks first,
because a process that Airflow did not start cannot ask Airflow. What spark-submit says goes to
standard output, which is the job's log: in client mode that is what the driver says.

SIGTERM ends the job. In client mode the driver is asked, which lets go of its lease then; whoever
asked kills the process group if it does not end. In cluster mode the hook kills the application by
the cluster's API, where it knows one.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_cdc_provider.hooks.spark_order import SubmitOrder

_SUBMITTED = "Submitted application"
"""What YARN's client says once all files are in the staging folder."""
_warnings = logging.getLogger(__name__)
_warnings.setLevel(logging.WARNING)


class OrderedHook(SparkSubmitHook):
    """Airflow's `SparkSubmitHook` with master and settings of an order."""

    def __init__(self, order: SubmitOrder) -> None:
        deployment = order.deployment
        self._order = order
        super().__init__(
            conf=dict(order.conf),
            conn_id=order.conn_id,
            py_files=order.py_files or None,
            files=order.files or None,
            name=order.name,
            application_args=list(order.arguments),
            deploy_mode=deployment.mode,
            track_driver_via_k8s_api=deployment.is_kubernetes and deployment.tracks,
            yarn_track_via_rm_api=deployment.is_yarn and deployment.tracks,
        )

    @property
    def log(self) -> Any:
        """Return a logger of warnings only: spark-submit's output is passed on as it is."""
        return _warnings

    def _resolve_connection(self) -> dict[str, Any]:
        """Return the connection with the order's master."""
        # The provider takes a host without a port for the whole master; ours is complete.
        return {**super()._resolve_connection(), "master": self._order.deployment.master}

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        """Pass the output of spark-submit on to the provider."""
        super()._process_spark_submit_log(self._told(itr))

    def _told(self, lines: Iterable[str]) -> Iterator[str]:
        """Write the output of spark-submit to the log, and yield its lines."""
        for line in lines:
            sys.stdout.write(line)
            sys.stdout.flush()
            if _SUBMITTED in line:
                self.remove_servers()
            yield line

    def remove_servers(self) -> None:
        """Delete the file of DSNs: the cluster has a copy, or the job has ended."""
        if self._order.files:
            Path(self._order.files).unlink(missing_ok=True)

    def command(self) -> list[str]:
        """Return the command line of spark-submit."""
        return list(self._build_spark_submit_command(self._order.application))

    def run(self) -> None:
        """Submit the job and wait for its end; raise if it fails."""
        self.submit(self._order.application)
        if self._should_track_yarn_application_via_rm_api():
            self._start_yarn_application_status_tracking(str(self._yarn_application_id))
        elif self._should_track_driver_via_k8s_api():
            self._poll_k8s_driver_via_api()

    def stop(self) -> None:
        """Stop the job: by the cluster, or by a signal to a driver on this machine."""
        submitted = self._submit_sp
        if self._order.deployment.is_cluster or submitted is None:
            try:
                self.on_kill()
            except OSError as error:  # the provider's last resort is YARN's own command
                sys.stderr.write(f"the application was not told to end: {error}\n")
            self.remove_servers()
            os._exit(128 + signal.SIGTERM)  # it may be waiting anywhere in the provider's code
        for child in _children(submitted.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started, by any of its threads."""
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended
            found += map(int, listed.read_text(encoding="ascii").split())
    return found


def main() -> int:
    """Submit the job whose order comes on standard input; return 0 unless it failed."""
    order = SubmitOrder.from_json(sys.stdin.read())
    hook = OrderedHook(order)
    signal.signal(signal.SIGTERM, lambda *_: hook.stop())
    try:
        hook.run()
    except Exception as failure:  # noqa: BLE001 - of whatever kind the provider raises
        first = str(failure).partition("\n")[0]
        sys.stderr.write(f"submitting ended: {type(failure).__name__}: {first}\n")
        return 1
    finally:
        hook.remove_servers()
    return 0


if __name__ == "__main__":
    sys.exit(main())
