"""A run in a process of its own, as a code server starts one: it can be killed, or terminated."""

# ruff: noqa: TID251 - what Dagster's own code server does, without a server

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.reconstruct import reconstructable
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._grpc.impl import start_run_in_subprocess
from dagster._grpc.types import ExecuteExternalJobArgs
from dagster._serdes import serialize_value

from backfill_assets.resources.instance_storage import close_connections
from backfill_assets_tests.stores.children import Child, child

if TYPE_CHECKING:
    from collections.abc import Iterator

_jobs: list[dg.JobDefinition] = []


def newest_job() -> dg.JobDefinition:
    """Return the job of the run that was started last: a child has it from its parent."""
    return _jobs[-1]


@dataclass(frozen=True, slots=True)
class RunWorker:
    """A run, and the process that executes it."""

    instance: dg.DagsterInstance
    run: dg.DagsterRun
    process: Child

    @property
    def status(self) -> dg.DagsterRunStatus:
        """What Dagster says of the run now."""
        found = self.instance.get_run_by_id(self.run.run_id)
        assert found is not None
        return found.status

    def terminate_when_stopped(self) -> None:
        """Terminate the run in a step that has stopped the process: it is told as it wakes up."""
        self.process.wait_until_stopped()
        self.terminate()
        self.process.go_on()

    def terminate(self) -> None:
        """Terminate the run, as its page does."""
        self.instance.report_run_canceling(self.run)
        os.kill(self.process.pid, signal.SIGTERM)


@contextmanager
def running(
    instance: dg.DagsterInstance, job: dg.JobDefinition, run_config: dict[str, Any]
) -> Iterator[RunWorker]:
    """Execute a run of a job in another process; it is dead at the end of the block."""
    _jobs.append(job)
    location = RegisteredCodeLocationOrigin("tests")
    origin = RemoteRepositoryOrigin(location, "tests").get_job_origin(job.name)
    run = instance.create_run_for_job(
        job,
        run_config=run_config,
        remote_job_origin=origin,
        status=dg.DagsterRunStatus.STARTING,
    )
    arguments = serialize_value(
        ExecuteExternalJobArgs(
            job_origin=origin, run_id=run.run_id, instance_ref=instance.get_ref()
        )
    )
    close_connections()  # a child has none of its parent's

    def execute() -> None:
        start_run_in_subprocess(
            arguments,
            reconstructable(newest_job),
            multiprocessing.SimpleQueue(),
            multiprocessing.Event(),
        )

    with child(execute) as process:
        yield RunWorker(instance, run, process)
    _jobs.pop()
