"""Faults built into the log on purpose: each is caught by a test of this folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.core.errors import OperationError
from backfill_assets.stores.log import ledger
from backfill_assets.stores.log.ledger import Ledger
from backfill_assets.stores.sql import Statements
from backfill_assets_tests.stores.log import (
    test_artifacts,
    test_duplicates,
    test_failing_attempts,
    test_killed_owners,
    test_late_attempts,
    test_lost_connections,
    test_rivals,
    test_upkeep,
)
from backfill_assets_tests.stores.log.cutting_proxy import Cut, CuttingProxy
from backfill_assets_tests.stores.log.simulator import Simulator
from backfill_assets_tests.stores.log.world import PLAIN_CALL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from backfill_assets.core.operations import Attempt, Operation
    from backfill_assets_tests.stores.log.world import World

# The last one where an alert or a row is taken out of a list that should hold one.
CAUGHT = (AssertionError, pytest.fail.Exception, psycopg.Error, OperationError, ValueError)

late_transaction = partial(
    test_late_attempts.test_a_late_transaction_leaves_no_row_and_is_written_down_with_what_it_wanted,
    where=test_late_attempts.inside_the_transaction,
)


def histories(world: World) -> None:
    Simulator(world, 400, seed=3).run(20)


def lost_answers(world: World) -> None:
    with CuttingProxy(world.url) as proxy:
        test_lost_connections.test_a_call_is_made_once_whichever_request_is_cut(
            world, proxy, Cut.AFTER
        )


@dataclass(frozen=True)
class Mutant:
    """A statement in which some text is replaced, and the test that must fail of it.

    Attributes:
        is_trusting: What the statement returns is not compared with what was asked: else that
            stops some mutants before any harm is done.
    """

    statement: str
    old: str
    new: str
    check: Callable[[World], None]
    is_trusting: bool = False


FENCE = """log.attempt = done.attempt AND log.claim_id = done.claim
       AND log.status IS NOT DISTINCT FROM 'PROCESSING' AND log.sealed_at IS NULL"""
RETURNED = "RETURNING log.idempotency_key, log.operation_name, log.attempt, done.digest"
IN_DOUBT = "log.in_doubt OR %(outcome)s = 'UNKNOWN'"

MUTANTS = {
    "no fence at completion": Mutant("complete", FENCE, "true", late_transaction, is_trusting=True),
    "no fence at completion, by histories": Mutant("complete", FENCE, "true", histories),
    "a seal is no fence": Mutant(
        "complete",
        FENCE,
        "log.attempt = done.attempt",
        test_upkeep.test_a_transaction_that_was_sealed_while_it_wrote_leaves_nothing,
    ),
    "the lease is checked instead of the token": Mutant(
        "complete",
        FENCE,
        "log.status = 'PROCESSING' AND log.lease_until > %(now)s",
        test_late_attempts.test_a_slow_attempt_that_nobody_replaced_completes_after_its_lease,
    ),
    "the lease is checked instead of the token, and alive": Mutant(
        "complete",
        FENCE,
        "log.status = 'PROCESSING' AND log.lease_until > %(now)s",
        test_late_attempts.test_a_late_result_that_comes_before_the_retry_ends_raises_the_alert_as_well,
    ),
    "no fence at failure": Mutant(
        "fail",
        "AND log.attempt = failed.attempt AND log.claim_id = failed.claim\n"
        "       AND log.status IS NOT DISTINCT FROM 'PROCESSING'",
        "",
        partial(
            test_late_attempts.test_a_late_failure_changes_nothing_and_its_reason_is_kept,
            is_supervised=False,
        ),
    ),
    "UNKNOWN is FAILED": Mutant(
        "fail",
        IN_DOUBT,
        "log.in_doubt",
        test_failing_attempts.test_an_unknown_outcome_is_asked_about_before_it_is_tried_again,
    ),
    "a crash is a failure": Mutant(
        "claim",
        "known.in_doubt OR known.status = 'PROCESSING'",
        "known.in_doubt",
        partial(
            test_killed_owners.test_killed_after_its_call_where_nobody_can_tell_a_person_is_asked_and_it_is_not_repeated,
            operation=PLAIN_CALL,
            attempts=5,
        ),
    ),
    "the token is reset by a takeover": Mutant(
        "claim", "attempt = known.attempt + 1", "attempt = 1", late_transaction
    ),
    "the token is reset by reopening": Mutant(
        "reopen", "spent = 0,", "spent = 0, attempt = 0,", histories
    ),
    "the claim is no part of the token": Mutant(
        "complete",
        "AND log.claim_id = done.claim",
        "",
        test_artifacts.test_an_attempt_of_a_database_that_was_restored_from_a_backup_is_fenced,
    ),
    "a correction changes what was completed since": Mutant(
        "correct",
        "AND log.attempt = asked.attempt",
        "",
        test_artifacts.test_what_another_attempt_has_completed_since_is_not_corrected,
    ),
    "a correction that is made again forgets the old result": Mutant(
        "correct",
        "AND log.result::text <> asked.result",
        "",
        test_artifacts.test_another_content_that_was_found_is_stored_and_the_old_result_kept,
    ),
    "the budget is not looked at": Mutant(
        "claim",
        "known.spent < %(max_attempts)s",
        "true",
        test_killed_owners.test_a_crash_loop_spends_the_budget_and_there_is_no_sixth_start,
    ),
    "the late one is not written down": Mutant(
        "record_late", "own.outcome IN ('RUNNING', 'UNKNOWN')", "false", late_transaction
    ),
    "who completes does not look for the late": Mutant(
        "differing",
        "late.result_digest <> own.result_digest",
        "false",
        test_late_attempts.test_a_late_result_that_comes_before_the_retry_ends_raises_the_alert_as_well,
    ),
    "generations are compared with each other": Mutant(
        "record_late",
        "AND other.generation = fenced.generation",
        "",
        test_late_attempts.test_a_late_result_of_an_earlier_generation_is_not_compared_with_a_later_one,
    ),
    "whoever is fenced settles a doubt": Mutant(
        "settle",
        "AND status = 'PROCESSING'",
        "",
        test_late_attempts.test_a_fenced_attempt_settles_no_doubt_and_does_not_act,
    ),
    "a takeover does not see who has just begun": Mutant(
        "claim",
        "taken_from = CASE known.status WHEN 'PROCESSING' THEN known.worker END",
        "taken_from = NULL",
        test_rivals.test_a_claim_that_waited_for_another_sees_the_attempt_that_began_meanwhile,
    ),
    "a seal does not see who has just begun": Mutant(
        "seal",
        "AND status = 'FAILED'",
        "AND false",
        test_rivals.test_a_seal_that_waited_for_a_claim_ends_the_attempt_that_began_meanwhile,
    ),
    "any attempt's completion is disproved": Mutant(
        "disprove",
        "AND log.attempt = asked.attempt",
        "",
        test_artifacts.test_a_completion_is_disproved_only_for_the_attempt_that_was_looked_at,
    ),
    "reopening forgets what is in doubt": Mutant(
        "reopen", "log.in_doubt AND NOT %(is_settled)s", "false", histories
    ),
    "a claim whose answer was lost is somebody else's": Mutant(
        "claimed", "claim_id = %(claim)s", "false", lost_answers
    ),
    "a completion whose answer was lost is somebody else's": Mutant(
        "completed", "own.outcome = 'SUCCEEDED'", "false", lost_answers
    ),
    "a supervisor ends what is alive": Mutant(
        "supervise", "AND lease_until <= %(before)s", "", histories
    ),
    "who waits for a person is forgotten": Mutant(
        "prune",
        "AND NOT (in_doubt AND sealed_at IS NULL AND kind IN ('REMOTE', 'IRREVERSIBLE'))",
        "",
        test_upkeep.test_what_has_ended_long_ago_is_forgotten_and_what_waits_for_a_person_is_kept,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    texts = dict(ledger._STATEMENTS.texts)
    assert texts[mutant.statement].count(mutant.old) == 1
    texts[mutant.statement] = texts[mutant.statement].replace(mutant.old, mutant.new)
    if mutant.is_trusting:
        assert RETURNED in texts["complete"]
        texts["complete"] = texts["complete"].replace(
            RETURNED, RETURNED.replace("log.att", "done.att")
        )
    mutated = Statements("statements.sql", MappingProxyType(texts))
    monkeypatch.setattr(ledger, "_STATEMENTS", mutated)

    with pytest.raises(CAUGHT):
        mutant.check(world)


def test_a_refused_duplicate_that_changes_the_owners_row_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = Ledger.claim

    def touching(
        self: Ledger, operation: Operation, prints: Mapping[str, str]
    ) -> dict[str, Attempt]:
        granted = claim(self, operation, prints)
        for key in prints.keys() - granted.keys():
            world.rows(
                "UPDATE idempotency_log SET worker = %s WHERE idempotency_key = %s",
                self.worker,
                key,
            )
        return granted

    monkeypatch.setattr(Ledger, "claim", touching)

    for check in (
        test_duplicates.test_a_duplicate_of_what_is_at_work_is_told_when_to_come_again,
        test_duplicates.test_a_batch_gives_each_key_its_own_answer,
    ):
        with pytest.raises(CAUGHT):
            check(world)
        world.rows("TRUNCATE idempotency_log, idempotency_attempt")


def test_an_attempt_that_is_forgiven_for_having_completed_is_caught(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = Ledger.complete

    def forgiving(
        self: Ledger,
        operation: Operation,
        results: list[tuple[Attempt, str, str]],
        connection: psycopg.Connection | None = None,
    ) -> set[tuple[str, int]]:
        owned = complete(self, operation, results, connection)
        return owned | self.completed(operation, [attempt for attempt, _, _ in results])

    monkeypatch.setattr(Ledger, "complete", forgiving)

    with pytest.raises(CAUGHT):
        test_late_attempts.test_an_attempt_that_completed_cannot_write_its_effect_again(world)
