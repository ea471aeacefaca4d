"""The page on pipelines: what it shows, that no value becomes an element, and that a real browser lays it out without a script."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from crashes.damages import FOREIGN
from frame.browser import QUIET, WAIT_MS, browser_path
from frame.parts import BROWSER, need
from local.local_pipeline import LATER, up
from local.metrics_support import command

from ebbtide.inspect import page
from ebbtide.ledger import LastVerdict
from ebbtide.runtime import system_clock

RUN = "document.documentElement.dataset.executed=1"
HOSTILE = [
    f"<script>{RUN}</script>",
    f'"><img src=x onerror="{RUN}">',
    "</td></table><h1>theirs</h1>",
    "&lt;b&gt;",
    "\x1b[2J",
]


class Elements(HTMLParser):
    """The elements of a page, its text, and its sources."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.loads = [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href") or name.startswith("on")]

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def pipeline(make):
    """A pipeline with four steps, of which two have bad records."""
    made = make(freshness={"fail_window": "100000d"})
    for number in (1, 2, 3):
        made.read(up(number, number), *(["{"] if number > 1 else []))
    LastVerdict(check="expiry", outcome="failed", broken=7, at_ms=LATER).note(made.plan.root, {"expiry"})
    return made


def shown(pipeline, due=()):
    return Elements(page([pipeline.spec], pipeline.root, lambda _: due))


def test_page_shows_lag_rows_steps_runs_checks_bad_records_and_maintenance(pipeline):
    pipeline.put(up(4, 4))
    found = shown(pipeline, ["ebbtide vacuum: 3 files"])
    for text in (
        "waiting: 1 file",
        "3 rows",
        "records read by step: at most 2",
        "bad records by step: at most 1",
        "entries expired by step",
        "seconds by run",
        "succeeded",
        "ebbtide check --only expiry",
        "allowed: one JSON object",
        "ebbtide vacuum: 3 files",
        "runs of the last day",
    ):
        assert text in found.text, text
    assert found.tags.count("svg") == 4


def test_page_loads_and_runs_nothing(pipeline):
    found = shown(pipeline)
    assert (found.loads, {"script", "img", "link", "iframe"} & set(found.tags)) == ([], set())


def test_values_stay_text(pipeline):
    pipeline.put(*HOSTILE)
    pipeline.run()
    hostile = shown(pipeline, HOSTILE)
    assert "<script>" in hostile.text
    assert (hostile.loads, hostile.tags.count("h1")) == ([], 1)
    assert "\x1b" not in hostile.text


def test_personal_values_are_masked(make):
    pipeline = make(columns={"n": {"personal": True}})
    pipeline.read(up(1, 1), '{"n": "ann@example.com"')
    assert "ann@example.com" not in shown(pipeline).text


def test_pipeline_whose_log_is_torn_has_its_place_on_the_page(pipeline):
    newest = max(Path(pipeline.plan.at("state"), "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:20])
    found = shown(pipeline)
    assert "the next run is refused" in found.text
    assert "succeeded" in found.text, "the runs are known"


def test_command_writes_the_page_with_the_maintenance_that_is_due(pipeline, tmp_path):
    to = tmp_path / "pages" / "report.html"
    done = command(pipeline, tmp_path, "report", "--html", str(to))
    assert done.exit_code == 0, done.output
    assert "Maintenance due" in to.read_text()
    assert done.stderr.endswith("report.html\n")


@pytest.mark.parametrize("personal", [False, True])
def test_rows_that_a_red_check_finds_are_shown_with_personal_values_masked(make, tmp_path, personal):
    pipeline = make(schema="id BIGINT NOT NULL, n INT, v STRING", columns={"v": {"personal": personal}})
    pipeline.read(up(1, 1, v="ann@example.com"))
    pipeline.read(up(2, 2, v="<b>bob</b>"))
    FOREIGN["delete"](pipeline)
    assert command(pipeline, tmp_path, "check", "--only", "complete").exit_code == 1
    to = tmp_path / "report.html"
    assert command(pipeline, tmp_path, "report", "--html", str(to)).exit_code == 0
    found = Elements(to.read_text())
    assert "Some rows that 'complete' finds" in found.text
    assert "id: 2" in found.text
    assert ("<b>bob</b>" in found.text) is not personal
    assert "b" not in found.tags


def test_cost_of_the_last_day_is_that_of_the_runs_and_commits_within_it(pipeline):
    now_ms = system_clock()
    numbers = {}
    for day in (0, 2):
        html = page([pipeline.spec], pipeline.root, lambda _: (), now_ms + day * 86_400_000)
        [numbers[day]] = re.findall(r"<td>cost of the last day</td><td>([^<]*)</td>", html)
    assert re.fullmatch(r".* of CPU time; [\d,]+ bytes written", numbers[0])
    assert not numbers[0].endswith("; 0 bytes written")
    assert numbers[2].endswith("; 0 bytes written")


def test_browser_lays_the_page_out_and_prints_it(pipeline, tmp_path):
    need(BROWSER)
    pipeline.put(*HOSTILE)
    pipeline.run()
    html = tmp_path / "page.html"
    html.write_text(page([pipeline.spec], pipeline.root, lambda _: HOSTILE))
    quiet = [browser_path(), *QUIET.split(), f"--user-data-dir={tmp_path / 'browser'}"]

    def asked(*options):
        return subprocess.run(
            [*quiet, *options, html.as_uri()], check=True, capture_output=True, timeout=WAIT_MS / 1000
        )

    dom = asked("--dump-dom").stdout.decode()
    assert "data-executed" not in dom
    assert Elements(dom).tags.count("polyline") == 4
    asked(f"--print-to-pdf={tmp_path / 'page.pdf'}")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
