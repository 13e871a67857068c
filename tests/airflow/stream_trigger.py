"""What several tests need of `test_stream_trigger`."""

from __future__ import annotations

from typing import Any

from airflow_cdc_provider.triggers.stream import CdcStreamTrigger


def trigger(state_dsn: str, **changes: Any) -> CdcStreamTrigger:
    path = state_dsn.removeprefix("sqlite:///")
    return CdcStreamTrigger(
        **{"pipeline": "shop", "state": {"path": path}, "poll_s": 0.02, **changes}
    )
