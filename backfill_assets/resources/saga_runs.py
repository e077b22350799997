"""Which runs the supervising sensor asks for: one for each saga that nobody drives."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from backfill_assets.core.errors import UnreadableSagaError
from backfill_assets.resources.saga_desk import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from backfill_assets.resources.saga_desk import SagaDesk
    from backfill_assets.stores.sagas.rows import Saga

SAGA_TAG = "backfill_assets/saga"
MAX_RUNTIME_TAG = "dagster/max_runtime"  # Dagster's own, in seconds; its run monitoring ends it
RUN_SAGA_JOB = "run_saga"
LOOK_AT_SAGAS_JOB = "look_at_sagas"
DRIVE_OP = "drive"
MAX_RUNS_PER_TICK = 20  # 0.1 to 0.4 s each to submit; a tick that outlives its 60 s is lost whole
# A run that was asked for and did not take its saga up by then has died, or never began.
ASK_AGAIN_AFTER = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class SagaTick:
    """One look of the supervisor.

    Attributes:
        requests: The runs to launch.
        cursor: What the last look at waiting sagas saw; a hint only.
        summary: What was done, in words.
    """

    requests: list[dg.RunRequest]
    cursor: str
    summary: str


def supervise(desk: SagaDesk, cursor: str | None) -> SagaTick:
    """Fence steps past their deadline, and ask for a run of each saga that is due."""
    fenced = desk.sagas.fence()
    due = desk.sagas.due()
    now = desk.clock()
    requests = [_drive_request(saga, now) for saga in due[:MAX_RUNS_PER_TICK]]
    seen = _digest([saga for saga in desk.open_sagas() if saga.question is not None])
    if seen != (cursor or _digest([])):
        requests.append(dg.RunRequest(job_name=LOOK_AT_SAGAS_JOB))
    summary = f"{len(fenced)} attempts fenced, {len(due)} sagas due"
    return SagaTick(requests, seen, summary)


def _drive_request(saga: Saga, now: datetime) -> dg.RunRequest:
    due_at = saga.due_at or now
    turn = int((now - due_at) / ASK_AGAIN_AFTER)
    return dg.RunRequest(
        # The lease says that nobody drives it: the state of an earlier run is not asked for, which
        # is STARTED for good where everything was killed.
        run_key=f"{saga.saga_id}:{saga.version}:{turn}",
        job_name=RUN_SAGA_JOB,
        run_config={"ops": {DRIVE_OP: {"config": {"saga": saga.saga_id}}}},
        # A run whose step hangs has been replaced by then, and would keep its place for hours.
        tags={SAGA_TAG: saga.saga_id, MAX_RUNTIME_TAG: str(_longest_seconds(saga))},
    )


def _longest_seconds(saga: Saga) -> int:
    """Return how long a run may drive a saga: each step tried and undone to its last second."""
    try:
        timeouts = [entry.step.timeout for entry in saga.plan.every_entry]
    except UnreadableSagaError:
        timeouts = []
    return int((2 * sum(timeouts, timedelta(0)) + PATIENCE + ASK_AGAIN_AFTER).total_seconds())


def _digest(waiting: Sequence[Saga]) -> str:
    text = "\n".join(sorted(f"{saga.saga_id} {saga.version}" for saga in waiting))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
