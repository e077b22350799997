"""Candidates that do the same work in turns, and how their times compare."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How long each candidate took; the first one is the product.

    Attributes:
        unit: What one of the work's many parts is called.
        parts: How many there were.
        seconds: Of every round, by candidate.
    """

    name: str
    unit: str
    parts: int
    seconds: Mapping[str, list[float]]

    @property
    def medians(self) -> dict[str, float]:
        """Return the median seconds of each candidate."""
        return {name: statistics.median(each) for name, each in self.seconds.items()}

    def ratios(self) -> dict[str, float]:
        """Return how many times longer each other candidate took than the product."""
        ours, *others = self.medians.items()
        return {name: seconds / ours[1] for name, seconds in others}


def compare(
    name: str,
    candidates: Mapping[str, Callable[[], object]],
    *,
    unit: str,
    parts: int,
    rounds: int,
) -> Comparison:
    """Run the candidates in turns, ``rounds`` times each."""
    seconds: dict[str, list[float]] = {candidate: [] for candidate in candidates}
    for _ in range(rounds):
        for candidate, work in candidates.items():
            began = time.perf_counter()
            work()
            seconds[candidate].append(time.perf_counter() - began)
    return Comparison(name=name, unit=unit, parts=parts, seconds=seconds)
