"""The table of faults: each is found somewhere, is written in its words, and its way out names commands that exist."""

import re
from pathlib import Path

import pytest
from click import Context

from ebbtide.cli import main
from ebbtide.errors import TableMismatchError
from ebbtide.faults import FAULTS, Fault

COMMANDS = main.list_commands(Context(main))
PRODUCT = Path(__file__).parent.parent / "ebbtide"


class Values(dict):
    """A value for each name in the words."""

    def __missing__(self, name):
        return f"<{name}>"


@pytest.mark.parametrize(("part", "name"), FAULTS)
def test_fault_says_what_is_wrong_and_names_commands_that_exist(part, name):
    said = str(FAULTS[part, name].filled(Values()))
    assert "{" not in said
    for command in re.findall(r"'ebbtide (\w+)", said):
        assert command in COMMANDS, said


def test_every_fault_is_looked_for():
    source = "".join(path.read_text() for path in PRODUCT.rglob("*.py") if path.name != "faults.py")
    assert {name for _, name in FAULTS if f'"{name}"' not in source} == set()


def test_first_fault_is_raised_and_none_is_looked_for_after_it():
    def found():
        yield Fault.of("changelog", "gone", location="/t/changelog")
        raise AssertionError("looked on")

    with pytest.raises(TableMismatchError, match=r"^The table at '/t/changelog' is gone\."):
        Fault.refuse(found())
    Fault.refuse([])
