"""A set of partitions behaves as Python's own set, in a stated order, without empty masks."""

from __future__ import annotations

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.core.catalogue import Category, Unit
from backfill_assets.core.partition_sets import PartitionSet
from backfill_assets.core.partitions import Partition
from backfill_assets_tests.core.examples import a_catalogue, a_set, names
from backfill_assets_tests.core.strategies import all_partitions, catalogues, subsets


def as_tuples(partitions: PartitionSet) -> set[tuple[str, date, str]]:
    """Return a set as Python's own, read from the masks without any of its methods."""
    units = partitions.catalogue.unit_names
    return {
        (query, day, unit)
        for query, days in partitions.masks.items()
        for day, mask in days.items()
        for place, unit in enumerate(units)
        if mask >> place & 1
    }


def as_tuple(partition: Partition) -> tuple[str, date, str]:
    return (partition.query.name, partition.day, partition.unit)


def is_tidy(partitions: PartitionSet) -> bool:
    """Return whether no day is empty, no mask is zero and no mask has a bit too many."""
    every_unit = (1 << len(partitions.catalogue.units)) - 1
    return all(
        days and all(0 < mask <= every_unit for mask in days.values())
        for days in partitions.masks.values()
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[PartitionSet, PartitionSet]:
    """Draw two sets of one catalogue."""
    catalogue = draw(catalogues())
    return draw(subsets(catalogue)), draw(subsets(catalogue))


@given(pairs())
def test_the_algebra_is_that_of_pythons_sets(pair: tuple[PartitionSet, PartitionSet]) -> None:
    one, other = pair
    for result, expected in (
        (one - other, as_tuples(one) - as_tuples(other)),
        (one & other, as_tuples(one) & as_tuples(other)),
        (one | other, as_tuples(one) | as_tuples(other)),
    ):
        assert as_tuples(result) == expected
        assert len(result) == len(expected)
        assert bool(result) == bool(expected)
        assert is_tidy(result)


@given(pairs())
def test_an_operation_leaves_its_operands_alone(pair: tuple[PartitionSet, PartitionSet]) -> None:
    one, other = pair
    before = as_tuples(one), as_tuples(other)
    _ = (one - other, one & other, one | other)
    assert (as_tuples(one), as_tuples(other)) == before


@given(pairs())
def test_sets_are_equal_when_they_hold_the_same(pair: tuple[PartitionSet, PartitionSet]) -> None:
    one, other = pair
    assert (one == other) == (as_tuples(one) == as_tuples(other))
    assert (one - other) | (one & other) == one
    assert one - other == one - (one & other)


@given(st.data())
def test_a_set_contains_what_it_was_made_of_and_no_more(data: st.DataObject) -> None:
    catalogue = data.draw(catalogues())
    every = all_partitions(catalogue)
    chosen = data.draw(st.sets(st.sampled_from(every), max_size=30))
    made = PartitionSet.of(catalogue, chosen)
    assert {partition for partition in every if partition in made} == chosen
    assert len(made) == len(chosen)
    assert is_tidy(made)


@given(st.data())
def test_iteration_is_total_newest_first_then_query_then_unit(data: st.DataObject) -> None:
    catalogue = data.draw(catalogues())
    some = data.draw(subsets(catalogue))
    assert list(some) == [p for p in all_partitions(catalogue) if as_tuple(p) in as_tuples(some)]
    assert some.days() == sorted({p.day for p in some}, reverse=True)


@given(st.data())
def test_the_order_in_which_partitions_are_given_does_not_matter(data: st.DataObject) -> None:
    some = data.draw(catalogues().flatmap(subsets))
    shuffled = data.draw(st.randoms(use_true_random=False)).sample(list(some), len(some))
    assert list(PartitionSet.of(some.catalogue, shuffled)) == list(some)


@given(st.data())
def test_counts_and_selections_are_those_of_the_queries(data: st.DataObject) -> None:
    catalogue = data.draw(catalogues())
    some = data.draw(subsets(catalogue))
    queries = data.draw(st.sets(st.sampled_from(catalogue.queries)))
    selected = some.only(queries)
    assert as_tuples(selected) == {t for t in as_tuples(some) if t[0] in {q.name for q in queries}}
    assert is_tidy(selected)
    assert len(selected) == sum(some.count_of(query) for query in queries)
    assert len(some) == sum(some.count_of(query) for query in catalogue.queries)


@given(st.data())
def test_a_rectangle_is_queries_times_days_times_units(data: st.DataObject) -> None:
    catalogue = data.draw(catalogues())
    queries = data.draw(st.sets(st.sampled_from(catalogue.queries)))
    days = data.draw(st.sets(st.dates(date(2013, 1, 1), date(2013, 1, 9))))
    mask = data.draw(st.integers(0, (1 << len(catalogue.units)) - 1))
    made = PartitionSet.rectangle(catalogue, queries, iter(days), mask)
    assert as_tuples(made) == {
        (query.name, day, unit)
        for query in queries
        for day in days
        for place, unit in enumerate(catalogue.unit_names)
        if mask >> place & 1
    }
    assert is_tidy(made)


def test_a_set_reads_in_catalogue_order_and_not_in_that_of_the_alphabet() -> None:
    catalogue = a_catalogue(units=list(reversed(a_catalogue().units)))
    some = a_set(
        catalogue,
        [
            "carrier/departures/2013-08-01/JFK",
            "hour/departures/2013-08-02/EWR",
            "carrier/departures/2013-08-02/EWR",
            "carrier/departures/2013-08-02/LGA",
        ],
    )
    assert names(some) == [
        "carrier/departures/2013-08-02/LGA",
        "carrier/departures/2013-08-02/EWR",
        "hour/departures/2013-08-02/EWR",
        "carrier/departures/2013-08-01/JFK",
    ]


def test_a_unit_that_the_catalogue_does_not_have_is_in_no_set() -> None:
    catalogue = a_catalogue()
    everything = PartitionSet.of(catalogue, all_partitions(catalogue))
    query = catalogue.queries[0]
    assert Partition(query, date(2013, 8, 1), "JFK") in everything
    assert Partition(query, date(2013, 8, 1), "BOS") not in everything


def test_nothing_is_the_empty_set() -> None:
    empty = PartitionSet.empty(a_catalogue())
    assert (len(empty), bool(empty), list(empty), empty.days()) == (0, False, [], [])


def test_a_set_holds_more_units_than_a_machine_word_has_bits() -> None:
    many = [Unit(f"unit {n}") for n in range(130)]
    catalogue = a_catalogue(units=many, categories=[Category("carrier")])
    full = PartitionSet.rectangle(catalogue, catalogue.queries, [date(2013, 8, 1)], (1 << 130) - 1)
    assert [partition.unit for partition in full] == [unit.name for unit in many]
    assert PartitionSet.of(catalogue, full) == full
    assert len(full - PartitionSet.of(catalogue, list(full)[:65])) == 65
