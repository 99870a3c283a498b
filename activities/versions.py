"""What becomes of workflows that are under way when another version of a worker deployment becomes the current one.

It is said of a worker and not of a workflow: Temporal takes it from no worker that is of no deployment.
"""

from __future__ import annotations

import dataclasses

from temporalio.common import VersioningBehavior
from temporalio.worker import WorkerDeploymentConfig

__all__ = ("behaving",)


def behaving(deployment: WorkerDeploymentConfig | None, behavior: VersioningBehavior) -> WorkerDeploymentConfig | None:
    """The same version, with this behaviour for the workflows of one worker. What has no versions stays as it is."""
    if deployment is None or not deployment.use_worker_versioning:
        return deployment
    return dataclasses.replace(deployment, default_versioning_behavior=behavior)
