"""The browser that tests and pictures use."""

import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
QUIET += "--disable-component-update --disable-sync"
WAIT_MS = 60_000


def browser_path() -> str | None:
    """Return the browser on PATH; None if there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)
