"""What must hold of the world wherever an itinerary rests, whatever happened on the way."""

from __future__ import annotations

import json
import re
import shlex
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets.core.operations import Outcome
from backfill_assets.core.sagas import Choice, SagaStatus

if TYPE_CHECKING:
    from backfill_assets.stores.sagas.rows import Saga
    from backfill_assets.stores.sagas.sagas import Sagas
    from backfill_assets_tests.flights.itinerary.journeys import World

LATE = timedelta(hours=3)  # longer than all waits of an undo's ten attempts
SAGA = "book_itinerary/1"


def check_rest(world: World, sagas: Sagas, *, vouched_for: str | None = None) -> None:
    """The world is as the saga says, and the books are in order.

    Args:
        vouched_for: The step of which a person has said how it stands.
    """
    world.check_books()
    saga = sagas.get(SAGA)
    assert not saga.status.is_moving
    assert world.execute("SELECT resource FROM saga_lock") == []
    applied = {title for title in world.applied(SAGA) if title.split("@")[0] != vouched_for}
    steps = {entry.title for entry in saga.plan.entries} - {vouched_for}
    if saga.status is SagaStatus.COMPLETED:
        assert applied == steps
    elif saga.status is SagaStatus.COMPENSATED:
        assert applied == set()
    else:
        _check_case(world, sagas, saga)


def follow(sagas: Sagas, choice: Choice) -> Saga:
    """Do what the case file says that one does to make this choice, and drive the saga."""
    case = sagas.case_file(SAGA)
    command = case.commands[choice]
    assert case.saga.question is not None
    offered = re.search(r"replace with (\{.*?\})", case.saga.question.reason)
    words = shlex.split(command)
    assert words[:4] == ["backfill-assets", "saga", "decide", SAGA]
    options = dict(zip(words[5::2], words[6::2], strict=True))
    more: dict[str, Any] = {}
    if choice is Choice.REPLACE:
        step = options["--step"]
        arguments: Any = case.saga.plan.entry(step).arguments
        other = {"SFO Central": "SFO Park", "HNL Grand": "HNL Garden"}[arguments["hotel"]]
        replacing = json.loads(offered[1]) if offered else {**arguments, "hotel": other}
        more = {"step": step, "arguments": replacing}
    version = int(options["--version"])
    sagas.decide(SAGA, version, Choice(words[4]), who="ada", why="because", **more)
    return sagas.run(SAGA, patience=LATE)


def _check_case(world: World, sagas: Sagas, saga: Saga) -> None:
    """The case file names all that is applied and nothing else, but for what nobody can know."""
    case = sagas.case_file(SAGA)
    facts = case.facts()
    assert saga.question is not None
    said = {line.partition(":")[0] for line in facts["still_applied"]}
    applied = world.applied(SAGA)
    assert applied <= said
    in_doubt = {
        trail.state.operation.rpartition(".")[0]
        for trail in case.trails
        if any(attempt.outcome is Outcome.UNKNOWN for attempt in trail.attempts)
    }
    assert said - applied <= in_doubt
    assert set(facts["commands"]) == set(saga.question.choices)
    ((subject, body),) = world.execute("SELECT subject, body FROM alert ORDER BY id DESC LIMIT 1")
    assert saga.question.reason in subject
    assert body["commands"] == facts["commands"]
    assert body["still_applied"] == facts["still_applied"]
