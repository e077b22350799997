from datetime import UTC, date, datetime

from backfill_assets.core.plan import expected_partitions
from backfill_assets.flights.catalogue import FLIGHTS


def test_the_year_has_16764_partitions():
    expected = expected_partitions(FLIGHTS, date(2013, 12, 31))
    # 3 categories × 4 value types × (3 × 365 − 4), and manufacturer: 4 × 3 × 306.
    assert len(expected) == 16_764


def test_laguardia_and_the_manufacturers_come_later():
    assert list(FLIGHTS.unit_names) == ["EWR", "JFK", "LGA"]
    assert FLIGHTS.open_units(date(2013, 1, 4)) == 0b011
    assert FLIGHTS.open_units(date(2013, 1, 5)) == 0b111
    assert [(grid.first_day, len(grid.queries)) for grid in FLIGHTS.grids] == [
        (date(2013, 1, 1), 12),
        (date(2013, 3, 1), 4),
    ]


def test_a_day_closes_eight_hours_after_its_end_in_new_york():
    closing = FLIGHTS.closing
    # Midnight is 05:00 UTC in winter and 04:00 in summer; on 10 March the clocks change after it.
    assert closing.closes_at(date(2013, 3, 9)) == datetime(2013, 3, 10, 13, tzinfo=UTC)
    assert closing.closes_at(date(2013, 8, 2)) == datetime(2013, 8, 3, 12, tzinfo=UTC)
    assert closing.closes_at(date(2013, 12, 31)) == datetime(2014, 1, 1, 13, tzinfo=UTC)


def test_every_query_explains_itself():
    descriptions = {query.name: query.description for query in FLIGHTS.queries}
    assert len(set(descriptions.values())) == 16
    assert descriptions["hour/cancellations"] == (
        "Flights that were scheduled and never departed. "
        "One row per hour of scheduled departure, 0 to 23, New York time."
    )
