"""No wait of the product is without a bound, but for those in which something is said or done that may take as long as it likes."""

import ast
from pathlib import Path

import pytest
from frame.source import nodes_of

pytestmark = pytest.mark.group("rooms")
ROOT = Path(__file__).resolve().parents[1]
WAITS = {"wait", "join", "acquire", "awaitTermination", "communicate"}
"""Methods that wait without a bound where they are given nothing."""
ALLOWED = {
    ("fleet/_slots.py", "self._changed.wait"): "threads of a fleet wait for work, and end with the process",
    ("sessions/_stream.py", "ended.wait"): "the run itself, which reports its steps",
    ("sql/_jobs.py", "runs[0].wait"): "the run of a job, which SIGTERM ends",
    ("cli/live.py", "self._clock.join"): "the thread of the live line ends within a refresh",
    ("sql/_gateway/app.py", "operation.turn.acquire"): "within asyncio.wait_for",
    ("storage/_bucket.py", "step.wait"): "puts to a store, each with a bound of its own",
    ("storage/_together.py", "self.wait"): "the same",
}


def unbounded(path):
    """Yield the calls of a module that wait without a bound, as text."""
    for node in nodes_of(path):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else None
        has_bound = any(keyword.arg == "timeout" for keyword in node.keywords)
        if called in WAITS and not (node.args or node.keywords):
            yield ast.unparse(node.func)
        elif called == "run" and not has_bound and ast.unparse(node.func) == "subprocess.run":
            yield "subprocess.run"


def test_waits_without_a_bound_are_those_that_are_named():
    found = set()
    for folder in ("ebbtide", "pipelines", "assets", "resources", "data"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix().removeprefix("ebbtide/")
            found |= {(name, call) for call in unbounded(path)}
    assert found == set(ALLOWED)


@pytest.mark.parametrize("code", ["done.wait()", "subprocess.run(['java'])", "thread.join()"])
def test_wait_without_a_bound_is_found(code, tmp_path):
    waiting, bounded = tmp_path / "waiting.py", tmp_path / "bounded.py"
    waiting.write_text(code)
    assert list(unbounded(waiting))
    bounded.write_text("done.wait(3); subprocess.run(['java'], timeout=3); ','.join(names)")
    assert list(unbounded(bounded)) == []
