"""The report of a day weighs what arrived, and nothing else."""

from __future__ import annotations

import pandas as pd

from backfill_assets.flights.daily_report import punctuality_of_carriers


def frame(*values: float | None) -> pd.DataFrame:
    """Return the figures of AA and F9 at EWR, and of AA at JFK."""
    keys = {"unit": ["EWR", "EWR", "JFK"], "carrier": ["AA", "F9", "AA"]}
    return pd.DataFrame(keys | {"value": pd.Series(values, dtype="float64")})


def test_departures_without_an_arrival_say_nothing_about_punctuality() -> None:
    # All of F9, and all of AA at JFK, were diverted: AA is as late as at EWR, F9 unknown and last.
    table = punctuality_of_carriers(frame(2, 1, 3), frame(0, 0, 0), frame(10, None, None))

    assert table["carrier"].tolist() == ["AA", "F9"]
    assert table["departures"].tolist() == [5, 1]
    assert table["arrival_delay"][0] == 10.0
    assert pd.isna(table["arrival_delay"][1])
