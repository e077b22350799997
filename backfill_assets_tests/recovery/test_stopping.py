"""Ctrl-C ends everything that `up` started, at any moment; and where `up` refuses to start."""

from __future__ import annotations

import shutil
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.recovery.running import (
    ERROR,
    NO,
    SMALL_CLOCK,
    SMALL_PARTITIONS,
    Product,
    Role,
)
from backfill_assets_tests.recovery.undisturbed import files_of
from backfill_assets_tests.recovery.waiting import wait_for
from backfill_assets_tests.recovery.watcher import stamps

if TYPE_CHECKING:
    from collections.abc import Callable

GONE_SECONDS = 30  # PostgreSQL stops after its last user
SMALL_SECONDS = 240


def assert_gone(product: Product) -> None:
    wait_for("the end of all processes", product.is_gone, seconds=GONE_SECONDS, every=0.2)


def wait_for_run(product: Product) -> None:
    wait_for("a run", lambda: product.processes()[Role.RUN], seconds=SMALL_SECONDS, every=0.1)


@pytest.mark.timeout(900)  # three times from nothing to a run, on a busy machine too
def test_a_signal_in_the_middle_of_a_run_ends_everything_and_the_work_goes_on(
    small_product: Product,
) -> None:
    small_product.up()
    wait_for_run(small_product)
    assert small_product.stop(signal.SIGINT) == 0
    assert_gone(small_product)

    small_product.up("--until-complete")
    wait_for_run(small_product)
    assert small_product.stop(signal.SIGTERM) == NO
    assert_gone(small_product)

    small_product.up("--until-complete")
    assert small_product.exit_code(seconds=SMALL_SECONDS) == 0
    assert_gone(small_product)
    assert len(small_product.committed()) == SMALL_PARTITIONS


def test_a_signal_while_everything_comes_up_ends_everything(small_product: Product) -> None:
    small_product.up()
    wait_for("PostgreSQL", lambda: "PostgreSQL" in small_product.output, seconds=60)

    assert small_product.stop() == 0
    assert_gone(small_product)


def test_a_complete_store_is_left_alone(complete_product: Product) -> None:
    before = dict(stamps(complete_product.store.root))

    complete_product.up("--until-complete")

    assert complete_product.exit_code(seconds=SMALL_SECONDS) == 0
    assert dict(stamps(complete_product.store.root)) == before
    assert_gone(complete_product)


def test_a_port_that_is_taken_is_refused(complete_product: Product) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = complete_product.run("up", "--port", str(port))

    assert refused.returncode == ERROR
    assert refused.stderr == (
        f"SettingsError: port {port}: Address already in use; give another one with --port\n"
    )
    assert_gone(complete_product)


def test_a_home_may_be_deeper_than_the_path_of_a_socket_can_be(
    complete_product: Product,
) -> None:
    deep = complete_product.home.parent / ("a-folder-with-a-long-name/" * 5)
    shutil.copytree(complete_product.home, deep)
    product = Product(home=deep, settings=complete_product.settings)
    try:
        product.up()
        product.wait_until_it_answers()
        assert product.stop() == 0
        assert_gone(product)
    finally:
        product.end()


def test_two_homes_side_by_side_do_not_disturb_each_other(
    new_product: Callable[..., Product],
) -> None:
    one, two = (new_product(clock=SMALL_CLOCK, tick_seconds="2") for _ in range(2))
    one.up()
    two.up("--until-complete")

    assert two.exit_code(seconds=SMALL_SECONDS) == 0
    assert_gone(two)
    wait_for("the other home", one.is_complete, seconds=SMALL_SECONDS, every=0.5)
    assert one.stop() == 0
    assert_gone(one)
    assert files_of(one.store.root) == files_of(two.store.root)
