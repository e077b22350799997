"""A person books a journey, decides about a hotel that is full, and takes the journey back.

The tests stand in the order in which a person would do it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from backfill_assets_tests.browser.pages import Pages
    from backfill_assets_tests.recovery.running import Product

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

SAGA = "book_itinerary/second"


def book(booking: str) -> str:
    return (
        "ops:\n  book:\n    config:\n"
        f"      {{booking: {booking}, traveller: Ada, flight: UA303, origin: JFK,"
        ' day: "2013-08-03", onward_to: HNL}\n'
    )


def case(product: Product) -> Any:
    return json.loads(product.run("saga", "show", SAGA, "--json").stdout)


def expect_said(pages: Pages, text: str) -> None:
    expect(pages.page.get_by_text(text).first).to_be_visible()


def test_a_journey_is_booked_from_the_launchpad(pages: Pages) -> None:
    pages.fill_in_job("book_itinerary", book("first"))

    expect_said(pages, "book_itinerary/first is COMPLETED")


def test_a_full_hotel_waits_for_a_decision_which_the_launchpad_takes(
    pages: Pages, product: Product
) -> None:
    with psycopg.connect(product.log_url()) as connection:
        connection.execute("UPDATE hotels.hotel SET rooms = 0 WHERE hotel = 'SFO Central'")

    pages.fill_in_job("book_itinerary", book("second"))

    expect_said(pages, f"{SAGA} waits for a decision")
    found = case(product)
    assert found["status"] == "AWAITING_DECISION"
    assert "free in SFO: SFO Park (12 free" in found["question"]
    (arguments,) = re.findall(r"replace with (\{.*?\})", found["question"])
    form = {
        "saga": SAGA,
        "version": found["version"],
        "choice": "replace",
        "step": "first_hotel",
        "arguments": arguments,
        "who": "Ada",
        "why": "the park is nicer anyway",
    }

    pages.fill_in_job("decide_saga", json.dumps({"ops": {"decide": {"config": form}}}))

    expect_said(pages, f"{SAGA} is COMPLETED")
    assert case(product)["status"] == "COMPLETED"


def test_the_journey_is_taken_back_and_the_case_file_says_what_it_costs(
    pages: Pages, product: Product
) -> None:
    form = {"saga": SAGA, "who": "Ada", "why": "it rains there"}

    pages.fill_in_job("cancel_saga", json.dumps({"ops": {"cancel": {"config": form}}}))

    expect_said(pages, f"{SAGA} is COMPENSATED")
    steps = {step["step"]: step for step in case(product)["steps"]}
    assert steps["first_flight"]["undo_receipt"] == {"fee_cents": 2_827, "refund_cents": 25_447}
    assert steps["first_hotel"]["undo_receipt"] is None  # it was full
    assert steps["first_hotel@2"]["undo_receipt"]["refund_cents"] > 0
