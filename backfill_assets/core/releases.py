"""Releasing a day: what a release is, when the next round of one may start, and what is amiss.

A day is released by a saga with a key of its own, ``catalogue/day``; a further round, after a
retraction or for content that was made again, is ``catalogue/day/2`` and so on. What the steps do
is in ``stores.releases``.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets.core.operations import Kind
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.partitions import parse_day
from backfill_assets.core.sagas import OnFailure, Retries, SagaDefinition, SagaStatus, Step
from backfill_assets.core.store import CommitRecord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

    from backfill_assets.core.catalogue import Catalogue
    from backfill_assets.core.operations import Json

NAME = "release_day"
LOAD, MANIFEST, NOTIFY = "load_rows", "write_manifest", "notify_subscribers"
TAKE_BACK, WITHDRAW, RETRACT = "take_rows_back", "withdraw_manifest", "tell_of_retraction"

# Nothing but the files can make loading fail for good; what stands was rolled back, so a later
# round may try again. A disk or a subscriber that fails is no reason to take a day's rows away.
RELEASE_DAY = SagaDefinition(
    name=NAME,
    description=(
        "Loads the rows of a closed, complete day into published_values, publishes its manifest, "
        "and tells subscribers. Undone, it is a retraction: rows and manifest go, the partitions "
        "are held, and subscribers are told."
    ),
    steps=(
        Step(name=LOAD, kind=Kind.TRANSACTIONAL, do=f"{NAME}.{LOAD}", undo=f"{NAME}.{TAKE_BACK}"),
        Step(
            name=MANIFEST,
            kind=Kind.ARTIFACT,
            do=f"{NAME}.{MANIFEST}",
            undo=f"{NAME}.{WITHDRAW}",
            after=(LOAD,),
            undo_order=1,
            on_failure=OnFailure.ASK,
        ),
        Step(
            name=NOTIFY,
            kind=Kind.REMOTE,
            do=f"{NAME}.{NOTIFY}",
            undo=f"{NAME}.{RETRACT}",
            after=(MANIFEST,),
            undo_order=2,  # who is told looks, and finds nothing any more
            on_failure=OnFailure.ASK,
            is_deduplicated=True,
            retries=Retries(max_attempts=10),  # about a quarter of an hour of a subscriber's time
        ),
    ),
)

# Rounds in a row that failed before the day's partitions are held: a file that cannot be read is
# made again at most that often without a person.
ROUNDS_BEFORE_HOLDING = 3
FIRST_WAIT = timedelta(minutes=1)  # between two rounds; doubled each time
LONGEST_WAIT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, order=True)
class ReleaseKey:
    """Which round of which day: the key of a saga."""

    catalogue: str
    day: date
    round: int = 1

    def __str__(self) -> str:
        first = f"{self.catalogue}/{self.day.isoformat()}"
        return first if self.round == 1 else f"{first}/{self.round}"

    @property
    def saga_id(self) -> str:
        """The id of the saga."""
        return f"{NAME}/{self}"

    @classmethod
    def parse(cls, text: str) -> ReleaseKey | None:
        """Return the key written so, or None where it is none of ours."""
        catalogue, _, rest = text.partition("/")
        day_text, _, number = rest.partition("/")
        day = parse_day(day_text)
        if day is None or (number and not number.isdecimal()):
            return None
        return cls(catalogue, day, int(number or 1))

    @property
    def following(self) -> ReleaseKey:
        """The key of the next round of the day."""
        return ReleaseKey(self.catalogue, self.day, self.round + 1)

    @property
    def arguments(self) -> dict[str, Json]:
        """What every step is told."""
        return {"catalogue": self.catalogue, "day": self.day.isoformat(), "round": self.round}

    @classmethod
    def of_arguments(cls, arguments: Any) -> ReleaseKey:
        """Return the key that a step was told."""
        key = cls.parse(f"{arguments['catalogue']}/{arguments['day']}/{arguments['round']}")
        if key is None:
            raise ValueError(f"{arguments} names no release; it was stored by another program")
        return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of releasing a day, as one read found it.

    Attributes:
        is_by_person: Whether a person had it undone.
        was_held: Whether the day's partitions were held for it once; a person may have let them go
            since.
        why: Why it was undone, or empty.
    """

    key: ReleaseKey
    status: SagaStatus
    updated_at: datetime
    is_by_person: bool = False
    was_held: bool = False
    why: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nobody works on it, and nobody is asked."""
        return self.status in (SagaStatus.COMPLETED, SagaStatus.COMPENSATED)


@dataclass(frozen=True, slots=True)
class StartRound:
    """The day may be released."""

    key: ReleaseKey


@dataclass(frozen=True, slots=True)
class HoldDay:
    """The partitions of the day are to be held, and a person told: it was taken back too often."""

    key: ReleaseKey
    reason: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is to be done about the day, and why."""

    why: str


