"""Programs that are wrong in one place, on the real database: each is caught by a check.

Each check is first made on the sound program, so that it is the fault that is caught.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from backfill_assets.core import step_states
from backfill_assets.core.errors import SagaVersionError
from backfill_assets.core.sagas import SagaStatus
from backfill_assets.core.step_states import Effect
from backfill_assets.stores.log.log import IdempotencyLog
from backfill_assets.stores.sagas.driver import Driver
from backfill_assets_tests.stores.sagas.trip import World, raising

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

    from backfill_assets.core.operations import Attempt, Json
    from backfill_assets.stores.sagas.actions import UndoCall

LATE = timedelta(minutes=10)


def what_was_unknown_is_undone(world: World) -> bool:
    sagas = world.sagas()
    world.start(sagas)
    world.hooks["voucher.do.after"] = [raising(TimeoutError("no answer"))] * 3
    is_over = sagas.run("trip/1", patience=LATE).status is SagaStatus.COMPENSATED
    assert "voucher.do.after" in world.reached()
    return is_over and world.applied("trip/1") == set()


def what_comes_late_is_kept_out(world: World, log: type[IdempotencyLog] = IdempotencyLog) -> bool:
    own = log(lambda: world.url, worker="late", clock=world.clock, sleep=world.clock.sleep)
    late, other = world.sagas("late", log=own), world.sagas("other")
    world.start(late)

    def hang() -> None:
        world.clock.pass_by(minutes=1)
        other.cancel("trip/1", who="ada", why="it hangs")
        other.run("trip/1", patience=LATE)
        other.close()

    world.hooks["credit.do.before"] = [hang]
    late.run("trip/1")
    assert "credit.do.after" in world.reached()  # it did come, and late
    done = world.execute(
        "SELECT 1 FROM idempotency_log WHERE operation_name = 'credit.do' AND status = 'COMPLETED'"
    )
    return world.applied("trip/1") == set() and not done


def changes_of_others_stay(world: World) -> bool:
    sagas = world.sagas()
    world.start(sagas)
    sagas.run("trip/1")
    world.execute("UPDATE account SET miles = miles + 30")
    sagas.cancel("trip/1", who="ada", why="")
    sagas.run("trip/1", patience=LATE)
    assert "credit.undo.before" in world.reached()
    return world.effects()["miles"] == 1030


def whoever_asks_has_told_somebody(world: World) -> bool:
    """The process ends while it raises its alert."""
    sagas = world.sagas()
    world.start(sagas, "asking")
    world.hooks["room.do.before"] = [raising(ConnectionError("down"))] * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "write_alert", raising_from_a_method(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            sagas.run("asking/1", patience=LATE)
    told = world.execute("SELECT 1 FROM alert")
    return bool(told) or sagas.get("asking/1").status is not SagaStatus.AWAITING_DECISION


def raising_from_a_method(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_unknown_taken_for_not_applied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def certain(_kind: object, facts: step_states.OperationFacts | None) -> Effect:
        return Effect.APPLIED if facts and facts.is_completed else Effect.NONE

    monkeypatch.setattr(step_states, "effect_of", certain)
    assert not what_was_unknown_is_undone(world)


def test_no_seal(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Driver, "_seal", lambda *_: None)
    # Without a seal nothing says that a step is over, so that must be taken for granted as well.
    is_clean = property(lambda s: s.effect is Effect.NONE or s.undo is step_states.Phase.DONE)
    monkeypatch.setattr(step_states.StepState, "is_clean", is_clean)
    assert not what_comes_late_is_kept_out(world)


class Unfenced(IdempotencyLog):
    """Commits what it has written, whoever owns the operation by now."""

    def complete_many(
        self, results: Any, *, connection: psycopg.Connection | None = None
    ) -> list[Attempt]:
        super().complete_many(results, connection=connection)
        return []


def test_no_fence(world: World) -> None:
    assert not what_comes_late_is_kept_out(world, Unfenced)


def test_undo_from_a_snapshot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def restore(_world: World, call: UndoCall) -> Json:
        world.at("credit.undo.before")
        call.connection.execute("UPDATE account SET miles = 1000")  # as it was before
        return None

    monkeypatch.setattr(World, "undo_credit", restore)
    assert not changes_of_others_stay(world)


def test_alert_outside_of_the_transaction(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ask: Any = Driver.ask

    def ask_and_tell_afterwards(driver: Driver, saga: Any, question: Any, record: Any) -> Any:
        tell = driver.__class__.write_alert
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Driver, "write_alert", lambda *_: None)
            asked = ask(driver, saga, question, record)
        driver.store.execute(lambda c: tell(driver, c, "key", "subject", {}))
        return asked

    monkeypatch.setattr(Driver, "ask", ask_and_tell_afterwards)
    assert not whoever_asks_has_told_somebody(world)


@pytest.mark.parametrize(
    "check",
    [
        what_was_unknown_is_undone,
        what_comes_late_is_kept_out,
        changes_of_others_stay,
        whoever_asks_has_told_somebody,
    ],
)
def test_the_sound_program_passes_every_check(world: World, check: Callable[[World], bool]) -> None:
    assert check(world)


def test_a_saga_that_was_changed_meanwhile_is_not_written_over(world: World) -> None:
    """The compare-and-set itself: a stale copy is refused, whatever it wants."""
    sagas = world.sagas()
    old = world.start(sagas)
    sagas.run("trip/1")
    store = sagas._store
    with pytest.raises(SagaVersionError, match="has moved on since version 1"):
        store.save(old, world.clock.now)
