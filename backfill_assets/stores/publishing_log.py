"""Publishing under the idempotency log: who computes a partition, how often it was tried, and why.

The files stay the truth. The log keeps two runs from computing the same partition, remembers
failures, and fences runs that died; losing all of it costs a retry, never a result, and a row that
says COMPLETED does not stop a file that is gone from being made again.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import UnknownPartitionError
from backfill_assets.core.operations import (
    Busy,
    Claimed,
    Done,
    Kind,
    Operation,
    Outcome,
    Policy,
    Refused,
    Status,
)
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.stores.log.log import IdempotencyLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.operations import Attempt, Claim, Json, OperationState
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import PartitionStore

ALERT_ATTEMPTS = 5  # half an hour of trying: from here on a person should look

PUBLISH = Operation(
    name="publish",
    kind=Kind.ARTIFACT,
    policy=Policy(
        max_attempts=None,  # a mended source is noticed, however long it was broken
        # A run that died is known by the lock of its attempt, at once. The lease serves where
        # locks cannot be trusted; it is the longest time that a run may take.
        lease=timedelta(hours=24),
        first_wait=timedelta(minutes=1),
        longest_wait=timedelta(hours=1),  # a mended source is noticed within the hour
        jitter=0.0,
    ),
)

_VERSION = "@v"


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known about a partition that could not be made.

    Attributes:
        attempts: How often it failed in a row; 0 where only its source was not ready.
        error: What the last failure said.
        retry_at: The real instant before which the sensor does not try it again.
    """

    partition: Partition
    attempts: int
    error: str
    failed_at: datetime
    retry_at: datetime

    @property
    def needs_a_person(self) -> bool:
        """Whether it failed so often that an alert is raised; it goes on being tried."""
        return self.attempts >= ALERT_ATTEMPTS


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An attempt of which nobody has said how it ended.

    Attributes:
        is_at_work: By the log; False where its run was found dead.
    """

    partition: Partition
    run_id: str
    is_at_work: bool


@dataclass(frozen=True, slots=True)
class Completion:
    """What the log says of a partition that was published.

    Attributes:
        attempt: The number of the one that published it.
        digest: Of the content; None where the file was found, and nobody knows who made it.
    """

    attempt: int
    digest: str | None


class PublishingLog:
    """The attempts of all runs to publish partitions.

    Args:
        url: Gives the address of the log database; asked whenever a connection is opened.
        clock: Gives the real instant: waiting is a matter of real time, whatever day the data's
            clock shows.
    """

    def __init__(self, url: Callable[[], str], clock: Callable[[], datetime]) -> None:
        self._url = url
        self._clock = clock
        self._log = self._log_of("sensor")

    def of_run(self, run_id: str, store: PartitionStore[Any]) -> RunClaims:
        """Return the claims of one run, whose attempt in the store begins with its id."""
        return RunClaims(run_id, self._log_of(run_id), store, self._clock)

    def failures(self, catalogue: Catalogue) -> list[Failure]:
        """Return what has failed of a catalogue and was not made since."""
        states = self._open_states(catalogue)
        found = (_failure(catalogue, s) for s in states if s.status is Status.FAILED)
        return [failure for failure in found if failure is not None]

    def unfinished(self, catalogue: Catalogue) -> list[Unfinished]:
        """Return the attempts that have not said how they ended; failures are none of them."""
        return [
            Unfinished(partition, state.worker, state.status is Status.PROCESSING)
            for state in self._open_states(catalogue)
            if state.status is Status.PROCESSING or state.outcome is Outcome.UNKNOWN
            if (partition := _partition(catalogue, state.key)) is not None
        ]

    def completions(self, partitions: Collection[Partition]) -> dict[Partition, Completion]:
        """Return what was published of these by the log; the others are left out."""
        by_key = {key_of(partition): partition for partition in partitions}
        with closing(self._log):
            stored = self._log.results(PUBLISH, by_key)
        return {
            by_key[key]: Completion(
                found.attempt, found.result if isinstance(found.result, str) else None
            )
            for key, found in stored.items()
            if found.status == Status.COMPLETED
        }

    def correct(self, found: Mapping[Partition, Completion], *, reason: str) -> list[Partition]:
        """Write down the digests of the files that stand; the old ones are kept in the trail.

        Args:
            found: The attempt that was looked at, and the digest of the file. What was published
                since is left alone.

        Returns:
            Those that were corrected.
        """
        by_key = {key_of(partition): partition for partition in found}
        results = {key: (found[p].attempt, found[p].digest) for key, p in by_key.items()}
        with closing(self._log):
            corrected = self._log.correct(PUBLISH, results, reason=reason)
        return [by_key[key] for key in corrected]

    def forget(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Let failures and doubts be over: the files stand, whoever made them; return those."""
        by_key = {key_of(partition): partition for partition in partitions}
        if not by_key:
            return []
        with closing(self._log):
            return [by_key[key] for key in self._log.prove(PUBLISH, by_key)]

    def end_run(self, run_id: str) -> None:
        """End the attempts of a run that is known to be dead, and whose directory was revoked."""
        with closing(self._log):
            self._log.end_worker(PUBLISH, run_id)

    def _open_states(self, catalogue: Catalogue) -> list[OperationState]:
        with closing(self._log):
            return self._log.open_states(PUBLISH, f"{catalogue.name}/")

    def _log_of(self, worker: str) -> IdempotencyLog:
        return IdempotencyLog(self._url, worker=worker, clock=self._clock)


