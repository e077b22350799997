"""What every store of partitions promises; a store's test class inherits it and gives ``store``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from backfill_assets.core.errors import (
    ContentConflictError,
    MissingPartitionError,
    SourceError,
    StaleAttemptError,
    StoreUnreadableError,
)
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets_tests.stores.examples import (
    DAY,
    DEPARTURES,
    EWR,
    FLIGHTS,
    GROUP,
    JFK,
    JFK_DELAY,
    LGA_NEXT_DAY,
    TICK_SECONDS,
    publish,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backfill_assets.core.partitions import Partition
    from backfill_assets.core.store import PartitionStore


def committed(store: PartitionStore[Any]) -> list[Partition]:
    """Return what a scan finds committed and not held, in plan order."""
    inventory = store.scan(FLIGHTS)
    return list(inventory.committed - inventory.held)


def held(store: PartitionStore[Any]) -> list[Partition]:
    """Return what a scan finds held, in plan order."""
    return list(store.scan(FLIGHTS).held)


def values_of(store: PartitionStore[Any], partition: Partition) -> list[Any]:
    """Return the values that the store has of a partition."""
    values: list[Any] = store.read(partition).column("value").to_pylist()
    return values


class PartitionStoreContract:
    """The promises of ``core.store``; a subclass gives ``store``, an empty and prepared one."""

    def test_a_new_store_has_nothing(self, store: PartitionStore[Any]) -> None:
        inventory = store.scan(FLIGHTS)

        assert not inventory.committed
        assert not inventory.held
        assert (inventory.strangers, inventory.strangers_count) == ((), 0)

    def test_what_is_published_is_committed_and_reads_as_it_was_given(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, GROUP, [1, None, 3])

        assert committed(store) == list(GROUP)
        for partition in GROUP:
            assert store.read(partition).to_pylist() == [
                {"date": partition.day, "unit": partition.unit, "carrier": "C0", "value": 1},
                {"date": partition.day, "unit": partition.unit, "carrier": "C1", "value": None},
                {"date": partition.day, "unit": partition.unit, "carrier": "C2", "value": 3},
            ]

    def test_what_is_published_is_reported_in_the_order_in_which_it_was_staged(
        self, store: PartitionStore[Any]
    ) -> None:
        published = publish(store, [JFK, LGA_NEXT_DAY, EWR], [1, 2, 3])

        assert [p.partition for p in published] == [JFK, LGA_NEXT_DAY, EWR]
        assert [p.adopted for p in published] == [False, False, False]
        assert all(p.size > 0 for p in published)

    def test_the_record_names_partition_version_rows_and_the_digest_of_the_rows(
        self, store: PartitionStore[Any]
    ) -> None:
        (published,) = publish(store, [JFK], [1, 2])

        record = published.record
        assert record.partition == "flights/carrier/departures/2013-08-03/JFK"
        assert (record.version, record.rows) == (1, 2)
        # SHA-256 of [["C0","C1"],[1,2]]
        assert record.digest == "29fb9955915769183f416e011dd3de7cee80ae2cbb44ca346ec0dc5221fe9af6"
        assert store.verify(JFK) == record
        assert store.records(GROUP) == {JFK: record}

    def test_a_scan_within_a_set_finds_what_is_there_of_its_days(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, GROUP)
        store.hold([EWR], "doubtful")

        inventory = store.scan(FLIGHTS, within=PartitionSet.of(FLIGHTS, [EWR]))

        assert list(inventory.committed) == [JFK]  # of the same query and day
        assert list(inventory.held) == [EWR]
        assert store.scan(FLIGHTS, within=PartitionSet.empty(FLIGHTS)).committed.masks == {}

    def test_nothing_is_visible_before_it_is_published(self, store: PartitionStore[Any]) -> None:
        with store.attempt("run") as attempt:
            attempt.stage(JFK, rows_of(JFK))
            assert committed(store) == []

        assert committed(store) == []
        assert store.sweep() == 0

    def test_a_publish_of_nothing_publishes_nothing(self, store: PartitionStore[Any]) -> None:
        with store.attempt("run") as attempt:
            assert attempt.publish() == []

    def test_an_attempt_publishes_group_after_group(self, store: PartitionStore[Any]) -> None:
        with store.attempt("run") as attempt:
            attempt.stage(LGA_NEXT_DAY, rows_of(LGA_NEXT_DAY))
            assert [p.partition for p in attempt.publish()] == [LGA_NEXT_DAY]
            attempt.stage(JFK, rows_of(JFK))
            assert [p.partition for p in attempt.publish()] == [JFK]
            assert attempt.publish() == []

        assert committed(store) == [LGA_NEXT_DAY, JFK]

    def test_an_empty_partition_is_committed_and_an_absent_one_is_missing(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, [JFK], [])

        assert committed(store) == [JFK]
        assert values_of(store, JFK) == []
        assert store.verify(JFK).rows == 0
        with pytest.raises(MissingPartitionError):
            store.read(EWR)

    @pytest.mark.parametrize("verb", ["read", "verify"])
    def test_a_missing_partition_is_named_with_asset_key_place_and_remedy(
        self, store: PartitionStore[Any], verb: str
    ) -> None:
        with pytest.raises(MissingPartitionError) as caught:
            getattr(store, verb)(JFK)

        message = str(caught.value)
        assert "2013-08-03|JFK of flights/carrier/departures is not committed" in message
        assert store.location(JFK) in message
        assert "backfill-assets plan --explain 'flights/carrier/departures/2013-08-03/JFK'" in (
            message
        )

    def test_the_same_content_is_adopted_and_not_written_again(
        self, store: PartitionStore[Any]
    ) -> None:
        (first,) = publish(store, [JFK], name="first")
        (second,) = publish(store, [JFK], name="second")

        assert (first.adopted, second.adopted) == (False, True)
        assert first.record == second.record

    def test_of_two_open_attempts_the_first_to_publish_wins(
        self, store: PartitionStore[Any]
    ) -> None:
        with store.attempt("first") as first, store.attempt("second") as second:
            first.stage(JFK, rows_of(JFK, [1]))
            second.stage(JFK, rows_of(JFK, [2]))
            second.publish()
            with pytest.raises(ContentConflictError):
                first.publish()

        assert values_of(store, JFK) == [2]

    def test_other_content_is_refused_with_both_digests_and_the_rest_is_published(
        self, store: PartitionStore[Any]
    ) -> None:
        (before,) = publish(store, [EWR], [1, 2, 3])

        with pytest.raises(ContentConflictError) as caught:
            publish(store, GROUP, [1, 2])

        assert [p.partition for p in caught.value.published] == [LGA_NEXT_DAY, JFK]
        message = str(caught.value)
        assert before.record.digest in message
        assert caught.value.published[0].record.digest in message
        assert store.location(EWR) in message
        assert "Restate" in message
        assert values_of(store, EWR) == [1, 2, 3]
        assert committed(store) == list(GROUP)

    def test_every_refused_partition_of_a_group_is_named(self, store: PartitionStore[Any]) -> None:
        publish(store, [EWR, JFK], [1, 2, 3])

        with pytest.raises(ContentConflictError) as caught:
            publish(store, GROUP, [1, 2])

        (note,) = caught.value.__notes__
        assert store.location(EWR) in str(caught.value)
        assert store.location(JFK) in note

    def test_replacing_puts_the_new_content_in_place(self, store: PartitionStore[Any]) -> None:
        publish(store, [JFK], [1, 2])

        (replaced,) = publish(store, [JFK], [3], replace=True)

        assert not replaced.adopted
        assert values_of(store, JFK) == [3]
        assert store.verify(JFK) == replaced.record

    def test_replacing_by_the_same_content_is_reported_as_adopted(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, [JFK])

        (again,) = publish(store, [JFK], replace=True)

        assert again.adopted

    def test_the_same_rows_after_the_source_has_changed_are_unchanged_and_say_so(
        self, store: PartitionStore[Any]
    ) -> None:
        (before,) = publish(store, [JFK], source="monday")

        (after,) = publish(store, [JFK], replace=True, source="tuesday")

        assert after.adopted
        assert after.record.is_same_content(before.record)
        assert store.records([JFK])[JFK].source == "tuesday"
        assert store.source_fingerprints([JFK]) == {JFK: "tuesday"}
        assert store.verify(JFK) == after.record

    def test_other_rows_after_the_source_has_changed_are_no_longer_what_they_were(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, [JFK], [1], source="monday")

        (after,) = publish(store, [JFK], [2], replace=True, source="tuesday")

        assert not after.adopted
        assert values_of(store, JFK) == [2]
        assert store.source_fingerprints([JFK]) == {JFK: "tuesday"}

    def test_replacing_what_is_not_there_publishes_it(self, store: PartitionStore[Any]) -> None:
        (published,) = publish(store, [JFK], replace=True)

        assert not published.adopted
        assert committed(store) == [JFK]

    def test_a_wish_that_comes_while_its_partition_is_made_again_is_not_yet_fulfilled(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, [JFK, EWR])
        store.ask_to_restate([JFK, EWR])
        with store.attempt("run-1") as attempt:
            attempt.stage(JFK, rows_of(JFK, [3]))
            attempt.stage(EWR, rows_of(EWR, [3]))
            time.sleep(TICK_SECONDS)
            store.ask_to_restate([JFK])  # the source was corrected once more
            attempt.publish(replace=True)
        assert list(store.scan(FLIGHTS).restating) == [JFK]

        time.sleep(TICK_SECONDS)
        publish(store, [JFK], [4], replace=True)
        assert list(store.scan(FLIGHTS).restating) == []
        assert values_of(store, JFK) == [4]

    @pytest.mark.parametrize(
        "bad",
        [{"carrier": ["C0"]}, {"carrier": ["C0"], "value": ["many"]}, {"value": [float("inf")]}],
    )
    def test_a_refused_write_leaves_the_old_content(
        self, store: PartitionStore[Any], bad: dict[str, list[Any]]
    ) -> None:
        import pyarrow as pa

        publish(store, [JFK], [1, 2])

        with store.attempt("run") as attempt, pytest.raises(SourceError):
            attempt.stage(JFK, pa.table(bad))

        assert values_of(store, JFK) == [1, 2]
        assert committed(store) == [JFK]

    def test_rows_that_were_read_of_another_partition_are_refused(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, [JFK])

        with store.attempt("run") as attempt, pytest.raises(SourceError, match="belongs elsewhere"):
            attempt.stage(EWR, store.read(JFK))

        assert committed(store) == [JFK]

    def test_queries_and_units_and_days_do_not_share_a_place(
        self, store: PartitionStore[Any]
    ) -> None:
        for number, partition in enumerate((*GROUP, JFK_DELAY)):
            publish(store, [partition], [number])

        assert [values_of(store, p) for p in (*GROUP, JFK_DELAY)] == [[0], [1], [2], [3]]
        assert len({store.location(p) for p in (*GROUP, JFK_DELAY)}) == 4

    def test_an_attempt_is_alive_as_long_as_it_is_open(self, store: PartitionStore[Any]) -> None:
        assert not store.is_alive("run-1")
        with store.attempt("run-1.step"):
            assert store.is_alive("run-1")
            assert not store.is_alive("run-2")

        assert not store.is_alive("run-1")

    def test_a_live_attempt_is_not_swept(self, store: PartitionStore[Any]) -> None:
        with store.attempt("run") as attempt:
            attempt.stage(JFK, rows_of(JFK))
            assert store.sweep() == 0
            attempt.publish()

        assert committed(store) == [JFK]

    def test_a_revoked_attempt_stages_nothing(self, store: PartitionStore[Any]) -> None:
        with store.attempt("run-1") as attempt:
            assert store.revoke("run-1") == 1
            assert not store.is_alive("run-1")
            with pytest.raises(StaleAttemptError, match="revoked"):
                attempt.stage(JFK, rows_of(JFK))

    @pytest.mark.parametrize("replace", [False, True])
    @pytest.mark.parametrize("before", [None, [1, 2], [3]], ids=["missing", "same", "other"])
    def test_a_revoked_attempt_publishes_nothing(
        self, store: PartitionStore[Any], before: Iterable[int] | None, *, replace: bool
    ) -> None:
        if before is not None:
            publish(store, [JFK], before)

        with store.attempt("run-1") as attempt:
            attempt.stage(JFK, rows_of(JFK, [1, 2]))
            store.revoke("run-1")
            with pytest.raises(StaleAttemptError):
                attempt.publish(replace=replace)

        assert [values_of(store, p) for p in committed(store)] == ([before] if before else [])

    def test_revoking_one_attempt_leaves_the_others(self, store: PartitionStore[Any]) -> None:
        with store.attempt("run-1") as attempt:
            attempt.stage(JFK, rows_of(JFK))
            assert store.revoke("run-2") == 0
            with store.attempt("run-2"):
                assert store.revoke("run-2") == 1
            attempt.publish()

        assert committed(store) == [JFK]

    def test_a_held_partition_is_withdrawn_until_it_is_released(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, [JFK, EWR])

        store.hold([JFK, LGA_NEXT_DAY], "the source was wrong")

        assert held(store) == [LGA_NEXT_DAY, JFK]
        assert committed(store) == [EWR]
        assert store.records(GROUP).keys() == {EWR}
        with pytest.raises(MissingPartitionError, match="is held"):
            store.read(JFK)
        with pytest.raises(MissingPartitionError, match="is held"):
            store.verify(JFK)

        store.release([JFK, LGA_NEXT_DAY, EWR])  # releasing what is not held changes nothing

        assert held(store) == []
        assert committed(store) == [EWR]
        publish(store, [JFK], [7])
        assert values_of(store, JFK) == [7]

    def test_a_hold_wins_over_what_is_published_after_it(self, store: PartitionStore[Any]) -> None:
        store.hold([JFK], "first reason")
        store.hold([JFK, JFK], "second reason")
        publish(store, [JFK])

        assert held(store) == [JFK]
        with pytest.raises(MissingPartitionError, match="is held"):
            store.read(JFK)
        store.release([JFK])
        assert committed(store) == []  # missing, and so made again

    def test_records_of_what_is_not_committed_are_left_out(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, [EWR])

        assert list(store.records(GROUP)) == [EWR]
        assert store.records([]) == {}

    def test_a_location_tells_asset_day_and_unit(self, store: PartitionStore[Any]) -> None:
        location = store.location(JFK)

        assert all(part in location for part in (*DEPARTURES.asset_path, str(DAY), "JFK"))

    def test_documents_stand_beside_the_partitions_and_are_none_of_them(
        self, store: PartitionStore[Any]
    ) -> None:
        publish(store, GROUP)
        documents = store.documents
        assert documents.names("flights") == []
        assert documents.read("flights", "2013-08-03.1.json") is None

        documents.write("flights", {"2013-08-03.1.json": "{}", "b.json": "ü"})
        documents.write("flights", {"2013-08-03.1.json": "[]"})

        assert documents.names("flights") == ["2013-08-03.1.json", "b.json"]
        assert documents.names("hotels") == []
        assert documents.read("flights", "2013-08-03.1.json") == "[]"
        assert documents.read("flights", "b.json") == "ü"
        assert committed(store) == list(GROUP)
        assert store.scan(FLIGHTS).strangers_count == 0

        documents.remove("flights", ["b.json", "never.json"])
        assert documents.names("flights") == ["2013-08-03.1.json"]

    @pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", ".."])
    def test_a_document_cannot_be_called_like_something_else(
        self, store: PartitionStore[Any], name: str
    ) -> None:
        for folder, document in ((name, "x"), ("flights", name)):
            with pytest.raises(StoreUnreadableError, match="is no name of a document"):
                store.documents.write(folder, {document: "x"})
