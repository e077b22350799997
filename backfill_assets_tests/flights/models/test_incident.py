"""The incident: a first attempt that was given up comes back late, and stores its result again.

First the damage, with the log switched off; then none, with it on, whatever else goes wrong. The
table's own constraint is taken away in both, so that nothing but the fence is tried.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.core.errors import StaleAttemptError
from backfill_assets.stores.http_calls import Caller
from backfill_assets_tests.flights.models.fault_proxy import BROKEN, HELD, Fault, FaultProxy
from backfill_assets_tests.flights.models.workbench import (
    AFTER_ANY_WAIT,
    AFTER_THE_LEASE,
    ANSWER_SECONDS,
    HeldLog,
    Unlogged,
    Workbench,
    stopping,
)
from backfill_assets_tests.stores.children import Child

if TYPE_CHECKING:
    from backfill_assets.flights.models.steps import Progress, Subject
    from backfill_assets.stores.log.log import IdempotencyLog

SEEDS = 120
SEEDS_WITHOUT_THE_LOG = 20
LATEST_RETRY = 8  # more than the faults that are drawn


@dataclass(frozen=True)
class Story:
    """What a seed draws.

    Attributes:
        place: Where the first attempt hangs: in a call, or in the transaction that saves.
        first: The faults of its calls.
        retry: The faults of the calls of those that follow it.
    """

    place: str
    first: list[Fault]
    retry: list[Fault]

    @classmethod
    def of(cls, seed: int) -> Story:
        drawn = random.Random(seed)
        place = drawn.choice(["risk", "anomaly", "before the row", "before the fence"])
        held = drawn.choice(sorted(HELD))
        first = {"risk": [held], "anomaly": [Fault.NONE, held]}.get(place, [Fault.NONE] * 2)
        others = [Fault.NONE, Fault.DUPLICATE, *sorted(BROKEN)]
        return cls(place, first, drawn.choices(others, k=drawn.randint(0, 4)))


def tell(
    bench: Workbench,
    upstream: tuple[str, int],
    story: Story,
    subject: Subject,
    first: HeldLog | Unlogged,
    others: list[IdempotencyLog],
) -> tuple[Progress, FaultProxy]:
    """Let a first attempt hang, retry it with success, and then let it go on.

    Returns:
        What the first attempt came to, and the proxy with all that it saw.
    """
    proxy = FaultProxy(upstream, [*story.first, *story.retry])
    if isinstance(first, HeldLog):
        if story.place.startswith("before"):
            after = story.place == "before the fence"
            first.hold(proxy.arrived, proxy.released, after=after)
        else:
            open_gate = threading.Event()
            open_gate.set()
            first.hold(threading.Event(), open_gate, after=False)
    with proxy.running(), ThreadPoolExecutor(1) as thread:
        late = thread.submit(bench.run, proxy.url, subject, log=first)
        assert proxy.arrived.wait(ANSWER_SECONDS), "the first attempt did not hang"
        bench.clock.pass_by(AFTER_THE_LEASE)
        for log in others:
            progress = bench.run(proxy.url, subject, log=log)
            if not progress.problems:
                break
            bench.clock.pass_by(AFTER_ANY_WAIT)
        else:
            pytest.fail(f"the retries did not succeed: {progress.problems}")
        assert len(bench.rows()) == 1
        proxy.faults = ()  # what was drawn for the retries and is left over is not the late one's
        proxy.released.set()
        return late.result(ANSWER_SECONDS), proxy


def test_without_the_log_the_late_first_attempt_stores_its_result_again(
    workbench: Workbench,
) -> None:
    workbench.prepare(constrained=False)
    met: set[str] = set()
    with workbench.server() as upstream:
        for seed in range(SEEDS_WITHOUT_THE_LOG):
            story = Story.of(seed)
            if story.place not in {"risk", "anomaly"}:
                continue  # those wait in the log, which is off
            forget_everything(workbench)
            off = [
                Unlogged(lambda: workbench.url, worker="off", clock=workbench.clock)
                for _ in range(LATEST_RETRY)
            ]
            late, proxy = tell(workbench, upstream, story, workbench.subject(), off[0], off[1:])
            assert not late.problems, (seed, story)
            (one, again) = workbench.rows()
            assert one == again, (seed, story)
            met |= {story.place, *(seen.fault for seen in proxy.seen)}
    assert met >= {"risk", "anomaly", *HELD}


def test_with_the_log_it_changes_nothing_and_is_recorded_in_any_story(
    workbench: Workbench,
) -> None:
    workbench.prepare(constrained=False)
    met: set[str] = set()
    with workbench.server() as upstream:
        for seed in range(SEEDS):
            met |= told_without_damage(workbench, upstream, seed)
    assert met >= {"risk", "anomaly", "before the row", "before the fence", *Fault}


def told_without_damage(workbench: Workbench, upstream: tuple[str, int], seed: int) -> set[str]:
    """Tell the story of a seed; return the place and the faults that really happened."""
    forget_everything(workbench)
    story, subject = Story.of(seed), workbench.subject()
    first = HeldLog(lambda: workbench.url, worker="first", clock=workbench.clock)
    others = [workbench.log(f"retry {number}") for number in range(LATEST_RETRY)]
    late, proxy = tell(workbench, upstream, story, subject, first, others)
    assert [type(e) for e in late.problems.values()] == [StaleAttemptError], (seed, story)
    assert len(workbench.rows()) == 1, (seed, story)
    step = {"risk": "score_risk", "anomaly": "score_anomaly"}.get(story.place, "save")
    outcomes = workbench.outcomes(subject)
    assert outcomes[step][0] == "FENCED", (seed, story, outcomes)
    assert all(ends[-1] == "SUCCEEDED" for ends in outcomes.values()), (seed, story, outcomes)
    return {story.place, *(seen.fault for seen in proxy.seen)}


def forget_everything(workbench: Workbench) -> None:
    with psycopg.connect(workbench.url, autocommit=True) as connection:
        for table in ("delay_scores", "idempotency_log", "idempotency_attempt", "http_reply"):
            if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() != (None,):
                connection.execute(f"TRUNCATE {table}".encode())


@pytest.mark.parametrize("path", ["/v1/risk", "/v1/anomaly"])
def test_a_process_that_was_stopped_after_its_answer_comes_back_too_late(
    workbench: Workbench, path: str
) -> None:
    workbench.prepare(constrained=False)
    subject = workbench.subject()
    with workbench.server() as (host, port):
        url = f"http://{host}:{port}"

        def first_attempt() -> list[str]:
            with Caller("the model server", lambda: url, answer_seconds=ANSWER_SECONDS) as server:
                slow = stopping(server, lambda called: called == path)
                pipeline = workbench.pipeline(workbench.log("first"), slow)
                progress = pipeline.run([subject], workbench.card)
            return [type(error).__name__ for error in progress.problems.values()]

        child = Child(first_attempt)
        child.wait_until_stopped()
        workbench.clock.pass_by(AFTER_THE_LEASE)
        assert not workbench.run(url, subject, log=workbench.log("second")).problems
        child.go_on()
        assert child.answer() == ["StaleAttemptError"]
    assert len(workbench.rows()) == 1
    step = "score_risk" if path == "/v1/risk" else "score_anomaly"
    assert workbench.outcomes(subject)[step] == ["FENCED", "SUCCEEDED"]
