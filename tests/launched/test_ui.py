"""What a person sees: the graph, the checks, a plot, in a real browser."""

from collections.abc import Iterator

import pytest
from frame.browser import QUIET, WAIT_MS, browser_path
from frame.parts import BROWSER, need
from playwright.sync_api import Page, expect, sync_playwright

from ebbtide.checks.great_expectations.checks import CHECKS


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    need(BROWSER)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser_path(), args=QUIET.split())
        opened = started.new_page(viewport={"width": 1400, "height": 900})
        opened.set_default_timeout(WAIT_MS)
        yield opened
        started.close()


def test_graph_shows_source_state_and_sink(dagster_dev, sales_run, page):
    page.goto(f"{dagster_dev.url}/locations/tests/asset-groups/tests")
    for name in ("sales_state", "long_state", "ticking"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible(timeout=WAIT_MS)
    n_checks = len(CHECKS)
    expect(page.get_by_text(f"{n_checks} / {n_checks} Passed").first).to_be_visible(timeout=WAIT_MS)


def test_asset_shows_rows_columns_freshness_each_verdict_and_a_plot_of_broken_rows(dagster_dev, sales_run, page):
    page.goto(f"{dagster_dev.url}/assets/sales")
    for text in ("Row count", "Freshness policy", "Column name"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible(timeout=WAIT_MS)
    page.get_by_role("tab", name="Checks").first.click()
    for name in ("expiry", "foreign_writes", "ordering", "quarantine_rate", "unique_key"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible(timeout=WAIT_MS)
    page.get_by_text("ordering", exact=True).first.click()
    expect(page.get_by_text("Passed", exact=True).first).to_be_visible(timeout=WAIT_MS)
    expect(page.get_by_text("Plots", exact=True).first).to_be_visible(timeout=WAIT_MS)
    expect(page.locator("canvas").first).to_be_visible(timeout=WAIT_MS)
