"""Programs and rights that some tests need beside Python and Java.

Where one is missing these tests are left out, and the last line of the run names what was missing. In CI they fail: `.ci/packages` has
brought the programs there.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest
from crashes.calls import has_compiler
from crashes.mounting import can_mount
from frame.browser import browser_path

REASON = "needs {}"


@dataclass(frozen=True)
class Part:
    """A part.

    Args:
        name: For people.
        is_there: Returns whether this machine has it.
        is_in_ci: CI has it in any case.
    """

    name: str
    is_there: Callable[[], bool]
    is_in_ci: bool = False


BROWSER = Part("a Chromium", lambda: browser_path() is not None, is_in_ci=True)
COMPILER = Part("gcc", has_compiler, is_in_ci=True)
PROMTOOL = Part("promtool", lambda: shutil.which("promtool") is not None, is_in_ci=True)
KUBECTL = Part("kubectl", lambda: shutil.which("kubectl") is not None)
SYSTEMD = Part("systemd-analyze", lambda: shutil.which("systemd-analyze") is not None)
MOUNTS = Part("the right to mount", can_mount)


def need(part: Part) -> None:
    """Leave the test under way out if a part is missing; in CI it fails where it should be there."""
    if part.is_there():
        return
    if part.is_in_ci and os.environ.get("CI"):
        pytest.fail(f"{part.name} is missing in CI; .ci/packages brings it")
    pytest.skip(REASON.format(part.name))


def needs(part: Part) -> pytest.MarkDecorator:
    """Return the mark of a test that needs a part; the fixture `_parts` looks whether it is there."""
    return pytest.mark.needs(part)


def left_out(reasons: Iterable[str]) -> str | None:
    """Return the line about the tests that were left out, by the reasons of what was skipped; None if none was."""
    pattern = re.compile(REASON.format(r"([^'\"\n]+)"))
    counts = Counter(found[1] for found in map(pattern.search, reasons) if found)
    if not counts:
        return None
    named = ", ".join(f"{name} ({n})" for name, n in sorted(counts.items()))
    return f"Left out {counts.total()} tests, for lack of: {named}. On Debian and Ubuntu, .ci/packages brings programs."
