"""What the steps of ``release_day`` do, and what takes each of them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.core.errors import (
    CorruptPartitionError,
    MissingPartitionError,
    NotAppliedError,
    ReleaseError,
    TryAgainError,
)
from backfill_assets.core.releases import (
    LOAD,
    MANIFEST,
    NAME,
    NOTIFY,
    RETRACT,
    TAKE_BACK,
    WITHDRAW,
    Manifest,
    ReleaseKey,
    digest_of_records,
    partitions_of_day,
)
from backfill_assets.stores.releases.manifests import Manifests
from backfill_assets.stores.releases.published import Content
from backfill_assets.stores.releases.subscribers import Notice, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.operations import Json
    from backfill_assets.core.partition_sets import PartitionSet
    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import CommitRecord, PartitionStore
    from backfill_assets.stores.releases.published import PublishedRows
    from backfill_assets.stores.sagas.actions import DoCall, UndoCall


@dataclass(frozen=True, slots=True)
class ReleaseActions:
    """The steps, on the store and the tables of a deployment.

    Args:
        catalogues: Those whose days can be released.
        clock: Gives the present real instant.
    """

    store: PartitionStore[Any]
    catalogues: Sequence[Catalogue]
    rows: PublishedRows
    clock: Callable[[], datetime]

    @property
    def do(self) -> dict[str, Callable[[DoCall], Json]]:
        """What the steps do, by registered name."""
        return {
            f"{NAME}.{LOAD}": self.load_rows,
            f"{NAME}.{MANIFEST}": self.write_manifest,
            f"{NAME}.{NOTIFY}": self.notify_subscribers,
        }

    @property
    def undo(self) -> dict[str, Callable[[UndoCall], Json]]:
        """What takes them back, by registered name."""
        return {
            f"{NAME}.{TAKE_BACK}": self.take_rows_back,
            f"{NAME}.{WITHDRAW}": self.withdraw_manifest,
            f"{NAME}.{RETRACT}": self.tell_of_retraction,
        }

    @property
    def manifests(self) -> Manifests:
        """The manifests beside the files."""
        return Manifests(self.store.documents)

    def load_rows(self, call: DoCall) -> Json:
        """Load the rows of all partitions of the day, as their files say.

        Raises:
            NotAppliedError: a file is missing or damaged; nothing was loaded.
        """
        key = ReleaseKey.of_arguments(call.arguments)
        contents = [self.content(p) for p in partitions_of_day(self.catalogue(key), key.day)]
        if not contents:
            raise NotAppliedError(f"{key}: no partition is expected of that day")
        self.rows.load(call.connection, key, contents, self.clock())
        records = [content.record for content in contents]
        return {
            "partitions": len(records),
            "rows": sum(record.rows for record in records),
            "digest": digest_of_records(records),
        }

    def take_rows_back(self, call: UndoCall) -> Json:
        """Remove the rows that this release loaded, and no other's.

        Raises:
            ConflictError: somebody changed them since.
        """
        key = ReleaseKey.of_arguments(call.arguments)
        return {"had_rows": self.rows.take_back(call.connection, key)}

    def write_manifest(self, call: DoCall) -> Json:
        """Publish the manifest of what was loaded: rows and manifest cannot differ.

        Raises:
            TryAgainError: the rows do not stand.
            NotAppliedError: the manifest was withdrawn.
        """
        key = ReleaseKey.of_arguments(call.arguments)
        if self.manifests.is_withdrawn(key):
            raise NotAppliedError(f"{key}: the manifest was withdrawn; nothing was written")
        return {"manifest": self.publish_manifest(key)}

    def withdraw_manifest(self, call: UndoCall) -> Json:
        """Withdraw the manifest, and hold the partitions so that they are not simply made again.

        Where another round stands by now, the partitions are its, and are left alone.
        """
        key = ReleaseKey.of_arguments(call.arguments)
        why = self.why_undone(key)
        self.manifests.withdraw(key, why)
        if later := self.later_round(key):
            return {"held": 0, "superseded_by": later}
        return {"held": self.hold(key, f"{key.saga_id} was retracted: {why}")}

    def notify_subscribers(self, call: DoCall) -> Json:
        """Tell every subscriber that the day was released.

        Raises:
            ReleaseError: not all confirmed; any may have been told.
        """
        key = ReleaseKey.of_arguments(call.arguments)
        body: dict[str, Json] = {
            "event": "day_released",
            **key.arguments,
            "release": call.attempt.remote_key,
            "loaded": call.results[LOAD],
            **_object(call.results[MANIFEST]),
        }
        notice = Notice(idempotency_key=call.attempt.remote_key, body=body)
        return {"told": tell(_subscribers(call), notice, call.deadline - self.clock())}

    def tell_of_retraction(self, call: UndoCall) -> Json:
        """Tell every subscriber that the release does not stand any more.

        Those that never heard of it are told as well: it may still be on its way.
        """
        key = ReleaseKey.of_arguments(call.arguments)
        if later := self.later_round(key):
            return {"told": 0, "superseded_by": later}
        body: dict[str, Json] = {
            "event": "day_retracted",
            **key.arguments,
            "release": call.do_key,
            "why": self.why_undone(key),
        }
        notice = Notice(idempotency_key=call.attempt.remote_key, body=body)
        return {"told": tell(_subscribers(call), notice, call.deadline - self.clock())}

    def publish_manifest(self, key: ReleaseKey) -> str:
        """Publish the manifest of the rows that stand; return where it is.

        Raises:
            TryAgainError: a release's rows do not stand.
        """
        records = {record.partition: record for record in self.rows.records(key)}
        if not records:
            raise TryAgainError(f"{key}: its rows do not stand, so nothing can be said of them")
        return self.manifests.publish(Manifest(key, tuple(self._in_plan_order(key, records))))

    def content(self, partition: Partition) -> Content:
        """Return a partition as its file says, read and checked in one moment.

        Raises:
            NotAppliedError: it is missing or damaged.
        """
        try:
            record, table = self.store.read_checked(partition)
        except (MissingPartitionError, CorruptPartitionError) as error:
            raise NotAppliedError(str(error)) from error
        return Content(partition, record, table)

    def hold(self, key: ReleaseKey, reason: str) -> int:
        """Hold the partitions of a day that are not held yet; return how many there are."""
        wanted = partitions_of_day(self.catalogue(key), key.day)
        held = self.store.scan(wanted.catalogue, within=wanted).held
        self.store.hold(list(wanted - held), reason)
        return len(wanted)

    def catalogue(self, key: ReleaseKey) -> Catalogue:
        """Return the catalogue of a release.

        Raises:
            NotAppliedError: there is none of that name any more.
        """
        for catalogue in self.catalogues:
            if catalogue.name == key.catalogue:
                return catalogue
        known = ", ".join(catalogue.name for catalogue in self.catalogues)
        raise NotAppliedError(f"{key}: there is no catalogue {key.catalogue!r}, but {known}")

    def standing(self, partitions: PartitionSet) -> dict[str, CommitRecord]:
        """Return what the files of partitions say about themselves, by name."""
        return {str(p): record for p, record in self.store.records(partitions).items()}

    def later_round(self, key: ReleaseKey) -> str | None:
        """Return the saga of a later round that stands or is on its way, or None."""
        rounds = self.rows.rounds(key.catalogue, key.day).get(key.day, [])
        later = [r.key.saga_id for r in rounds if r.key > key and r.status != "COMPENSATED"]
        return later[-1] if later else None

    def why_undone(self, key: ReleaseKey) -> str:
        """Return why a release is being taken back."""
        rounds = self.rows.rounds(key.catalogue, key.day).get(key.day, [])
        return next((one.why for one in rounds if one.key == key), "")

    def _in_plan_order(
        self, key: ReleaseKey, records: dict[str, CommitRecord]
    ) -> list[CommitRecord]:
        """Return records in plan order, those that the catalogue has no more at the end."""
        names = [str(p) for p in partitions_of_day(self.catalogue(key), key.day)]
        known = [records.pop(name) for name in names if name in records]
        return [*known, *records.values()]


def _subscribers(call: DoCall | UndoCall) -> list[str]:
    arguments: Any = call.arguments
    return list(arguments["subscribers"])


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ReleaseError(f"a receipt is {value!r}; expected an object")
    return value
