"""What several tests need of `test_resync`."""

from __future__ import annotations

from airflow_cdc_provider.core.requests import Request, RequestStatus
from tests.spark.pipelines import Pipeline


def asked(pipeline: Pipeline, request_id: str) -> Request:
    found = pipeline.store.request(pipeline.name, request_id)
    assert found is not None
    return found


def is_done(pipeline: Pipeline, request_id: str) -> bool:
    request = asked(pipeline, request_id)
    assert request.status is not RequestStatus.FAILED, request.error
    return request.status is RequestStatus.DONE
