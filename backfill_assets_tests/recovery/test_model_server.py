"""The model server beside Dagster: started when there is something to serve, and kept alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.core.errors import ModelError
from backfill_assets.flights.load import load_flights
from backfill_assets.flights.models.address import read_address
from backfill_assets.flights.models.artifacts import ModelFolder
from backfill_assets.flights.models.training import train
from backfill_assets.stores.http_calls import Caller, is_answering
from backfill_assets_tests.flights.models.workbench import JANUARY
from backfill_assets_tests.recovery.running import Role, kill
from backfill_assets_tests.recovery.waiting import wait_for

if TYPE_CHECKING:
    from backfill_assets_tests.postgres_fixtures import Workshop
    from backfill_assets_tests.recovery.running import Product

COMES_UP_SECONDS = 90
ANSWER_SECONDS = 60


def load(url: str) -> None:
    load_flights(url)


def address(product: Product) -> str:
    return read_address(product.home / "model-server.json")


def is_up(product: Product) -> bool:
    try:
        return is_answering(f"{address(product)}/health")
    except ModelError:
        return False


def test_it_comes_with_the_first_models_and_comes_back_with_its_memory(
    running_product: Product, workshop: Workshop
) -> None:
    assert not running_product.processes()[Role.MODEL_SERVER]
    models = train(workshop.clone("flights", load), JANUARY)
    ModelFolder(lambda: running_product.home / "models").save(models)
    wait_for("the server", lambda: is_up(running_product), seconds=COMES_UP_SECONDS, every=0.5)

    body = {"model": models.card.version, "rows": models.card.probes["rows"]}
    with Caller("it", lambda: address(running_product), answer_seconds=ANSWER_SECONDS) as caller:
        first = caller.post("/v1/risk", "one", body)
    assert first == {"model": models.card.version, "scores": models.card.probes["risks"]}

    before = running_product.processes()[Role.MODEL_SERVER]
    kill(*before)
    wait_for("it again", lambda: is_up(running_product), seconds=COMES_UP_SECONDS, every=0.5)
    after = running_product.processes()[Role.MODEL_SERVER]
    assert {p.pid for p in after}.isdisjoint(p.pid for p in before)

    with Caller("it", lambda: address(running_product), answer_seconds=ANSWER_SECONDS) as caller:
        assert caller.post("/v1/risk", "one", body) == first
    assert "model-server had died; it is started again" in running_product.output
