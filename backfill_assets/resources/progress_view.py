"""What `up` shows while it runs: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from backfill_assets.resources.coverage_report import duration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rich.console import Console

    from backfill_assets.core.plan import Plan

RATE_LOOKS = 15  # about half a minute
LINE_SECONDS = 10.0  # between two lines where the output is no terminal


def bar(console: Console, *, disable: bool = False) -> Progress:
    """Return a progress bar: name, bar, done of all, and what else there is to say."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[more]}"),
        console=console,
        disable=disable or not console.is_terminal,
    )


class ProgressView:
    """Committed of expected, newest and oldest day, rate and time left, for each catalogue."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = bar(console)
        self._tasks: dict[str, object] = {}
        self._looks: dict[str, deque[tuple[float, int]]] = {}
        self._lines: dict[str, tuple[float, str]] = {}  # when each catalogue's last one was, and it

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line of its own."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def show(self, plans: Sequence[Plan]) -> None:
        """Show how far each catalogue is."""
        now = time.monotonic()
        for plan in plans:
            more = self._details(plan, now)
            if self._console.is_terminal:
                self._update_bar(plan, more)
            else:
                self._print_line(plan, more, now)

    def _details(self, plan: Plan, now: float) -> str:
        days = plan.committed.days()
        parts = [f"{days[-1]} … {days[0]}"] if days else []
        rate = self._rate(plan.catalogue.name, now, len(plan.committed))
        if rate > 0 and plan.missing:
            parts.append(f"{rate:.0f}/s, {duration(len(plan.missing) / rate)} left")
        elif not plan.missing and plan.expected:
            parts.append("complete")
        return "  ".join(parts)

    def _rate(self, name: str, now: float, done: int) -> float:
        """Return partitions a second over the last looks; runs commit in bursts."""
        looks = self._looks.setdefault(name, deque(maxlen=RATE_LOOKS))
        looks.append((now, done))
        then, done_then = looks[0]
        elapsed = now - then
        return (done - done_then) / elapsed if elapsed > 0 else 0.0

    def _update_bar(self, plan: Plan, more: str) -> None:
        name = plan.catalogue.name
        if name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, more="")
        self._bar.update(
            self._tasks[name],  # type: ignore[arg-type]
            completed=len(plan.committed),
            total=len(plan.expected),
            more=more,
        )

    def _print_line(self, plan: Plan, more: str, now: float) -> None:
        name = plan.catalogue.name
        text = f"{name}: {len(plan.committed)} of {len(plan.expected)}  {more}".rstrip()
        last_at, last_text = self._lines.get(name, (float("-inf"), ""))
        if text != last_text and (now - last_at >= LINE_SECONDS or not plan.missing):
            self._lines[name] = (now, text)
            self.say(text)
