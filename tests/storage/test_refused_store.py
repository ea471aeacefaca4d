"""A bucket that refuses to be read, listed or written is seen before a run, by every tool, and is well again with the right.

The rows of `tests/inspect/test_faults_seen.py`, for a root in an object store.
"""

import pytest
from crashes.operated import MORE, ROWS, Operated, Seen
from frame.exit_codes import REFUSED
from frame.parts import PROMTOOL, needs
from local.local_pipeline import up

from ebbtide.storage import Location

MISFIT, READABLE = ("ebbtide_misfit",), ("ebbtide_readable", "tables")
REFUSES = {
    "reading": (lambda method, path: method in {"GET", "HEAD"} and "list-type" not in path, False),
    "listing": (lambda method, path: "list-type" in path, False),
    "writing": (lambda method, path: method in {"PUT", "POST"}, True),
}
"""A right to what its requests are, and whether tables can be read without it."""


@pytest.fixture
def pipeline(tmp_path, root):
    made = Operated(tmp_path)
    made.root = root.replace("s3:", "s3a:")  # that the store takes files is remembered by the folder's name
    made.put(up(1, 1))
    assert made.order("run").exit_code == 0
    made.root = root
    return made


@needs(PROMTOOL)
@pytest.mark.parametrize("right", REFUSES)
def test_right_that_a_bucket_refuses_is_seen_by_every_tool_before_a_run(pipeline, proxy, right):
    refuses, is_readable = REFUSES[right]
    for number in (2, 3):
        pipeline.put(up(number, 1))
    pipeline.put(MORE)
    with proxy.failing(lambda method, path: "403" if refuses(method, path) else None):
        seen = Seen.of(pipeline, {})
        checked = pipeline.order("check", "--only=next_run")
        ended = pipeline.order("run")
    assert (ended.exit_code, checked.exit_code) == (REFUSED, 1 if is_readable else REFUSED), checked.output
    assert "StoreRefusedError" in ended.output
    assert seen.level == "refused"
    assert "docs/how-to/object-stores.md" in seen.text
    assert (seen.samples[MISFIT], seen.samples[READABLE]) == (1, int(is_readable))
    assert "EbbtideRefused" in seen.alerts
    assert seen.launched == ["t"]
    assert seen.said.startswith("t: the next run is refused: ")
    assert pipeline.order("run").exit_code == 0
    assert pipeline.order("status").exit_code == 0
    assert pipeline.rows() == ROWS


def test_store_is_asked_for_the_right_to_write_once_in_a_while(pipeline, proxy, root):
    asked = len(proxy.asked)
    assert Location(f"{root}/t").may_write
    assert Location(f"{root}/t").may_write
    puts = [path for method, path in proxy.asked[asked:] if method == "PUT"]
    assert len(puts) <= 1
