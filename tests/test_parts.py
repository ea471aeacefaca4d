"""What is left out where a program is missing."""

import pytest
from frame.parts import BROWSER, COMPILER, KUBECTL, PROMTOOL, Part, left_out, need

HERE = Part("a thing", lambda: True, is_in_ci=True)
GONE = Part("a thing", lambda: False, is_in_ci=True)
RARE = Part("a thing", lambda: False)


@pytest.mark.parametrize(("part", "in_ci"), [(GONE, ""), (RARE, ""), (RARE, "true")])
def test_test_without_its_part_is_left_out(part, in_ci, shell):
    shell.export(CI=in_ci)
    with pytest.raises(pytest.skip.Exception, match="needs a thing"):
        need(part)


def test_test_without_its_part_fails_in_ci(shell):
    need(HERE)
    shell.export(CI="true")
    need(HERE)
    with pytest.raises(pytest.fail.Exception, match="a thing is missing in CI"):
        need(GONE)


def test_ci_brings_what_its_tests_may_not_lack():
    assert [part.is_in_ci for part in (BROWSER, COMPILER, PROMTOOL, KUBECTL)] == [True, True, True, False]


def test_one_line_names_what_was_left_out():
    reasons = [
        "('x.py', 3, 'Skipped: needs gcc')",
        "('y.py', 4, 'Skipped: needs a Chromium')",
        "('z', 1, 'Skipped: other')",
    ]
    assert left_out([*reasons, reasons[0]]).startswith("Left out 3 tests, for lack of: a Chromium (1), gcc (2).")
    assert left_out(reasons[2:]) is None
