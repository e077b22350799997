"""Which sagas may be defined, how they are stored, and what is next in chosen situations."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from backfill_assets.core.errors import SagaArgumentsError, SagaDefinitionError
from backfill_assets.core.operations import Kind
from backfill_assets.core.saga_codec import (
    definition_facts,
    definition_of,
    differences,
    plan_facts,
    plan_of,
    question_facts,
    question_of,
)
from backfill_assets.core.saga_decisions import (
    Act,
    Ask,
    Finish,
    Question,
    Stuck,
    TurnBack,
    Wait,
    next_of,
)
from backfill_assets.core.saga_plans import Allowance, SagaPlan, make_plan
from backfill_assets.core.sagas import (
    Choice,
    Direction,
    OnFailure,
    SagaDefinition,
    SagaStatus,
    Step,
)
from backfill_assets.core.step_states import Effect, OperationFacts, effect_of, step_states
from backfill_assets_tests.core.saga_model import random_definition

NOW = datetime(2013, 8, 3, 12, tzinfo=UTC)
SOON = NOW + timedelta(seconds=30)
DONE = OperationFacts(attempt=1, spent=1, is_completed=True)
FAILED = OperationFacts(attempt=1, spent=1, retry_at=NOW, error_type="OSError", error="down")
REFUSED = replace(FAILED, error_type="StepRefusedError", error="full")
UNKNOWN = replace(FAILED, is_in_doubt=True, error_type="TimeoutError", error="no answer")
SEALED = OperationFacts(is_sealed=True)


def step(name: str, *after: str, **more: Any) -> Step:
    values: dict[str, Any] = {"kind": Kind.REMOTE, "undo": f"undo_{name}", "is_deduplicated": True}
    return Step(name=name, do=f"do_{name}", after=after, **values | more)


def pivot(name: str, *after: str) -> Step:
    return step(name, *after, kind=Kind.IRREVERSIBLE, undo=None, is_deduplicated=False)


def saga(*steps: Step, on_failure: OnFailure = OnFailure.COMPENSATE) -> SagaDefinition:
    return SagaDefinition(name="saga", steps=steps, on_failure=on_failure)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([], "saga 'saga': it has no step; give it one"),
        ([step("A")], "'A' is no name; use lower-case letters, digits and _"),
        ([step("a"), step("a")], "two steps are called 'a'; rename one"),
        ([step("a", undo=None)], "step 'a' has no undo; name one, or make its kind IRREVERSIBLE"),
        ([replace(pivot("a"), undo="b")], "step 'a' is irreversible and names an undo"),
        ([step("a", undo_kind=Kind.IRREVERSIBLE)], "the undo of 'a' is irreversible, but an undo"),
        ([step("a", "b")], "step 'a' comes after 'b', which is no step of it"),
        ([step("a", "b"), step("b", "a")], "its steps wait for each other: "),
        ([step("a", timeout=timedelta(0))], "step 'a' has no time; its timeout is 0:00:00"),
        ([step("a", locks=("x/{}",))], "lock 'x/{}' of step 'a': braces hold a name"),
        ([step("a", locks=("x/{",))], "lock 'x/{' of step 'a': braces hold a name"),
        ([pivot("a"), step("b", "a")], "step 'b' may run after 'a', which is irreversible"),
        ([pivot("a"), step("b")], "step 'b' may run after 'a', which is irreversible"),
    ],
)
def test_a_saga_that_could_not_be_undone_safely_is_refused(steps: list[Step], found: str) -> None:
    with pytest.raises(SagaDefinitionError) as caught:
        saga(*steps)
    assert found in str(caught.value)


def test_what_comes_before_an_irreversible_step_or_only_goes_forward_may_be_defined() -> None:
    forward = OnFailure.FORWARD_ONLY
    saga(step("a"), pivot("b", "a"), step("c", "b", on_failure=forward))
    saga(pivot("b"), step("c"), on_failure=forward)


@pytest.mark.parametrize("seed", range(50))
def test_a_plan_is_stored_and_read_back_the_same(seed: int) -> None:
    chance = random.Random(seed)
    definition = random_definition(chance)
    assert definition_of(json.loads(json.dumps(definition_facts(definition)))) == definition
    plan = make_plan(definition, {s.name: {"n": [chance.random(), None]} for s in definition.steps})
    name = definition.steps[0].name
    plan = plan.with_replaced(name, "other").with_accepted(f"{name}.do", {"by": "hand"})
    plan = plan.with_allowance(f"{name}@2.do", Allowance(7, 3))
    assert plan_of(json.loads(json.dumps(plan_facts(plan)))) == plan


def test_a_question_is_stored_and_read_back_the_same() -> None:
    question = Question("why", (Stuck("a", "a.do", "full"),), (Choice.RETRY, Choice.ACCEPT))
    assert question_of(json.loads(json.dumps(question_facts(question)))) == question


def test_what_changed_in_a_definition_is_told_in_words() -> None:
    then = saga(step("a"), step("b", "a"))
    today = saga(step("a", undo_order=3), step("c"), on_failure=OnFailure.ASK)
    assert differences(then, today) == [
        "saga: on_failure was 'compensate', is 'ask'",
        "step a: undo_order was 0, is 3",
        "step b is not in it any more",
        "step c is new",
    ]
    assert differences(then, then) == []


def test_locks_are_named_from_arguments_sorted_and_once() -> None:
    definition = saga(step("a", locks=("seat/{to}", "day/{day}")), step("b", locks=("day/{day}",)))
    plan = make_plan(definition, {"a": {"to": "LHR", "day": 3}, "b": {"day": 3}})
    assert plan.locks == ["day/3", "seat/LHR"]
    with pytest.raises(SagaArgumentsError, match="arguments have no 'day'; found none"):
        make_plan(definition, {"a": {"to": "LHR", "day": 3}, "b": None})


@pytest.mark.parametrize(
    ("kind", "facts", "effect"),
    [
        (Kind.REMOTE, None, Effect.NONE),
        (Kind.REMOTE, DONE, Effect.APPLIED),
        (Kind.REMOTE, REFUSED, Effect.NONE),
        (Kind.REMOTE, UNKNOWN, Effect.MAYBE),
        (Kind.REMOTE, replace(REFUSED, is_in_doubt=True), Effect.MAYBE),  # by an earlier attempt
        (Kind.REMOTE, OperationFacts(attempt=1, is_running=True), Effect.MAYBE),
        (Kind.TRANSACTIONAL, OperationFacts(attempt=1, is_running=True), Effect.MAYBE),
        (Kind.TRANSACTIONAL, replace(UNKNOWN, is_sealed=True), Effect.NONE),
        (Kind.ARTIFACT, replace(UNKNOWN, is_sealed=True), Effect.MAYBE),
    ],
)
def test_what_a_step_may_have_left(
    kind: Kind, facts: OperationFacts | None, effect: Effect
) -> None:
    assert effect_of(kind, facts) is effect


def following(
    plan: SagaPlan | SagaDefinition,
    facts: dict[str, OperationFacts],
    status: SagaStatus = SagaStatus.RUNNING,
    *,
    missing: str = "",
) -> Any:
    if isinstance(plan, SagaDefinition):
        plan = make_plan(plan, dict.fromkeys(s.name for s in plan.steps))
    names = {name for s in plan.definition.steps for name in (s.do, s.undo)} - {missing}
    states = step_states(plan, facts, NOW, known=names, verifiable=())  # type: ignore[arg-type]
    return next_of(plan, status, states, NOW)


def operations(act: Any) -> list[str]:
    assert isinstance(act, Act), act
    return [task.operation for task in act.tasks]


DIAMOND = saga(step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))
BACK = SagaStatus.COMPENSATING


def test_steps_run_when_what_they_come_after_is_done_and_overlap_otherwise() -> None:
    assert operations(following(DIAMOND, {})) == ["a.do"]
    assert operations(following(DIAMOND, {"a.do": DONE})) == ["b.do", "c.do"]
    assert operations(following(DIAMOND, {"a.do": DONE, "b.do": DONE})) == ["c.do"]
    every = {f"{name}.do": DONE for name in "abcd"}
    assert following(DIAMOND, every) == Finish(SagaStatus.COMPLETED)


def test_an_attempt_is_waited_for_until_its_deadline_and_then_repeated() -> None:
    running = OperationFacts(attempt=1, spent=1, is_running=True, lease_until=SOON)
    assert following(saga(step("a")), {"a.do": running}) == Wait(SOON)
    assert operations(following(saga(step("a")), {"a.do": replace(running, lease_until=NOW)}))


def test_retries_are_spent_before_anything_is_undone() -> None:
    assert operations(following(saga(step("a")), {"a.do": replace(FAILED, spent=4)})) == ["a.do"]
    assert following(saga(step("a")), {"a.do": replace(FAILED, spent=4, retry_at=SOON)}) == Wait(
        SOON
    )
    assert following(saga(step("a")), {"a.do": replace(FAILED, spent=5)}) == TurnBack(
        "a.do: 5 attempts failed; the last one: down"
    )
    assert following(saga(step("a")), {"a.do": REFUSED}) == TurnBack("a.do: full")


def test_a_call_in_doubt_is_repeated_only_where_the_remote_deduplicates() -> None:
    assert operations(following(saga(step("a")), {"a.do": UNKNOWN})) == ["a.do"]
    rash = saga(step("a", is_deduplicated=False))
    assert following(rash, {"a.do": UNKNOWN}) == TurnBack(
        "a.do: it may have happened, and must not be repeated unasked: no answer"
    )


def test_a_missing_name_asks_instead_of_skipping() -> None:
    asked = following(saga(step("a"), on_failure=OnFailure.ASK), {}, missing="do_a")
    assert isinstance(asked, Ask)
    assert asked.question.stuck[0].reason.startswith("'do_a' is not registered")


def test_past_an_irreversible_step_a_failure_asks_and_offers_no_undo() -> None:
    definition = saga(pivot("p"), step("a", "p", on_failure=OnFailure.FORWARD_ONLY))
    for stood in (DONE, OperationFacts(attempt=1, is_running=True, lease_until=SOON)):
        asked = following(definition, {"p.do": stood, "a.do": REFUSED})
        assert isinstance(asked, Ask)
        assert asked.question.choices == (Choice.RETRY, Choice.REPLACE, Choice.ACCEPT)


def sealed(facts: OperationFacts) -> OperationFacts:
    return replace(facts, is_sealed=True)


def test_dependents_are_undone_before_and_independent_ones_together() -> None:
    facts = {f"{name}.do": sealed(DONE) for name in "abcd"}
    assert operations(following(DIAMOND, facts, BACK)) == ["d.undo"]
    assert operations(following(DIAMOND, facts | {"d.undo": DONE}, BACK)) == ["b.undo", "c.undo"]
    waiting = replace(FAILED, retry_at=SOON)
    facts |= {"d.undo": DONE, "b.undo": DONE, "c.undo": waiting}
    assert following(DIAMOND, facts, BACK) == Wait(SOON)  # a stands behind c
    assert following(DIAMOND, facts | {"c.undo": DONE, "a.undo": DONE}, BACK) == Finish(
        SagaStatus.COMPENSATED
    )


def test_a_stuck_undo_holds_up_what_it_depends_on_and_nothing_else() -> None:
    facts = {f"{name}.do": sealed(DONE) for name in "abcd"} | {"d.undo": DONE}
    facts["b.undo"] = replace(FAILED, spent=10)
    assert operations(following(DIAMOND, facts, BACK)) == ["c.undo"]
    asked = following(DIAMOND, facts | {"c.undo": DONE}, BACK)
    assert isinstance(asked, Ask)
    assert [one.operation for one in asked.question.stuck] == ["b.undo"]
    assert asked.question.choices == (Choice.RETRY, Choice.ACCEPT)


def test_undo_order_wins_over_dependence_and_keeps_its_turn_between_strangers() -> None:
    definition = saga(step("a", undo_order=-1), step("b", "a"), step("c", undo_order=1))
    facts = {f"{name}.do": sealed(DONE) for name in "abc"}
    assert operations(following(definition, facts, BACK)) == ["a.undo"]
    assert operations(following(definition, facts | {"a.undo": DONE}, BACK)) == ["b.undo"]
    # What is backing off lets strangers go ahead; what has not had its turn does not.
    facts |= {"a.undo": replace(FAILED, retry_at=SOON)}
    assert following(definition, facts, BACK) == Wait(SOON)
    alone = saga(step("a", undo_order=-1), step("c", undo_order=1))
    facts = {"a.do": sealed(DONE), "c.do": sealed(DONE)}
    facts["a.undo"] = replace(FAILED, retry_at=SOON)
    assert operations(following(alone, facts, BACK)) == ["c.undo"]


def test_an_undo_behind_a_stuck_one_does_not_hold_up_strangers() -> None:
    definition = saga(step("a"), step("b", "a"), step("c", undo_order=1))
    facts = {f"{name}.do": sealed(DONE) for name in "abc"}
    facts["b.undo"] = replace(FAILED, spent=10)  # a stands behind it, and will not move
    assert operations(following(definition, facts, BACK)) == ["c.undo"]


def test_what_never_began_or_rolled_back_is_not_undone_and_what_is_unknown_is() -> None:
    facts = {"a.do": sealed(UNKNOWN), "b.do": sealed(REFUSED), "c.do": SEALED, "d.do": SEALED}
    assert operations(following(DIAMOND, facts, BACK)) == ["a.undo"]
    assert following(DIAMOND, dict.fromkeys(facts, SEALED), BACK) == Finish(SagaStatus.COMPENSATED)


def test_what_was_replaced_is_undone_before_its_successor_is_done() -> None:
    plan = make_plan(saga(step("a")), {"a": 1}).with_replaced("a", 2)
    assert [e.operation(Direction.DO) for e in plan.every_entry] == ["a.do", "a@2.do"]
    facts = {"a.do": sealed(UNKNOWN)}
    assert operations(following(plan, facts)) == ["a.undo"]
    assert operations(following(plan, facts | {"a.undo": DONE})) == ["a@2.do"]
    assert following(plan, facts | {"a.undo": DONE, "a@2.do": DONE}) == Finish(SagaStatus.COMPLETED)


def test_a_new_budget_forgives_what_was_and_not_what_comes() -> None:
    plan = make_plan(saga(step("a")), {"a": 1})
    allowed = plan.with_allowance("a.do", Allowance(attempts=6, forgiven=1))
    assert operations(following(allowed, {"a.do": REFUSED})) == ["a.do"]
    again = replace(REFUSED, attempt=2, spent=2)
    assert following(allowed, {"a.do": again}) == TurnBack("a.do: full")
    assert isinstance(following(plan.with_accepted("a.do", None), {"a.do": REFUSED}), Act)
