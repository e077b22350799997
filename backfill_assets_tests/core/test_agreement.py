"""What is amiss between files, rows and manifest of a released day, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date

from backfill_assets.core.agreement import Fault, ReleasedDay, StoredPartition
from backfill_assets.core.releases import Manifest, ReleaseKey
from backfill_assets.core.store import CommitRecord

KEY = ReleaseKey("flights", date(2013, 8, 3))
A = CommitRecord("flights/carrier/delay/2013-08-03/EWR", 1, 2, "da")
B = CommitRecord("flights/carrier/delay/2013-08-03/JFK", 1, 3, "db")


def by_name(*records: CommitRecord) -> dict[str, CommitRecord]:
    return {record.partition: record for record in records}


def as_loaded(*records: CommitRecord) -> dict[str, StoredPartition]:
    return {record.partition: StoredPartition(record, record) for record in records}


@dataclass(frozen=True)
class Verdict:
    faults: list[Fault] = field(default_factory=list)
    to_load: list[str] = field(default_factory=list)
    to_remove: list[str] = field(default_factory=list)
    lacks_manifest: bool = False
    is_made_again: bool = False


def verdict(day: ReleasedDay) -> Verdict:
    return Verdict(
        [finding.fault for finding in day.findings()],
        day.to_load,
        day.to_remove,
        day.lacks_manifest,
        day.is_made_again,
    )


GOOD = ReleasedDay(
    name="flights/2013-08-03",
    files=by_name(A, B),
    stored=as_loaded(A, B),
    manifest=Manifest(KEY, (A, B)),
    is_complete=True,
)


def test_a_day_that_agrees_has_nothing_amiss() -> None:
    assert verdict(GOOD) == Verdict()


def test_the_sources_fingerprint_is_no_content() -> None:
    day = replace(GOOD, files=by_name(replace(A, source="f"), B))
    assert verdict(day) == Verdict()


def test_rows_without_a_file_go_when_the_file_went() -> None:
    day = replace(GOOD, files=by_name(A), is_complete=False)
    assert verdict(day) == Verdict([Fault.ROWS_WITHOUT_FILE], to_remove=[B.partition])


def test_a_file_without_rows_is_loaded() -> None:
    day = replace(GOOD, stored=as_loaded(A))
    assert verdict(day) == Verdict([Fault.FILE_WITHOUT_ROWS], to_load=[B.partition])


def test_rows_that_somebody_changed_are_loaded_again() -> None:
    fewer = {B.partition: StoredPartition(B, replace(B, rows=2, digest="x"))}
    other = {B.partition: StoredPartition(B, replace(B, digest="x"))}
    for changed, fault in ((fewer, Fault.OTHER_COUNT), (other, Fault.OTHER_CONTENT)):
        day = replace(GOOD, stored=as_loaded(A) | changed)
        assert verdict(day) == Verdict([fault], to_load=[B.partition])


def test_files_that_were_made_again_are_released_anew_and_not_loaded() -> None:
    day = replace(GOOD, files=by_name(A, replace(B, digest="dn")))
    assert verdict(day) == Verdict([Fault.MADE_AGAIN], is_made_again=True)
    # Not before the day is complete: half of it is nothing to tell subscribers.
    waiting = replace(day, is_complete=False)
    assert verdict(waiting) == Verdict([Fault.MADE_AGAIN])


def test_a_partition_that_is_expected_since_is_released_anew() -> None:
    new = CommitRecord("flights/hour/delay/2013-08-03/JFK", 1, 1, "dn")
    day = replace(GOOD, files=by_name(A, B, new))
    assert verdict(day) == Verdict([Fault.FILE_WITHOUT_ROWS], is_made_again=True)


def test_another_version_of_a_query_is_other_content() -> None:
    day = replace(GOOD, files=by_name(A, replace(B, version=2)))
    assert verdict(day) == Verdict([Fault.MADE_AGAIN], is_made_again=True)


def test_a_manifest_that_is_gone_is_written_again() -> None:
    day = replace(GOOD, manifest=None)
    assert verdict(day) == Verdict([Fault.NO_MANIFEST], lacks_manifest=True)


def test_without_manifest_and_rows_nothing_says_what_was_released() -> None:
    day = replace(GOOD, manifest=None, stored={})
    assert verdict(day).is_made_again


def test_a_manifest_of_other_content_is_told_of() -> None:
    other = replace(B, digest="x")
    day = replace(GOOD, manifest=Manifest(KEY, (A, other)))
    assert verdict(day) == Verdict([Fault.OTHER_MANIFEST], is_made_again=True)
    # A partition whose rows were removed because its file went, and that is not back yet.
    waiting = replace(GOOD, files=by_name(A), stored=as_loaded(A), is_complete=False)
    assert verdict(waiting) == Verdict([Fault.OTHER_MANIFEST])
