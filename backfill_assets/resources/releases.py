"""Releasing days: which ones are next, retracting one, and mending what does not agree.

The sensor, the jobs and the command line share this. The files say which days are complete; the
sagas say how far the release of each is.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from backfill_assets.core.agreement import Agreement, Fault, Finding, ReleasedDay
from backfill_assets.core.errors import (
    CorruptPartitionError,
    KeyReusedError,
    NotAppliedError,
    ReleaseError,
)
from backfill_assets.core.operations import Kind, Operation
from backfill_assets.core.releases import (
    NAME,
    NOTIFY,
    RELEASE_DAY,
    HoldDay,
    Leave,
    ReleaseKey,
    StartRound,
    complete_days,
    next_for_day,
    partitions_of_day,
)
from backfill_assets.core.sagas import SagaStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date, datetime

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.operations import Json
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.plan import Plan
    from backfill_assets.core.store import CommitRecord
    from backfill_assets.resources.project import Project
    from backfill_assets.stores.log.log import IdempotencyLog
    from backfill_assets.stores.releases.actions import ReleaseActions
    from backfill_assets.stores.releases.published import PublishedDay
    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets.stores.sagas.sagas import Sagas

# Once for each round: a person may let the partitions go, and they are not held again for it.
HOLD_DAY = Operation(name="hold_day", kind=Kind.ARTIFACT)

PATIENCE = timedelta(seconds=20)  # of a person at a terminal, for another driver of the saga


@dataclass(frozen=True, slots=True, kw_only=True)
class Releasing:
    """What is needed to release days of a project.

    Args:
        subscribers: The addresses that are told; stored with each release.
        clock: Gives the present real instant.
    """

    project: Project
    sagas: Sagas
    log: IdempotencyLog
    actions: ReleaseActions
    clock: Callable[[], datetime]
    subscribers: Sequence[str] = ()

    def next_steps(self, plan: Plan) -> Iterator[StartRound | HoldDay]:
        """Yield what is to be done about the complete days of a plan, newest first."""
        name = plan.catalogue.name
        rounds = self.actions.rows.rounds(name)
        now = self.clock()
        for day in complete_days(plan.expected, plan.committed - plan.restating):
            step = next_for_day(name, day, rounds.get(day, ()), now)
            if not isinstance(step, Leave):
                yield step

    def made_again(self, plan: Plan) -> list[ReleaseKey]:
        """Return the next rounds of released days whose files were made again since."""
        name = plan.catalogue.name
        recorded = self.actions.rows.recorded(name)
        rounds = self.actions.rows.rounds(name)
        found = []
        for day in complete_days(plan.expected, plan.committed - plan.restating):
            ones = rounds.get(day, ())
            if day in recorded and ones and ones[-1].status is SagaStatus.COMPLETED:
                files = self._records(plan.catalogue, day)[0]
                if _contents(files) != _contents(recorded[day]):
                    found.append(ones[-1].key.following)
        return found

    def release(self, key: ReleaseKey, *, who: str, why: str = "") -> Saga:
        """Start the release of a day, unless it was, and drive it as far as it goes.

        Raises:
            ReleaseError: the day is not complete.
        """
        catalogue = self._catalogue(key.catalogue)
        wanted = partitions_of_day(catalogue, key.day)
        plan = self.project.plan(catalogue, within=wanted)
        wanted = wanted & plan.expected
        if not wanted or wanted - plan.committed:
            message = (
                f"{key} is not complete: {len(wanted & plan.committed)} of {len(wanted)} expected "
                "partitions are committed; `backfill-assets plan` says why"
            )
            raise ReleaseError(message)
        # Started with other subscribers before the setting changed, it goes on with those.
        with contextlib.suppress(KeyReusedError):
            self.sagas.start(NAME, str(key), self._arguments(key), who=who, why=why)
        return self.sagas.run(key.saga_id)

    def hold_day(self, step: HoldDay) -> None:
        """Hold the partitions of a day, once for each round, and tell a person first."""

        def act(_attempt: object) -> Json:
            subject = f"{step.key.catalogue} {step.key.day} is held: {step.reason}"
            body: Json = {
                "saga": step.key.saga_id,
                "release": f"backfill-assets release '{step.key.catalogue}/*/*/{step.key.day}/*'",
                "reason": step.reason,
            }
            # Before the holds: what is held is complete no more, and nobody would look again.
            dedup_key = f"held:{step.key.saga_id}"
            self.actions.rows.alert(dedup_key, subject, body, self.clock())
            return {"held": self.actions.hold(step.key, step.reason)}

        self.log.run(HOLD_DAY, step.key.saga_id, None, act)

    def retract(self, catalogue: str, day: date, *, who: str, why: str) -> list[Saga]:
        """Take a released day back: rows, manifest, files; and tell subscribers.

        What is left undone by a crash, the supervisor of sagas goes on with.

        Raises:
            ReleaseError: the day is not released, nor on its way, or no reason is given.
            SagaStateError: it waits with an undo that failed; a person decides about that first.
        """
        if not why.strip():
            message = "a retraction needs a reason: subscribers and holds repeat it"
            raise ReleaseError(message)
        self._catalogue(catalogue)
        undone = []
        for key in self._to_retract(catalogue, day):
            self.sagas.cancel(key.saga_id, who=who, why=why)
            undone.append(self.sagas.run(key.saga_id, patience=PATIENCE))
        self._hold_where_nothing_did(catalogue, day)
        return undone

    def reconcile(self, catalogue: Catalogue, *, repair: bool = False) -> Agreement:
        """Compare the rows and manifests of released days with the files; mend them if asked to.

        Only rows and manifests are changed, never files. Days whose release is being worked on are
        left out.
        """
        plan = self.project.plan(catalogue)
        agreement = Agreement()
        for standing in self._standing(catalogue):
            if isinstance(standing, ReleaseKey):
                self._reconcile_day(agreement, catalogue, plan, standing, repair=repair)
                continue
            name = f"{catalogue.name}/{standing.day}"
            agreement.findings.append(Finding(Fault.NO_RELEASE, name, standing.saga))
            if repair:
                self.actions.rows.remove_day(catalogue.name, standing)
                agreement.repairs.append(f"{name}: rows of {standing.saga} removed")
        return agreement

    def close(self) -> None:
        """Close this thread's connections."""
        self.sagas.close()
        self.actions.rows.close()
        self.log.close()

    def _reconcile_day(
        self,
        agreement: Agreement,
        catalogue: Catalogue,
        plan: Plan,
        key: ReleaseKey,
        *,
        repair: bool,
    ) -> None:
        files, unsound = self._records(catalogue, key.day)
        stored = self.actions.rows.stored(catalogue.name, key.day)
        # What a damaged file holds is not known: no reason to touch its rows.
        files |= {name: stored[name].recorded for name in unsound if name in stored}
        expected = {str(p) for p in partitions_of_day(catalogue, key.day) & plan.expected}
        day = ReleasedDay(
            name=f"{catalogue.name}/{key.day}",
            files=files,
            stored=stored,
            manifest=self.actions.manifests.read(key),
            is_complete=not unsound and bool(files) and expected <= files.keys(),
        )
        agreement.findings += [Finding(Fault.UNSOUND_FILE, n, e) for n, e in unsound.items()]
        found = day.findings()
        agreement.findings += found
        if repair and found:
            agreement.repairs += self._mend(catalogue, key, day, len(found))

    def _mend(
        self, catalogue: Catalogue, key: ReleaseKey, day: ReleasedDay, count: int
    ) -> list[str]:
        if day.is_made_again:
            rounds = self.actions.rows.rounds(key.catalogue, key.day)[key.day]
            why = "its files are not what was released"
            saga = self.release(rounds[-1].key.following, who="reconcile", why=why)
            return [f"{day.name}: released anew by {saga.saga_id}, which is {saga.status}"]
        done = []
        if day.to_load or day.to_remove:
            partitions = {str(p): p for p in partitions_of_day(catalogue, key.day)}
            chosen = [partitions[name] for name in day.to_load if name in partitions]
            try:
                contents = [self.actions.content(partition) for partition in chosen]
                self.actions.rows.mend(key, contents, day.to_remove, self.clock())
            except (NotAppliedError, ReleaseError) as error:
                return [f"{day.name}: not mended: {error}"]
            done.append(
                f"{day.name}: {len(contents)} partitions loaded from their files, "
                f"{len(day.to_remove)} without a file removed"
            )
        if day.lacks_manifest:
            done.append(f"{day.name}: manifest written: {self.actions.publish_manifest(key)}")
        return done or [f"{day.name}: {count} findings wait until all its files are committed"]

    def _standing(self, catalogue: Catalogue) -> Iterator[ReleaseKey | PublishedDay]:
        """Yield the release that stands for each day, newest first, or rows that none stands for.

        A day of which a round is on its way is left out.
        """
        published = self.actions.rows.days(catalogue.name)
        rounds = self.actions.rows.rounds(catalogue.name)
        for day in sorted(published.keys() | rounds.keys(), reverse=True):
            ones = rounds.get(day, [])
            if ones and not ones[-1].is_over:
                continue
            standing = published.get(day)
            if standing is not None:
                status = {one.key.saga_id: one.status for one in ones}.get(standing.saga)
                is_released = status is SagaStatus.COMPLETED
                key = ReleaseKey(catalogue.name, day, standing.round)
                yield key if is_released else standing
            elif ones[-1].status is SagaStatus.COMPLETED:
                yield ones[-1].key

    def _to_retract(self, catalogue: str, day: date) -> list[ReleaseKey]:
        """Return the rounds that stand or are on their way, the newest first.

        A round whose rows a later one has replaced is left as it is.
        """
        rounds = self.actions.rows.rounds(catalogue, day).get(day, [])
        standing = self.actions.rows.days(catalogue).get(day)
        alive = [one for one in rounds if one.status is not SagaStatus.COMPENSATED]
        if not alive:
            message = f"{catalogue} {day} is not released, and no release of it is on its way"
            raise ReleaseError(message)
        oldest = alive[-1].key.round if standing is None else standing.round
        return [one.key for one in reversed(alive) if one.key.round >= oldest]

    def _hold_where_nothing_did(self, catalogue: str, day: date) -> None:
        """Hold a day whose release was undone before it had a manifest."""
        newest = self.actions.rows.rounds(catalogue, day)[day][-1]
        if newest.status is SagaStatus.COMPENSATED and not newest.was_held:
            reason = f"{newest.key.saga_id} was retracted: {newest.why}"
            self.hold_day(HoldDay(newest.key, reason))

    def _records(
        self, catalogue: Catalogue, day: date
    ) -> tuple[dict[str, CommitRecord], dict[str, str]]:
        """Return what the files of a day say about themselves, and what is wrong with others."""
        files: dict[str, CommitRecord] = {}
        unsound: dict[str, str] = {}
        for partition in partitions_of_day(catalogue, day):
            try:
                files |= self._record(partition)
            except CorruptPartitionError as error:
                unsound[str(partition)] = str(error)
        return files, unsound

    def _record(self, partition: Partition) -> dict[str, CommitRecord]:
        found = self.project.store.records([partition])
        return {str(one): record for one, record in found.items()}

    def _catalogue(self, name: str) -> Catalogue:
        for catalogue in self.project.catalogues:
            if catalogue.name == name:
                return catalogue
        known = ", ".join(catalogue.name for catalogue in self.project.catalogues)
        raise ReleaseError(f"there is no catalogue {name!r}, but {known}")

    def _arguments(self, key: ReleaseKey) -> dict[str, Json]:
        arguments: dict[str, Json] = {step.name: key.arguments for step in RELEASE_DAY.steps}
        return arguments | {NOTIFY: {**key.arguments, "subscribers": list(self.subscribers)}}


def _contents(records: dict[str, CommitRecord]) -> dict[str, tuple[int, int, str]]:
    return {name: (r.version, r.rows, r.digest) for name, r in records.items()}
