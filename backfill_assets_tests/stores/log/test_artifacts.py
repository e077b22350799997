"""COMPLETED is a claim: where there is an artifact, the artifact is the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.core.operations import Claimed, Done, Found
from backfill_assets_tests.stores.log.world import AFTER_THE_LEASE, CALL, FILE, not_called

if TYPE_CHECKING:
    from pathlib import Path

    from backfill_assets.core.operations import Attempt, Json
    from backfill_assets_tests.stores.log.world import World


def test_a_file_deleted_after_completion_is_built_again_by_the_next_attempt(
    world: World, tmp_path: Path
) -> None:
    target, log = tmp_path / "target", world.log()

    def build(attempt: Attempt) -> Json:
        target.write_text(f"attempt {attempt.number}")
        return target.read_text()

    def still_true(result: Json) -> bool:
        return target.exists() and target.read_text() == result

    assert log.run(FILE, "k", 1, build, still_true=still_true) == "attempt 1"
    assert log.run(FILE, "k", 1, not_called, still_true=still_true) == "attempt 1"
    target.unlink()
    assert log.run(FILE, "k", 1, build, still_true=still_true) == "attempt 2"
    assert log.run(FILE, "k", 1, not_called, still_true=still_true) == "attempt 2"
    assert world.outcomes() == ["SUCCEEDED", "SUCCEEDED"]
    assert [attempt.note for attempt in log.trail("k")[0].attempts] == [
        "what it had made was not there any more",
        None,
    ]


def test_a_completion_is_disproved_only_for_the_attempt_that_was_looked_at(world: World) -> None:
    log = world.log()
    log.run(FILE, "k", 1, lambda _: "old")
    log.claim_many(FILE, {"k": 1}, disproved={"k": 1})
    world.clock.forward(AFTER_THE_LEASE)
    log.run(FILE, "k", 1, lambda _: "new", verify=lambda _: None)

    # Somebody who looked before the third attempt completed says so only now.
    assert log.claim_many(FILE, {"k": 1}, disproved={"k": 1})["k"] == Done("new", 3)
    # The statement itself asks as well: it may have completed since it was read.
    assert log._ledger.disprove(FILE, {"k": 1}) == set()
    assert isinstance(log.claim_many(FILE, {"k": 1}, disproved={"k": 3})["k"], Claimed)


def test_with_the_database_lost_and_the_files_kept_nothing_is_built(
    world: World, tmp_path: Path
) -> None:
    target, log = tmp_path / "target", world.log()
    target.write_text("kept")
    log.run(FILE, "k", 1, lambda _: "kept")
    world.rows("DROP TABLE idempotency_log, idempotency_attempt, alert, log_schema")
    world.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    # The same process goes on: it makes the tables again, and asks the artifact.
    (claim,) = log.claim_many(FILE, {"k": 1}).values()
    assert isinstance(claim, Claimed)
    found = Found(target.read_text())
    assert log.complete_many({claim.attempt: found.result}) == []
    assert log.run(FILE, "k", 1, not_called) == "kept"


def test_an_attempt_of_a_database_that_was_restored_from_a_backup_is_fenced(world: World) -> None:
    log = world.log("before")
    old = log.claim_many(FILE, {"k": 1})["k"]
    world.rows("DELETE FROM idempotency_log")
    world.rows("DELETE FROM idempotency_attempt")
    new = world.log("after").claim_many(FILE, {"k": 1})["k"]
    assert isinstance(old, Claimed)
    assert isinstance(new, Claimed)
    assert old.attempt.number == new.attempt.number == 1  # numbers come again

    assert log.renew([old.attempt]) == [old.attempt]
    assert log.complete_many({old.attempt: "old"}) == [old.attempt]
    assert world.outcomes() == ["RUNNING"]
    assert world.log("after").complete_many({new.attempt: "new"}) == []
    assert log.run(FILE, "k", 1, not_called) == "new"


def test_a_failed_operation_whose_artifact_stands_is_completed(world: World) -> None:
    log = world.log()
    claim = log.claim_many(FILE, {"k": 1, "other": 1})["k"]
    assert isinstance(claim, Claimed)
    log.fail_many([claim.attempt], OSError("no room"))

    assert log.prove(FILE, ["k", "other", "never claimed"]) == ["k"]
    assert log.run(FILE, "k", 1, not_called) is None
    # What failed comes back all the same: it is told from what stands.
    assert log.complete_many({claim.attempt: "late"}) == [claim.attempt]


def test_that_its_artifact_stands_is_noted_with_the_attempt_that_failed(world: World) -> None:
    log = world.log()
    claim = log.claim_many(FILE, {"k": 1})["k"]
    assert isinstance(claim, Claimed)
    assert log.end_worker(FILE, "first") == ["k"]

    log.prove(FILE, ["k"])

    assert notes(world) == ["its worker was found dead; what it was to make stands all the same"]


def test_another_content_that_was_found_is_stored_and_the_old_result_kept(world: World) -> None:
    log = world.log()
    log.run(FILE, "k", 1, lambda _: "old")
    log.run(FILE, "other", 1, lambda _: "kept")

    found: dict[str, tuple[int, Json]] = {"k": (1, "new"), "never claimed": (1, "new")}
    assert log.correct(FILE, found, reason="it was replaced") == ["k"]
    assert log.correct(FILE, found, reason="twice is once") == []

    assert log.run(FILE, "k", 1, not_called) == "new"
    assert log.run(FILE, "other", 1, not_called) == "kept"
    assert world.rows("SELECT result FROM idempotency_attempt WHERE idempotency_key = 'k'") == [
        ("old",)
    ]
    assert notes(world) == ["corrected: it was replaced", None]

    assert log.correct(FILE, {"k": (1, "newest")}, reason="again") == ["k"]
    assert log.run(FILE, "k", 1, not_called) == "newest"
    assert world.rows("SELECT result FROM idempotency_attempt WHERE idempotency_key = 'k'") == [
        ("old",)
    ]
    assert notes(world) == ["corrected: it was replaced; corrected: again", None]


def test_what_another_attempt_has_completed_since_is_not_corrected(world: World) -> None:
    log = world.log()
    log.run(FILE, "k", 1, lambda _: "old")
    log.reopen(FILE, {"k": 1}, reason="restated")
    found: dict[str, tuple[int, Json]] = {"k": (1, "looked at before")}

    assert log.correct(FILE, found, reason="") == []  # it is not completed
    log.run(FILE, "k", 1, lambda _: "new")
    assert log.correct(FILE, found, reason="") == []

    assert log.run(FILE, "k", 1, not_called) == "new"


def test_restating_opens_a_generation_and_keeps_the_old_result(world: World) -> None:
    log = world.log()
    log.run(CALL, "k", 1, lambda _: "old")

    assert log.reopen(CALL, {"k": 2, "never claimed": 1}, reason="the source changed") == ["k"]
    assert log.run(CALL, "k", 2, lambda attempt: attempt.remote_key) == "call:k:2"

    first, second = log.trail("k")[0].attempts
    assert (first.generation, first.result, first.note) == (
        1,
        "old",
        "reopened: the source changed",
    )
    assert (second.number, second.generation, second.result) == (2, 2, None)


def test_reopening_twice_is_reopening_once(world: World) -> None:
    log = world.log()
    log.run(CALL, "k", 1, lambda _: "old")
    for _ in range(2):
        log.reopen(CALL, {"k": 1}, reason="again")

    assert log.run(CALL, "k", 1, lambda attempt: attempt.generation) == 2
    assert log.trail("k")[0].attempts[0].result == "old"


def test_what_is_at_work_or_sealed_is_not_reopened(world: World) -> None:
    log = world.log()
    log.claim_many(CALL, {"at work": 1})
    log.seal(CALL, "sealed", reason="undone")

    assert log.reopen(CALL, {"at work": 1, "sealed": 1}, reason="why not") == []


def notes(world: World) -> list[str | None]:
    """Return how attempts were ended by others, in the order of their keys."""
    statement = "SELECT note FROM idempotency_attempt ORDER BY idempotency_key, attempt"
    return [note for (note,) in world.rows(statement)]
