"""The worker deployment that a process is of: what Temporal's SDK is told of it, and whether anything comes to it."""

from __future__ import annotations

import logging
import shlex

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeWorkerDeploymentRequest
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

from openwop_mcp.config import ENVIRONMENT_PREFIX, SettingsError, Worker

__all__ = ("deployment_of", "version_of", "warn_unless_current")

logger = logging.getLogger(__name__)


def deployment_of(worker: Worker) -> WorkerDeploymentConfig | None:
    """The version that all workers of a process are of; None where the settings name none.

    The behaviour is that of runs: catalogs and shared effects have one of their own, which is right whatever is set.

    Raises:
        SettingsError: They name half of one. Only a process that is of a version has to know which: its build may stand
            in its own environment, and the rest of it in a file that all commands read.
    """
    if (worker.deployment is None) != (worker.build_id is None):
        there, missing = ("deployment", "build_id") if worker.build_id is None else ("build_id", "deployment")
        raise SettingsError(
            f"worker.{there} is set and worker.{missing} is not: a worker needs both or none. Write it in the settings,"
            f" or set {ENVIRONMENT_PREFIX}WORKER__{missing.upper()}"
        )
    if worker.versioning is not None and worker.deployment is None:
        raise SettingsError(
            "worker.versioning belongs to a deployment: set worker.deployment and worker.build_id, or take it out"
        )
    if worker.deployment is None or worker.build_id is None:
        return None
    upgraded = worker.versioning == "auto-upgrade"
    return WorkerDeploymentConfig(
        WorkerDeploymentVersion(worker.deployment, worker.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE if upgraded else VersioningBehavior.PINNED,
    )


def version_of(worker: Worker) -> dict[str, str]:
    """The same as members of a line that tells it, none where there is none."""
    if worker.deployment is None or worker.build_id is None:
        return {}
    return {"deployment": worker.deployment, "buildId": worker.build_id}


async def warn_unless_current(client: Client, worker: Worker) -> None:
    """Say how a worker gets new runs, where it gets none yet. Where Temporal does not tell, nobody can."""
    if worker.deployment is None or worker.build_id is None:
        await _warn_if_versioned(client, worker.task_queue)
        return
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=worker.deployment)
    try:
        routing = (
            await client.workflow_service.describe_worker_deployment(request)
        ).worker_deployment_info.routing_config
    except RPCError as error:
        # Temporal makes a deployment of the first poll, which may be on its way.
        if error.status is not RPCStatusCode.NOT_FOUND:
            return
    else:
        versions = (routing.current_deployment_version, routing.ramping_deployment_version)
        if worker.build_id in {version.build_id for version in versions}:
            return
    logger.warning(
        "new runs do not come to this version yet. Once all its workers run: temporal worker deployment"
        " set-current-version --deployment-name %s --build-id %s -n %s",
        worker.deployment,
        worker.build_id,
        shlex.quote(client.namespace),
    )


async def _warn_if_versioned(client: Client, task_queue: str) -> None:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        current = (
            await client.workflow_service.describe_task_queue(request)
        ).versioning_info.current_deployment_version
    except RPCError:
        return
    if not current.build_id:
        return
    logger.warning(
        "new runs of the task queue '%s' go to version '%s:%s', and not to this worker, which is of none: set"
        " worker.deployment and worker.build_id. To go back to workers without a version: temporal worker deployment"
        " set-current-version --deployment-name %s --unversioned -n %s",
        task_queue,
        current.deployment_name,
        current.build_id,
        shlex.quote(current.deployment_name),
        shlex.quote(client.namespace),
    )
