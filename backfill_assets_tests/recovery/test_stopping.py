"""Ctrl-C ends everything that `up` started; and two do not run in one home, nor on one port."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

import pytest

from backfill_assets_tests.recovery.running import SMALL_CLOCK, SMALL_PARTITIONS, Role
from backfill_assets_tests.recovery.undisturbed import files_of
from backfill_assets_tests.recovery.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from backfill_assets_tests.recovery.running import Product

GONE_SECONDS = 30  # PostgreSQL stops after its last user
SMALL_SECONDS = 240
ERROR, NO = 1, 3  # exit codes; see cli


def assert_gone(product: Product) -> None:
    wait_for("the end of all processes", product.is_gone, seconds=GONE_SECONDS, every=0.2)


@pytest.mark.parametrize(
    ("number", "arguments", "code"),
    [(signal.SIGINT, (), 0), (signal.SIGTERM, ("--until-complete",), NO)],
)
def test_a_signal_in_the_middle_of_a_run_ends_everything(
    new_product: Callable[..., Product],
    number: signal.Signals,
    arguments: tuple[str, ...],
    code: int,
) -> None:
    product = new_product(tick_seconds="2")
    product.up(*arguments)
    wait_for("a run", lambda: product.processes()[Role.RUN], seconds=SMALL_SECONDS, every=0.1)

    assert product.stop(number) == code
    assert_gone(product)
    assert "Stopping" in product.output


def test_a_signal_while_everything_comes_up_ends_everything(small_product: Product) -> None:
    small_product.up()
    wait_for("PostgreSQL", lambda: "PostgreSQL" in small_product.output, seconds=60)

    assert small_product.stop() == 0
    assert_gone(small_product)


def test_after_a_stop_the_work_goes_on_where_the_files_say(small_product: Product) -> None:
    small_product.up()
    wait_for("a first file", small_product.committed, seconds=SMALL_SECONDS, every=0.2)
    small_product.stop()
    assert_gone(small_product)

    small_product.up("--until-complete")

    assert small_product.exit_code(seconds=SMALL_SECONDS) == 0
    assert len(small_product.committed()) == SMALL_PARTITIONS


def test_a_home_that_is_up_is_not_started_again(complete_product: Product) -> None:
    complete_product.up()
    wait_for("PostgreSQL", lambda: "PostgreSQL" in complete_product.output, seconds=60)

    refused = complete_product.run("up", "--port", "0")

    assert refused.returncode == ERROR
    assert refused.stderr == (
        f"SettingsError: {complete_product.home} is up already, in another terminal; stop it "
        "there\n"
    )
    assert complete_product.stop() == 0


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
