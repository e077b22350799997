"""Connections that are cut, and servers that restart, at each statement of an operation.

A request that the server never got, and one whose answer was lost, look the same to us. Either way
there is one effect, and whoever asks is told what is so.
"""

from __future__ import annotations

import itertools
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.core.errors import NotAppliedError, OperationFailedError
from backfill_assets.core.operations import Claimed, Found
from backfill_assets.stores.log.ledger import SealedState
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.postgres.errors import DatabaseRefusedError, DatabaseUnreachableError
from backfill_assets_tests.stores.children import in_child
from backfill_assets_tests.stores.log.cutting_proxy import (
    Cut,
    CuttingProxy,
    Fault,
    starting_server,
)
from backfill_assets_tests.stores.log.world import (
    AFTER_THE_LEASE,
    CALL,
    PLAIN_CALL,
    WRITE,
    not_called,
    writes,
)
from backfill_assets_tests.stores.postgres.processes_of_tests import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backfill_assets.core.operations import Attempt, Json
    from backfill_assets_tests.stores.log.world import World

CHECKPOINTER = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'"
PATIENT = timedelta(seconds=5)


@pytest.fixture
def proxy(world: World) -> Iterator[CuttingProxy]:
    with CuttingProxy(world.url) as one:
        yield one
        world.close()


def cut_everywhere(
    world: World, proxy: CuttingProxy, cut: Cut, act: Callable[[IdempotencyLog, str], None]
) -> set[str]:
    """Do something once for each of its requests, with that request cut; return their names."""
    met = set()
    for number in itertools.count():
        fault = Fault(number, cut)
        log = world.log(url=proxy.url)
        proxy.arm(fault)
        act(log, f"{cut.value} {number}")
        log.close()
        if fault.met is None:
            return met
        met.add(fault.met)
    raise AssertionError  # the count has no end


@pytest.mark.parametrize("cut", Cut)
def test_a_call_is_made_once_whichever_request_is_cut(
    world: World, proxy: CuttingProxy, cut: Cut
) -> None:
    def act(log: IdempotencyLog, key: str) -> None:
        calls: list[Attempt] = []
        assert log.run(CALL, key, 1, lambda a: calls.append(a) or "done") == "done"  # type: ignore[func-returns-value]
        assert len(calls) == 1
        assert world.outcomes(key) == ["SUCCEEDED"]
        assert log.run(CALL, key, 1, not_called) == "done"

    assert {"read_results", "claim", "complete"} <= cut_everywhere(world, proxy, cut, act)


@pytest.mark.parametrize("cut", Cut)
def test_a_transaction_writes_once_whichever_request_is_cut(
    world: World, proxy: CuttingProxy, cut: Cut
) -> None:
    def act(log: IdempotencyLog, key: str) -> None:
        assert log.run_transaction(WRITE, key, 1, writes("a"), patience=PATIENT) == "a"
        assert [row[2] for row in world.effects() if row[0] == key] == ["a"]
        # Where the commit had reached the server, there was no second attempt.
        fault = proxy.fault
        if fault and (fault.cut, fault.met) == (Cut.AFTER, "COMMIT"):
            assert world.outcomes(key) == ["SUCCEEDED"]
        assert world.outcomes(key)[-1] == "SUCCEEDED"
        assert world.alerts() == []

    met = cut_everywhere(world, proxy, cut, act)
    assert {"claim", "limit_idle", "BEGIN", "INSERT INTO", "complete", "COMMIT"} <= met


@pytest.mark.parametrize("cut", Cut)
def test_a_body_whose_commit_was_answered_into_the_void_is_told_that_it_is_done(
    world: World, proxy: CuttingProxy, cut: Cut
) -> None:
    def act(log: IdempotencyLog, key: str) -> None:
        def body() -> None:
            with log.transaction(WRITE, key, 1) as work:
                work.result = writes("a")(work.attempt, work.connection)  # type: ignore[union-attr]

        try:
            body()
        except psycopg.OperationalError:
            assert world.outcomes(key) == ["FAILED"]
            assert [row for row in world.effects() if row[0] == key] == []
        else:
            assert world.outcomes(key) == ["SUCCEEDED"]
            assert [row for row in world.effects() if row[0] == key] == [(key, 1, "a")]

    assert "COMMIT" in cut_everywhere(world, proxy, cut, act)


@pytest.mark.parametrize("cut", Cut)
def test_a_seal_says_what_stood_whichever_request_is_cut(
    world: World, proxy: CuttingProxy, cut: Cut
) -> None:
    def act(log: IdempotencyLog, key: str) -> None:
        (claim,) = world.log().claim_many(CALL, {key: 1}).values()
        stood = log.seal(CALL, key, reason="undone")
        assert stood == SealedState(
            is_completed=False, attempt=1, in_doubt=True, result=None, reason="undone"
        )
        assert world.outcomes(key) == ["UNKNOWN"]
        assert isinstance(claim, Claimed)
        assert log.complete_many({claim.attempt: "late"}) == [claim.attempt]
        assert world.outcomes(key) == ["FENCED"]

    assert {"seal", "complete", "record_late"} <= cut_everywhere(world, proxy, cut, act)