def next_for_day(
    catalogue: str, day: date, rounds: Sequence[Round], now: datetime
) -> StartRound | HoldDay | Leave:
    """Return what is next for a day whose partitions are all committed and not held.

    Args:
        rounds: All of the day, oldest first.
    """
    if not rounds:
        return StartRound(ReleaseKey(catalogue, day))
    newest = rounds[-1]
    if newest.status is SagaStatus.COMPLETED:
        return Leave("it is released")
    if newest.status is not SagaStatus.COMPENSATED:
        return Leave(f"{newest.key.saga_id} is {newest.status}")
    if newest.was_held:
        return StartRound(newest.key.following)  # a person let the partitions go since
    return _next_after_failure(newest, failures_in_a_row(rounds), now)


def _next_after_failure(
    newest: Round, failures: int, now: datetime
) -> StartRound | HoldDay | Leave:
    if newest.is_by_person:
        return HoldDay(newest.key, f"{newest.key.saga_id} was retracted: {newest.why}")
    if failures >= ROUNDS_BEFORE_HOLDING:
        return HoldDay(newest.key, f"its release was taken back {failures} times: {newest.why}")
    retry_at = newest.updated_at + min(FIRST_WAIT * 2 ** (failures - 1), LONGEST_WAIT)
    if now < retry_at:
        return Leave(f"{newest.key.saga_id} failed; the next round is after {retry_at}")
    return StartRound(newest.key.following)


def failures_in_a_row(rounds: Sequence[Round]) -> int:
    """Return how many of the newest rounds were taken back, since one stood."""
    count = 0
    for one in reversed(rounds):
        if one.status is not SagaStatus.COMPENSATED:
            break
        count += 1
    return count


def partitions_of_day(catalogue: Catalogue, day: date) -> PartitionSet:
    """Return every partition that is expected of a day, whether it is closed or not."""
    queries = [query for query in catalogue.queries if query.first_day <= day]
    return PartitionSet.rectangle(catalogue, queries, [day], catalogue.open_units(day))


def complete_days(expected: PartitionSet, standing: PartitionSet) -> list[date]:
    """Return the days of which everything expected stands, newest first."""
    lacking = set((expected - standing).days())
    return [day for day in expected.days() if day not in lacking]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was released of a day; the same bytes whoever writes it, and whenever.

    Attributes:
        records: One for each partition, in plan order; without a source's fingerprint.
    """

    key: ReleaseKey
    records: tuple[CommitRecord, ...]

    @property
    def rows(self) -> int:
        """The rows of all partitions."""
        return sum(record.rows for record in self.records)

    @property
    def digest(self) -> str:
        """The digest of what was released; the same in another round with the same content."""
        return digest_of_records(self.records)

    def text(self) -> str:
        """Return the file's content: JSON that ends with a checksum of all before it."""
        facts = {
            **self.key.arguments,
            "rows": self.rows,
            "digest": self.digest,
            "partitions": [_facts(record) for record in self.records],
        }
        return json.dumps({**facts, "checksum": _checksum(facts)}, indent=1)

    @classmethod
    def parse(cls, text: str) -> Manifest | None:
        """Return the manifest that a file holds, or None where it is not whole."""
        try:
            facts = json.loads(text)
            checksum = facts.pop("checksum")
            if checksum != _checksum(facts):
                return None
            records = tuple(CommitRecord(**one) for one in facts["partitions"])
            return cls(ReleaseKey.of_arguments(facts), records)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def digest_of_records(records: Sequence[CommitRecord]) -> str:
    """Return the SHA-256 of what partitions say about themselves, in the order of their names."""
    by_name = sorted(records, key=lambda record: record.partition)
    return _checksum([_facts(record) for record in by_name])


def _facts(record: CommitRecord) -> dict[str, Any]:
    facts = asdict(record)
    facts.pop("source")
    return facts


def _checksum(facts: object) -> str:
    text = json.dumps(facts, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
