"""Takes the pictures of docs/screenshots from a Dagster that is running, as `make ui` starts it after `make demo`.

```
python tests/support/screenshots.py http://127.0.0.1:3000 docs/screenshots
```
"""

import sys
from pathlib import Path

from frame.browser import QUIET, WAIT_MS, browser_path
from playwright.sync_api import Page, expect, sync_playwright

PAGES = {
    "graph": ("/locations/ebbtide/asset-groups/shop", "orders_state"),
    "overview": ("/assets/orders", "Column name"),
    "checks": ("/assets/orders?view=checks&checkDetail=ordering", "ordering"),
    "red": ("/assets/customers?view=checks&checkDetail=complete", "complete"),
    "report": ("/assets/orders?view=events", "inserted"),
    "timeline": ("/overview/activity/timeline", "shop"),
    "operation": ("/locations/ebbtide/jobs/ebbtide_repair/playground", "Launch Run"),
    "jobs": ("/locations/ebbtide/jobs", "ebbtide_cleanup"),
}
"""Picture to its page, and a text that the page has once it is drawn."""


def main() -> int:
    """Open each page in a browser; write the pictures."""
    url, folder = sys.argv[1:3]
    wanted = sys.argv[3:] or list(PAGES)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=QUIET.split())
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(WAIT_MS)
        for name in wanted:
            take(page, url, name, Path(folder) / f"{name}.png")
        browser.close()
    return 0


def take(page: Page, url: str, name: str, picture: Path) -> None:
    """Take one picture once its page is drawn."""
    path, text = PAGES[name]
    page.goto(f"{url}{path}")
    expect(page.get_by_text(text, exact=True).first).to_be_visible(timeout=WAIT_MS)
    page.wait_for_timeout(3_000)  # the graph moves into its place
    page.screenshot(path=str(picture))


if __name__ == "__main__":
    sys.exit(main())
