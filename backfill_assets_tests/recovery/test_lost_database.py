"""Dagster's database is thrown away: it is a display, and what it showed is in the files."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import psycopg
import pytest

from backfill_assets.stores.postgres.databases import Databases
from backfill_assets.stores.postgres.embedded import BASE_DATABASE, EmbeddedPostgres
from backfill_assets_tests.recovery.running import STOP_SECONDS
from backfill_assets_tests.recovery.waiting import wait_for
from backfill_assets_tests.recovery.watcher import stamps

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets_tests.recovery.running import Product

REPORTED_SECONDS = 180


def drop_dagsters_database(product: Product) -> None:
    server = EmbeddedPostgres(product.home / "postgres")
    name = server.databases.dagster
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}"')
    server.leave()
    wait_for("the end of PostgreSQL", product.is_gone, seconds=STOP_SECONDS)


def remove_all_but_the_files(product: Product) -> None:
    for path in product.home.iterdir():
        if path.name != "store":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def wait_until_all_is_shown(product: Product) -> None:
    wait_for(
        "Dagster to show what is committed",
        lambda: product.materialized() == product.committed(),
        seconds=REPORTED_SECONDS,
        every=1,
    )


@pytest.mark.parametrize("lose", [drop_dagsters_database, remove_all_but_the_files])
def test_a_lost_database_launches_nothing_and_is_told_everything_again(
    complete_product: Product, lose: Callable[[Product], None]
) -> None:
    product = complete_product
    before = dict(stamps(product.store.root))
    lose(product)

    product.up()
    product.wait_until_it_answers()
    wait_until_all_is_shown(product)

    assert product.runs() == []
    assert dict(stamps(product.store.root)) == before
    assert product.stop() == 0


def test_a_database_that_is_thrown_away_while_all_runs_is_made_and_told_anew(
    complete_product: Product,
) -> None:
    product = complete_product
    before = dict(stamps(product.store.root))
    product.up()
    product.wait_until_it_answers()
    wait_until_all_is_shown(product)

    dagster = Databases.named_after(BASE_DATABASE).dagster
    with psycopg.connect(product.log_url(), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{dagster}" WITH (FORCE)')

    wait_for("a new one", lambda: "it is made anew" in product.output, seconds=REPORTED_SECONDS)
    wait_until_all_is_shown(product)
    assert product.runs() == []
    assert dict(stamps(product.store.root)) == before
    assert product.stop() == 0
