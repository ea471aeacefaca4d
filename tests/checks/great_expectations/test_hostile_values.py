"""Values of records in Data Docs and in Dagster's Markdown, looked at in a real browser: none is executed, none becomes a link or an element."""

from html.parser import HTMLParser

import mistune
import pandas as pd
import pytest
from frame.browser import QUIET, WAIT_MS, browser_path
from frame.parts import BROWSER, need

from ebbtide.checks import Finding, Wording
from ebbtide.checks._judged import Batch
from ebbtide.markdown import code, prose

RUN = "document.documentElement.dataset.executed=1"
HTML = [
    f"<script>{RUN}</script>", f'<img src=x onerror="{RUN}">', f"<svg onload={RUN}>", f"<svg><script>{RUN}</script></svg>",
    f"<body onload={RUN}>", f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>', f'<iframe src="javascript:parent.{RUN}"></iframe>',
    f"<details open ontoggle={RUN}>", f"<video><source onerror={RUN}></video>", f"<input autofocus onfocus={RUN}>", f"<math><mi xlink:href='javascript:{RUN}'>x",
    f"</td></tr></table><script>{RUN}</script>", f"</script><script>{RUN}</script>", f'"><img src=x onerror={RUN}>', f"'><img src=x onerror={RUN}>",
    f"--><script>{RUN}</script>", f"]]><script>{RUN}</script>", f"</style><script>{RUN}</script>", f"</textarea><script>{RUN}</script>",
    f"<a href='javascript:{RUN}'>click</a>", "<a href='https://example.com'>link</a>", "<form action='https://example.com'><button>x</button></form>",
    "<meta http-equiv=refresh content='0;url=https://example.com'>", "<base href='https://example.com'>", "<link rel=stylesheet href='https://example.com/a.css'>",
    "<style>*{display:none}</style>", "<plaintext>", "<!--", "<b>bold</b>", "&lt;b&gt;", "&#60;script&#62;", "<scr\0ipt>", "<ScRiPt>1</sCrIpT>", "<object data=x>", "<embed src=x>",
]  # fmt: skip
TEMPLATES = [
    "{{7*7}}",
    "{% raw %}",
    "${x}",
    "$column",
    "$$PARAMETER",
    "$styling",
    "{{ self }}",
    "#{7*7}",
    "{content_block_type}",
]
MARKDOWN = [
    "[l](https://example.com)", f"[l](javascript:{RUN})", "![i](https://example.com/i.png)", "<https://example.com>", "https://example.com", "http://example.com/x",
    "www.example.com", "me@example.com", "[l]: https://example.com", "`code`", "``", "`", "a|b", "| a |\n|---|\n| b |", "# heading", "- item", "> quote", "***", "~~s~~",
    "*e*", "__s__", "```\nx\n```", "\\", "\\`", "a\nb", "$$x$$", "<br>",
]  # fmt: skip
VALUES = [*HTML, *TEMPLATES, *MARKDOWN]
BLOCKS = [
    {"content_block_type": "markdown", "markdown": f"<script>{RUN}</script>"},
    {"content_block_type": "string_template", "string_template": {"template": f"<script>{RUN}</script>"}},
    {"content_block_type": "text", "text": [f"<script>{RUN}</script>"]},
    {"a": f"<script>{RUN}</script>", "b": [f"<img src=x onerror={RUN}>"]},
]
"""Values of a struct that look like the parts of a page, and one that does not."""


class Elements(HTMLParser):
    """Counts the elements of a page, each with the names of its attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, *(name for name, _ in attrs)))


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    need(BROWSER)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser_path(), args=QUIET.split())
        yield started
        started.close()


@pytest.fixture
def opened(browser):
    """Opens a page without a network; gives it once it is loaded."""
    shown = browser.new_page()
    shown.set_default_timeout(WAIT_MS)
    asked = []
    shown.route(
        "**/*",
        lambda route: (
            route.continue_()
            if route.request.url.startswith("file:")
            else (asked.append(route.request.url), route.abort())
        ),
    )

    def open_(path):
        asked.clear()
        shown.goto(path.as_uri(), wait_until="load")
        assert shown.evaluate("document.documentElement.dataset.executed") is None
        return shown

    open_.asked = asked
    yield open_
    shown.close()


def site(folder, values):
    """Write Data Docs of values that break an expectation, twenty to a batch; return the pages of results."""
    import great_expectations as gx

    from ebbtide.checks.great_expectations.validate import validate

    batches = []
    for start in range(0, len(values), 20):
        rows = pd.DataFrame({"v": values[start : start + 20]}, dtype=object)
        in_set = gx.expectations.ExpectColumnValuesToBeInSet(column="v", value_set=["other"])
        batches.append(Batch(rows, [in_set]))
    validate("hostile", batches, folder, keep=1)
    return sorted(folder.rglob("validations/**/*.html"))


def elements(page_):
    return Elements(page_.read_text(encoding="utf-8")).found


def test_there_are_sixty_values():
    assert len(set(VALUES)) >= 60


def test_value_of_a_record_is_a_text_in_data_docs(tmp_path, opened):
    filled = [*VALUES, *VALUES[: -len(VALUES) % 20]]
    hostile = site(tmp_path / "hostile", filled)
    [harmless] = site(tmp_path / "harmless", [f"value {number}" for number in range(20)])
    opened(harmless)
    fetched = sorted(url.partition("?")[0] for url in opened.asked)
    assert len(hostile) == len(filled) // 20
    for bad in hostile:
        assert sorted(elements(bad)) == sorted(elements(harmless))
        opened(bad)
        assert sorted(url.partition("?")[0] for url in opened.asked) == fetched, "nothing is fetched for a value"
    shown = opened(hostile[0])
    text = shown.inner_text("body")
    assert f"<script>{RUN}</script>" in text
    assert "&lt;" not in text.replace("&lt;b&gt;", "")


def test_object_that_looks_like_a_part_of_a_page_is_a_text(tmp_path, opened):
    for bad in site(tmp_path / "hostile", BLOCKS):
        assert f"<script>{RUN}" not in bad.read_text(encoding="utf-8")
        opened(bad)


def finding(value):
    decided = {"id": value, "v": value}
    row = {
        "id": value,
        "_decided": pd.Series(decided).to_json(),
        "_shown": pd.Series({"id": value, "v": "z"}).to_json(),
    }
    return Finding("expect_sink_to_be_complete", None, "critical", 1, [row])


RENDERED = mistune.create_markdown(escape=False, plugins=["table", "url", "strikethrough"])
FORMS = {"code", "li", "ul", "p", "table", "thead", "tbody", "tr", "th", "td"}
"""Elements of the pages themselves."""


def test_value_of_a_record_is_a_text_in_markdown(tmp_path, opened):
    texts = [RENDERED(Wording([finding(value)]).page()) for value in VALUES]
    texts += [RENDERED(f"- {prose(value)}") for value in VALUES]
    texts += [RENDERED(f"- {code(value)}\n\n|a|b|\n|---|---|\n|{code(value, in_table=True)}|x|") for value in VALUES]
    for text in texts:
        assert {tag for tag, *_ in Elements(text).found} <= FORMS, text
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><meta charset=utf-8>{''.join(texts)}", encoding="utf-8")
    shown = opened(file)
    assert shown.locator("a").count() == 0
    assert opened.asked == []
