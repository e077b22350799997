"""Candidates that do the same work in turns, and figures with what they are to reach."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Samples = list[float]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure is to reach.

    Attributes:
        text: In words, for the table.
        holds: Whether a figure reaches it.
    """

    text: str
    holds: Callable[[Figure], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table: what the product took, and what another candidate took for the same.

    Attributes:
        what: The work, with its size.
        unit: Of all samples, such as ``s`` or ``ms a file``.
        product: A sample of each round.
        against: What the product is compared with; empty where it stands by itself.
        other: Its samples.
        goal: What is to be reached, or None where the figure is only reported.
        note: How it was measured, where that is not plain.
    """

    what: str
    unit: str
    product: Samples
    against: str = ""
    other: Samples | None = None
    goal: Goal | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """The product's median."""
        return statistics.median(self.product)

    @property
    def other_value(self) -> float | None:
        """The other candidate's median."""
        return None if self.other is None else statistics.median(self.other)

    @property
    def times_faster(self) -> float | None:
        """How many times as much the other candidate needed: the median over the rounds.

        Each round is compared with itself, so that a minute in which the machine was busy with
        something else counts for both.
        """
        if self.other is None:
            return None
        return statistics.median(b / a for a, b in zip(self.product, self.other, strict=True))

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        return None if self.goal is None else self.goal.holds(self)


def faster(times: float) -> Goal:
    """Return the goal that the other candidate needs ``times`` as long, or longer."""
    return Goal(f"{times:g} times faster", lambda f: (f.times_faster or 0) >= times)


def within(times: float) -> Goal:
    """Return the goal that the product needs ``times`` as much as the other, or less."""
    return Goal(f"at most {times:g} times", lambda f: (f.times_faster or 0) * times >= 1)


def under(limit: float) -> Goal:
    """Return the goal that the product's value is under a limit, in the figure's unit."""
    return Goal(f"under {limit:g}", lambda f: f.value < limit)


def in_turns(
    candidates: Mapping[str, Callable[[], float | None]],
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Samples]:
    """Run the candidates in turns, A B A B, and return the seconds of every round.

    A candidate that works in a process of its own returns the seconds that it measured there: the
    start of an interpreter is not what is compared.

    Args:
        clock: ``time.process_time`` for candidates that wait for nothing, to leave out what other
            programs take of the machine.
    """
    seconds: dict[str, Samples] = {candidate: [] for candidate in candidates}
    for _ in range(rounds):
        for candidate, work in candidates.items():
            began = clock()
            measured = work()
            seconds[candidate].append(measured or clock() - began)
    return seconds


def each(samples: Sequence[float], parts: int, *, factor: float = 1.0) -> Samples:
    """Return samples divided by the number of parts; ``factor`` 1000 turns seconds into ms."""
    return [sample * factor / parts for sample in samples]