@pytest.mark.parametrize("cut", Cut)
def test_a_failure_is_written_down_once_whichever_request_is_cut(
    world: World, proxy: CuttingProxy, cut: Cut
) -> None:
    def act(log: IdempotencyLog, key: str) -> None:
        def fails(_: Attempt) -> Json:
            raise NotAppliedError("no")

        with pytest.raises(OperationFailedError, match="the next one after"):
            log.run(CALL, key, 1, fails)
        assert world.outcomes(key) == ["FAILED"]
        assert [state.spent for state in log.states([key])] == [1]

    assert "fail" in cut_everywhere(world, proxy, cut, act)


@pytest.mark.parametrize("cut", Cut)
def test_settling_and_reopening_happen_once_whichever_request_is_cut(
    world: World, proxy: CuttingProxy, cut: Cut
) -> None:
    def act(log: IdempotencyLog, key: str) -> None:
        world.log("dead").claim_many(PLAIN_CALL, {key: 1})
        world.clock.forward(AFTER_THE_LEASE)
        assert log.run(PLAIN_CALL, key, 1, lambda _: "a", verify=lambda _: None) == "a"
        log.reopen(PLAIN_CALL, {key: 1}, reason="again")
        assert log.run(PLAIN_CALL, key, 1, lambda a: a.generation) == 2
        second = log.trail(key)[0].attempts[1]
        assert (second.result, second.note) == ("a", "reopened: again")

    assert {"settle", "reopen", "differing"} <= cut_everywhere(world, proxy, cut, act)


@pytest.mark.parametrize("cut", Cut)
def test_a_server_that_restarts_at_a_statement_changes_nothing(
    world: World, proxy: CuttingProxy, cut: Cut
) -> None:
    def act(key: str) -> None:
        log = world.log(url=proxy.url, sleep=really(world))
        assert log.run_transaction(WRITE, key, 1, writes("a"), patience=PATIENT) == "a"
        assert log.seal(WRITE, key, reason="undone").result == "a"

    def restarts_at(name: str) -> None:
        before = world.rows(CHECKPOINTER)
        proxy.arm(fault := Fault(numbers[name], cut, crashes=True))
        # In a process of its own: libpq lets no other thread of ours work, and so not the proxy,
        # while it asks a server how it is.
        in_child(lambda: act(name))
        assert fault.met == name
        wait_until(lambda: has_restarted(world, before))
        assert [row[2] for row in world.effects() if row[0] == name] == ["a"]

    proxy.arm(None)
    in_child(lambda: act("undisturbed"))
    numbers = {name: number for number, name in enumerate(proxy.requests)}
    for name in ("claim", "complete", "COMMIT", "seal"):
        restarts_at(name)


def has_restarted(world: World, before: list[tuple[object, ...]]) -> bool:
    """Return whether the server is there, with other processes than before."""
    try:
        return world.rows(CHECKPOINTER) not in ([], before)
    except psycopg.OperationalError:
        return False


def really(world: World) -> Callable[[float], None]:
    """Return a wait in which time passes for the server as well, which needs a moment."""

    def sleep(seconds: float) -> None:
        threading.Event().wait(min(seconds, 0.5))
        world.clock.sleep(seconds)

    return sleep


def test_a_connection_that_an_operator_ends_is_opened_again(world: World) -> None:
    log = world.log()
    log.claim_many(CALL, {"other": 1})
    for number in range(3):
        ended = world.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert ended == [(True,)]
        assert log.run(CALL, f"k{number}", 1, lambda _: "done") == "done"


def test_a_server_that_is_away_is_an_error_of_its_own_and_the_lease_decides(world: World) -> None:
    away = world.log(url="postgresql://nobody@127.0.0.1:1/nothing")

    with pytest.raises(DatabaseUnreachableError):
        away.run(CALL, "k", 1, not_called)

    assert world.clock.waits == [0.2, 0.4, 0.8, 1.6, 3.2]


def test_a_server_that_is_just_starting_is_waited_for(world: World) -> None:
    with starting_server() as starting:
        addresses = iter([starting] * 4)  # two connections, and whether each is a matter of time
        clock = world.clock
        log = IdempotencyLog(
            lambda: next(addresses, world.url), worker="first", clock=clock, sleep=clock.sleep
        )
        assert log.run(CALL, "k", 1, lambda _: "done") == "done"
        assert clock.waits == [0.2, 0.4]

        # Whoever was let in before, and is refused now, is not refused for good.
        log.close()
        clock.waits.clear()
        addresses = iter([starting])
        assert log.run(CALL, "k", 1, not_called) == "done"
        assert clock.waits == [0.2]
        log.close()


def test_a_server_that_never_let_us_in_is_not_asked_again_and_again(world: World) -> None:
    login = world.url.replace("postgresql://backfill:", "postgresql://nobody:")

    with pytest.raises(DatabaseRefusedError):
        world.log(url=login).run(CALL, "k", 1, not_called)

    assert world.clock.waits == []


def test_an_interrupt_while_the_server_is_away_stays_an_interrupt(world: World) -> None:
    with CuttingProxy(world.url) as proxy:
        log = world.log(url=proxy.url)

        def act(_: Attempt) -> Json:
            proxy.__exit__(None, None, None)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            log.run(CALL, "k", 1, act)
        log.close()

    assert world.outcomes() == ["RUNNING"]
    world.clock.forward(AFTER_THE_LEASE)
    assert world.log().run(CALL, "k", 1, not_called, verify=lambda _: Found("done")) == "done"
