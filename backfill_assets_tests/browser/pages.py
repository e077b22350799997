"""What a person does on Dagster's pages, in a person's words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

LOCATION = "__repository__@backfill_assets.definitions"
RUN_MS = (
    180_000  # a backfill of the daemon begins after up to 30 s, and a run takes a while to start
)


@dataclass(frozen=True, slots=True)
class Pages:
    """One browser page on one running Dagster."""

    page: Page
    address: str

    def open(self, path: str) -> None:
        """Go to a page of Dagster's."""
        self.page.goto(f"{self.address}/{path}")

    def answer(self) -> bool:
        """Return whether the webserver answers already."""
        try:
            return bool(self.page.request.get(f"{self.address}/server_info").ok)
        except PlaywrightError:
            return False

    def grid(self, asset: str = "flights/carrier/departures") -> None:
        """Open the partitions of an asset."""
        self.open(f"assets/{asset}?view=partitions")

    def expect_cells(self, state: str, count: int) -> None:
        """Wait until the grid counts that many partitions of a state."""
        self._wait_for(self.page.get_by_text(re.compile(rf"^{state} \({count}\)$")).first)

    def launch(self, dates: str, *, missing_only: bool = False) -> str:
        """Fill in the launch dialog for all units, launch, and return the backfill's id."""
        self.page.get_by_role("button", name="Materialize").first.click()
        dialog = self.page.get_by_role("dialog")
        days = dialog.get_by_role("textbox").first
        days.fill(dates)
        days.press("Enter")
        dialog.get_by_role("button", name="All", exact=True).last.click()
        if missing_only:
            dialog.get_by_text("Backfill only failed and missing").click()
        dialog.get_by_role("button", name="Launch backfill").click()
        expect(dialog).to_be_hidden()
        return str(self._backfills()[0]["id"])

    def launch_one(self, day: str, unit: str) -> None:
        """Launch one partition; its unit is typed, and then picked from what is found."""
        self.page.get_by_role("button", name="Materialize").first.click()
        dialog = self.page.get_by_role("dialog").first
        days = dialog.get_by_role("textbox").first
        days.fill(day)
        days.press("Enter")
        dialog.get_by_text("Select a partition").click()
        found = self.page.locator(".dagster-popover").last
        found.get_by_placeholder("Filter partitions").fill(unit)
        expect(found.get_by_text("Select all (1)")).to_be_visible()
        found.get_by_text(unit, exact=True).first.click()
        dialog.get_by_text("Launch runs to materialize").click()
        dialog.get_by_role("button", name="Launch 1 run").click()
        expect(dialog).to_be_hidden(timeout=RUN_MS)  # without a queue, the run begins first

    def expect_backfill(self, backfill: str, status: str) -> None:
        """Wait until a backfill has come to its end, and look at its page."""
        for _ in range(RUN_MS // 3_000):
            (found,) = [b for b in self._backfills() if b["id"] == backfill]
            if str(found["status"]).startswith("COMPLETED"):
                break
            self.page.wait_for_timeout(3_000)
        assert found["status"] == status
        self.open(f"runs/b/{backfill}")
        expect(self.page.get_by_text("flights / carrier / departures").first).to_be_visible()

    def open_failed_run(self, backfill: str) -> None:
        """Open the page of a run of a backfill that failed."""
        tags = f'[{{key: "dagster/backfill", value: "{backfill}"}}]'
        query = f"{{runsOrError(filter: {{statuses: [FAILURE], tags: {tags}}})" + (
            "{... on Runs{results{runId}}}}"
        )
        self.open(f"runs/{self._ask(query, 'runsOrError')[0]['runId']}")

    def _backfills(self) -> list[dict[str, object]]:
        """Return the newest backfills, the newest first."""
        query = (
            "{partitionBackfillsOrError(limit: 5){... on PartitionBackfills{results{id status}}}}"
        )
        return self._ask(query, "partitionBackfillsOrError")

    def _ask(self, query: str, field: str) -> list[dict[str, object]]:
        """Ask as the pages themselves ask."""
        answer = self.page.request.post(f"{self.address}/graphql", data={"query": query}).json()
        found: list[dict[str, object]] = answer["data"][field]["results"]
        return found

    def fill_in_job(self, job: str, form: str) -> None:
        """Fill in the launchpad of a job, launch it, and wait until it has succeeded."""
        self.open(f"locations/{LOCATION}/jobs/{job}/playground")
        editor = self.page.locator(".CodeMirror").first
        expect(editor).to_be_visible()
        editor.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(form)
        launch = self.page.get_by_role("button", name="Launch Run")
        expect(launch).to_be_enabled()
        launch.click()
        expect(self.page.get_by_text("RUN_SUCCESS").first).to_be_visible(timeout=RUN_MS)

    def _wait_for(self, wanted: Locator) -> None:
        """Wait until something is to be seen; the page refreshes itself now and then only."""
        for _ in range(20):
            try:
                expect(wanted).to_be_visible(timeout=8_000)
            except AssertionError:
                self.page.reload()
            else:
                return
        expect(wanted).to_be_visible()

    def picture(self) -> Locator:
        """Open the coverage's calendar, and return the picture."""
        self.open("assets/flights/coverage")
        link = self.page.get_by_text("[Show Markdown]").first
        self._wait_for(link)  # the sensor looks at the coverage once all is quiet
        link.click()
        return self.page.get_by_role("dialog").locator("img")