@dataclass(slots=True)
class RunClaims:
    """The partitions that one run has claimed and not yet published."""

    run_id: str
    _log: IdempotencyLog
    _store: PartitionStore[Any]
    _clock: Callable[[], datetime]
    _attempts: dict[Partition, Attempt] = field(default_factory=dict)

    def take(self, wanted: PartitionSet, *, again: PartitionSet) -> Taken:
        """Claim partitions, in bulk; each is granted to one run at a time.

        Args:
            again: Those to be made again though they are committed.

        Returns:
            What was granted, what stands committed by now, and what other runs are at work on.
        """
        open_ones = [p for p in wanted if p not in self._attempts]
        answers = self._claim(open_ones)
        answers |= self._claim_done(answers, again)
        answers |= self._claim_of_dead(answers)
        self._adopt(self._committed(wanted.catalogue, self._keep(answers)) - again)
        granted = PartitionSet.of(wanted.catalogue, (p for p in wanted if p in self._attempts))
        busy = self._of(wanted.catalogue, answers, Busy, Refused)
        return Taken(granted, wanted - granted - busy, busy)

    def attempt(self, partition: Partition) -> Attempt | None:
        """Return the attempt at a partition that was granted and not yet published."""
        return self._attempts.get(partition)

    def complete(self, digests: Mapping[Partition, str]) -> None:
        """Say that partitions stand published, with the digests of their content."""
        results: dict[Attempt, Json] = {
            self._attempts.pop(p): digest for p, digest in digests.items() if p in self._attempts
        }
        self._log.complete_many(results)

    def fail(self, partitions: Iterable[Partition], error: Exception) -> None:
        """Say that partitions could not be made; each backs off."""
        self._fail(partitions, error, is_spent=True)

    def put_off(self, partitions: Iterable[Partition], error: Exception) -> None:
        """Say that the source of partitions is not ready: they wait, and no attempt is spent."""
        self._fail(partitions, error, is_spent=False)

    def close(self) -> None:
        """Give back what was claimed and neither published nor failed."""
        if self._attempts:
            self._log.end_worker(PUBLISH, self.run_id)
        self._attempts.clear()
        self._log.close()

    def _fail(self, partitions: Iterable[Partition], error: Exception, *, is_spent: bool) -> None:
        attempts = [self._attempts.pop(p) for p in partitions if p in self._attempts]
        # Backing off is the sensor's; a person may have it tried again at once.
        self._log.fail_many(attempts, error, is_spent=is_spent, retry_at=self._clock())

    def _claim(
        self, partitions: Iterable[Partition], disproved: Mapping[Partition, int] | None = None
    ) -> dict[Partition, Claim]:
        by_key = {key_of(partition): partition for partition in partitions}
        payloads: dict[str, Json] = dict.fromkeys(by_key)
        false = {key_of(p): attempt for p, attempt in (disproved or {}).items()}
        answers = self._log.claim_many(PUBLISH, payloads, disproved=false) if by_key else {}
        return {by_key[key]: answer for key, answer in answers.items()}

    def _claim_done(
        self, answers: Mapping[Partition, Claim], again: PartitionSet
    ) -> dict[Partition, Claim]:
        """Claim what the log calls done: the file is gone, or it is to be made again."""
        done = {p: answer.attempt for p, answer in answers.items() if isinstance(answer, Done)}
        if not done:
            return {}
        restated = [p for p in done if p in again]
        if restated:
            payloads: dict[str, Json] = {key_of(p): None for p in restated}
            self._log.reopen(PUBLISH, payloads, reason="restated")
        present = self._committed(again.catalogue, done)
        gone = {p: attempt for p, attempt in done.items() if p not in present and p not in again}
        return self._claim([*restated, *gone], gone)

    def _claim_of_dead(self, answers: Mapping[Partition, Claim]) -> dict[Partition, Claim]:
        """Claim what runs that are dead were at work on, after taking their directories away."""
        busy = {p: answer.worker for p, answer in answers.items() if isinstance(answer, Busy)}
        dead = {worker for worker in busy.values() if not self._store.is_alive(worker)}
        for worker in sorted(dead):
            self._store.revoke(worker)
            self._log.end_worker(PUBLISH, worker)
        return self._claim(p for p, worker in busy.items() if worker in dead)

    def _keep(self, answers: Mapping[Partition, Claim]) -> list[Partition]:
        """Keep what was granted; return those that an earlier attempt may have published."""
        granted = {p: a.attempt for p, a in answers.items() if isinstance(a, Claimed)}
        self._attempts |= granted
        for worker in {a.taken_from for a in granted.values() if a.taken_from is not None}:
            self._store.revoke(worker)  # before anybody looks at the target
        return [partition for partition, attempt in granted.items() if attempt.in_doubt]

    def _committed(self, catalogue: Catalogue, partitions: Collection[Partition]) -> PartitionSet:
        asked = PartitionSet.of(catalogue, partitions)
        if not asked:
            return asked
        return self._store.scan(catalogue, within=asked).committed & asked

    def _adopt(self, committed: PartitionSet) -> None:
        """Complete attempts whose partition an earlier one had published after all."""
        records = self._store.records(committed)
        self.complete({partition: record.digest for partition, record in records.items()})

    @staticmethod
    def _of(
        catalogue: Catalogue, answers: Mapping[Partition, Claim], *kinds: type[Claim]
    ) -> PartitionSet:
        return PartitionSet.of(catalogue, (p for p, a in answers.items() if isinstance(a, kinds)))


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of partitions that a run wanted to compute.

    Attributes:
        granted: Its own, until it publishes or fails them.
        committed: Somebody else published them meanwhile.
        busy: Runs that are alive are at work on them.
    """

    granted: PartitionSet
    committed: PartitionSet
    busy: PartitionSet


def key_of(partition: Partition) -> str:
    """Return the idempotency key of a partition: its coordinates and its query's version."""
    return f"{partition}{_VERSION}{partition.query.version}"


def backing_off(catalogue: Catalogue, failures: Iterable[Failure], now: datetime) -> PartitionSet:
    """Return the partitions that are not to be tried again at ``now``, a real instant."""
    waiting = (failure.partition for failure in failures if failure.retry_at > now)
    return PartitionSet.of(catalogue, waiting)


def _failure(catalogue: Catalogue, state: OperationState) -> Failure | None:
    """Return a failure, or None where none is known of a partition that the catalogue has.

    A run that was killed is no failure of its partitions: they are taken up again at once.
    """
    if state.outcome is not Outcome.FAILED or state.error is None:
        return None
    partition = _partition(catalogue, state.key)
    if partition is None:
        return None
    return Failure(
        partition=partition,
        attempts=state.spent,
        error=state.error.error_message,
        failed_at=state.updated_at,
        retry_at=state.updated_at + PUBLISH.policy.wait_after(max(state.spent, 1), 0.0),
    )


def _partition(catalogue: Catalogue, key: str) -> Partition | None:
    """Return the partition of a key, or None where the catalogue has none, or a newer version."""
    try:
        partition = catalogue.parse(key.rpartition(_VERSION)[0])
    except UnknownPartitionError:
        return None
    return partition if key_of(partition) == key else None
