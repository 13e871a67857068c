"""What preflight finds at the replicas whose lag holds up what reads rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from airflow_cdc_provider.columns.source_port import TellsLoad, offered
from airflow_cdc_provider.core.endpoint import Endpoint
from airflow_cdc_provider.core.errors import CdcError, RetryableError
from airflow_cdc_provider.core.findings import Finding, Level, PipelineCode
from airflow_cdc_provider.pipeline.run import Run
from airflow_cdc_provider.systems.registry import open_source


def throttle_findings(run: Run) -> Iterator[Finding]:
    """Yield a finding for each replica of the file's throttle whose lag cannot be told now.

    What may pass is a warning, and so is all of it once the snapshot is done: the stream goes on.
    """
    is_read = run.store.is_handed_off(run.name)
    for replica in run.servers.replicas:
        error = _asked(replica)
        if error is not None:
            may_pass = isinstance(error, RetryableError) or is_read
            yield Finding(
                PipelineCode.THROTTLE_REPLICA,
                Level.WARN if may_pass else Level.BLOCK,
                str(replica),
                error.what,
                "a replica that tells how far it is behind",
                "while its lag is not known no split is read",
                error.remedy,
            )


def _asked(replica: Endpoint) -> CdcError | None:
    """Ask a replica for its lag; return the error by which it is not known, None if it is."""
    try:
        with closing(offered(open_source(replica), TellsLoad).lag_look()) as look:
            look.lag_s()
    except CdcError as error:
        return error
    return None
