"""What is submitted to a cluster, and how: plain values without a secret in them.

The connection's meaning is the Spark provider's own. Here is only what it does not see: which of
its ways our jobs can go, and by which channel the servers' DSNs reach a driver that runs elsewhere.

- client mode: the driver is a child of the process that submits, and inherits its environment;
- YARN in cluster mode: a file that only its owner may read goes with `--files` into the
  application's staging folder, which YARN keeps for the submitting user alone and removes;
- Kubernetes in cluster mode: secrets of the cluster, named in `spark.conf` by the user
  (`spark.kubernetes.driver.secretKeyRef.<variable>`), so none passes through here;
- standalone in cluster mode: Spark refuses Python there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any, Self

from airflow_cdc_provider.core.errors import NOTHING_STARTED, RefusedError
from airflow_cdc_provider.core.jobspec import JobSpec

_PROVIDER = "airflow.providers.apache.spark"
_KUBERNETES = "airflow.providers.cncf.kubernetes"
_SECRET = "spark.kubernetes.driver.secretKeyRef"  # noqa: S105 - a setting's name
_UPLOADS = "spark.kubernetes.file.upload.path"
_NAMESPACE = "spark.kubernetes.namespace"
_MODE = "deploy-mode"
_RESOURCE_MANAGER = "yarn_resourcemanager_webapp_address"


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where the driver of a submitted job runs: master and deploy mode."""

    master: str
    mode: str
    """`client` or `cluster`."""
    tracks: bool = False
    """The cluster's own API is asked how the application is, and told to end it."""

    @classmethod
    def of(cls, master: str, extra: Mapping[str, Any], conf: Mapping[str, str]) -> Self:
        """Read master and deploy mode from a connection's extra and the file's settings."""
        mode = str(extra.get(_MODE) or conf.get("spark.submit.deployMode") or "client")
        is_yarn, is_kubernetes = master.startswith("yarn"), master.startswith("k8s")
        tracks = (is_yarn and bool(extra.get(_RESOURCE_MANAGER))) or (
            is_kubernetes and bool(extra.get("namespace") or conf.get(_NAMESPACE))
        )
        return cls(master, mode, tracks=mode == "cluster" and tracks)

    @property
    def is_cluster(self) -> bool:
        return self.mode == "cluster"

    @property
    def is_yarn(self) -> bool:
        return self.master.startswith("yarn")

    @property
    def is_kubernetes(self) -> bool:
        return self.master.startswith("k8s")


@dataclass(frozen=True, slots=True)
class SubmitOrder:
    """All that the submitting process needs to submit one job, without secrets."""

    conn_id: str
    deployment: Deployment
    application: str
    arguments: tuple[str, ...]
    name: str
    conf: Mapping[str, str] = field(default_factory=dict)
    py_files: str = ""
    files: str = ""

    def to_json(self) -> str:
        """Return the order as JSON; `from_json` reads it back equal."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the order from JSON."""
        form = json.loads(text)
        deployment = Deployment(**form.pop("deployment"))
        return cls(deployment=deployment, arguments=tuple(form.pop("arguments")), **form)


def has_provider() -> bool:
    """Tell whether Airflow's Spark provider is installed."""
    return _is_there(_PROVIDER)


def require_possible(
    where: str, deployment: Deployment, spec: JobSpec, conf: Mapping[str, str], state_dsn: str
) -> None:
    """Refuse a deployment that cannot work, before anything is started."""
    problem = _problem(deployment, spec, conf, state_dsn)
    if problem is not None:
        what, remedy = problem
        raise RefusedError(what, where=where, risk=NOTHING_STARTED, remedy=remedy)


def _problem(
    deployment: Deployment, spec: JobSpec, conf: Mapping[str, str], state_dsn: str
) -> tuple[str, str] | None:
    """Return problem and fix of a deployment that cannot work, None if it can."""
    if deployment.mode not in {"client", "cluster"}:
        return f"there is no deploy mode {deployment.mode!r}", "write client or cluster"
    if deployment.is_kubernetes and not _is_there(_KUBERNETES):
        return (
            "Airflow's Spark provider needs its Kubernetes provider for such a master",
            "pip install apache-airflow-providers-cncf-kubernetes",
        )
    if not deployment.is_cluster:
        return None
    if not (deployment.is_yarn or deployment.is_kubernetes):
        return (
            f"{deployment.master} is a standalone cluster, where Spark runs no Python in cluster "
            "mode",
            "make the connection's deploy mode client: the driver then runs beside the task",
        )
    if state_dsn.startswith("sqlite:"):
        return (
            "the state is a file of SQLite on this machine, and the driver runs on another one",
            "keep the state in MySQL or PostgreSQL, or make the connection's deploy mode client",
        )
    return _kubernetes_problem(spec, conf) if deployment.is_kubernetes else None


def _kubernetes_problem(spec: JobSpec, conf: Mapping[str, str]) -> tuple[str, str] | None:
    """Return problem and fix if settings for Kubernetes are missing, else None."""
    named = [f"{_SECRET}.{name}" for name in spec.secret_envs]
    lacking = [name for name in named if not conf.get(name)]
    if lacking:
        return (
            f"nothing tells the driver's pod the servers' DSNs: {', '.join(lacking)} "
            f"{'is' if len(lacking) == 1 else 'are'} not in spark.conf",
            "keep the DSNs in a Secret of the cluster and name it there, as in "
            f"{lacking[0]}: cdc-shop:source",
        )
    if not conf.get(_UPLOADS):
        return (
            f"{_UPLOADS} is not in spark.conf, so the job's program cannot reach the pod",
            "name a folder there that both this machine and the pods reach, such as s3a://...",
        )
    return None


def _is_there(module: str) -> bool:
    """Tell whether a module is installed."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
