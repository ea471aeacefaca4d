"""How much of the house one has to know to change a thing: `python tests/support/counters.py` prints the counts, `test_rooms.py` keeps them.

A room's door is its `__init__`. A name is taken through it (`from ebbtide.delta import Snapshot`) or from behind it
(`from ebbtide.delta._log import LOG`). An attribute of a module that was imported whole counts as a name of that module.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

from frame.circumstances import CIRCUMSTANCES
from frame.interrupting import PLACES
from frame.limits import LIMITS
from frame.source import nodes_of

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCT = "ebbtide"


class Name(NamedTuple):
    """A name of the product: the module that is imported from, and the name in it; empty: the module was imported as a whole."""

    module: str
    name: str

    @property
    def room(self) -> str:
        """The first folder or module below the product."""
        _, _, rest = self.module.partition(".")
        return rest.partition(".")[0]

    @property
    def is_inner(self) -> bool:
        """Whether the name lies behind a room's door."""
        return self.module.count(".") > 1


@cache
def _files() -> dict[str, Path]:
    """Every module of the product."""
    found = {}
    for path in sorted((ROOT / PRODUCT).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


class Taken(NamedTuple):
    """What a file of ours takes: names of the product, its own room's among them; and how often it changes the inside of what it tests."""

    names: frozenset[Name]
    n_patches: int


PATCHES = {"setattr", "delattr", "setitem", "delitem", "setenv", "delenv", "syspath_prepend", "chdir"}
"""Methods of `pytest.MonkeyPatch`, by whatever name a test has it."""
FOLDERS = {"contextlib", "shell"}
"""What changes the working directory otherwise than a patch does."""


@cache
def _read(path: Path) -> Taken:
    """Read a file, once."""
    is_of_product = path.is_relative_to(ROOT / PRODUCT)  # many others read it, too
    nodes = nodes_of(path) if is_of_product else list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    modules = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    imports = [node for node in modules if f"{node.module}.".startswith(f"{PRODUCT}.")]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    names = set()
    whole = {}  # what a file calls a module -> the module
    for node in imports:
        for alias in node.names:
            module = f"{node.module}.{alias.name}"
            if module in _files():
                whole[alias.asname or alias.name] = module
            else:
                names.add(Name(node.module, alias.name))
    for attribute in attributes:
        if isinstance(attribute.value, ast.Name) and attribute.value.id in whole:
            names.add(Name(whole[attribute.value.id], attribute.attr))
    names |= {Name(whole[alias], "") for alias in whole.keys() - used}
    ours = {alias.asname or alias.name for node in imports for alias in node.names}
    return Taken(frozenset(names), sum(_n_patches(node, ours) for node in nodes))


def _n_patches(node: ast.AST, ours: set[str]) -> int:
    """Count the changes that one node makes to what is tested: by a patch, by `mock`, or by hand.

    A variable of the environment and the working directory, which a user gives a process too, are given through the fixture
    `shell`; they are no patches then.

    Args:
        node: Of a test's file.
        ours: Names that the file imports from the product.
    """
    if isinstance(node, ast.Call):
        passed = [*node.args, *(keyword.value for keyword in node.keywords)]
        n_passed = sum(isinstance(value, ast.Name) and value.id in {"monkeypatch", "patch"} for value in passed)
        return n_passed + _is_patch(node.func)
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node.value, ast.Name) and node.value.id in ours:
            ours |= {target.id for target in targets if isinstance(target, ast.Name)}
        return sum(_is_inside(part, ours) for target in targets for part in ast.walk(target))
    return 0


def _is_patch(called: ast.expr) -> bool:
    """Return whether a call changes an attribute, an item or a variable of something else."""
    if isinstance(called, ast.Name):
        return called.id in {"setattr", "delattr", "swap_inside"}
    if not isinstance(called, ast.Attribute):
        return False
    holder = _dotted(called.value)
    return (called.attr in PATCHES and holder not in FOLDERS) or "mock.patch" in f"{holder}.{called.attr}"


def _dotted(expression: ast.expr) -> str:
    """Return the names that an expression begins with, without what is passed to calls in between: to write it out takes long."""
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        return f"{_dotted(expression.value)}.{expression.attr}"
    return _dotted(expression.func) if isinstance(expression, ast.Call) else ""


def _is_inside(target: ast.AST, ours: set[str]) -> bool:
    """Return whether what is assigned to is an attribute of a module or class of the product, or a variable of the environment."""
    if isinstance(target, ast.Attribute):
        return isinstance(target.value, ast.Name) and target.value.id in ours
    return isinstance(target, ast.Subscript) and ast.unparse(target.value) == "os.environ"


def taken_by(path: Path) -> frozenset[Name]:
    """Return the names of the product that a file takes, its own room's among them."""
    return _read(path).names


def room_of(module: str) -> str:
    """Return the room of a module."""
    return Name(module, "").room


def across_rooms() -> dict[Name, set[str]]:
    """Return the names that rooms take from other rooms, and who takes each."""
    users = defaultdict(set)
    for module, path in _files().items():
        for name in taken_by(path):
            if name.room not in {room_of(module), ""}:
                users[name].add(module)
    return users


def behind_doors() -> dict[Name, set[str]]:
    """Return the names that rooms take from behind the doors of other rooms."""
    return {name: users for name, users in across_rooms().items() if name.is_inner}


def names_of_door(room: str) -> set[str]:
    """Return the names that a room's door offers."""
    return {name.name for name in taken_by(_files()[f"{PRODUCT}.{room}"]) if name.room == room}


def rooms() -> dict[str, Path]:
    """Return the rooms, each with its door: the `__init__` of a folder, or a module that is a room by itself."""
    return {room_of(module): path for module, path in _files().items() if module.count(".") == 1}


def floors() -> dict[str, int]:
    """Return the floor of each room: 1 if it takes nothing from another one, else one more than the highest that it takes from."""
    below: dict[str, set[str]] = defaultdict(set)
    for module, path in _files().items():
        below[room_of(module)] |= {name.room for name in taken_by(path)} - {room_of(module), ""}

    @cache
    def floor(room: str) -> int:
        return 1 + max(map(floor, below[room] & rooms().keys()), default=0)

    return {room: floor(room) for room in rooms()}


def test_files() -> Iterator[Path]:
    """Yield the files of the tests."""
    yield from sorted((ROOT / "tests").rglob("*.py"))


def inner_names_of_tests() -> set[Name]:
    """Return the names that tests take from behind doors."""
    return {name for path in test_files() for name in taken_by(path) if name.is_inner}


def patches_of_tests() -> int:
    """Return how often tests change the inside of the product or of the process: by `monkeypatch`, by hand, limits and places included."""
    return len(CIRCUMSTANCES) + len(LIMITS) + len(PLACES) + sum(_read(path).n_patches for path in test_files())


@cache
def _imported(module: str) -> frozenset[str]:
    """Return the modules that a module imports. A name taken through a door leads to the door, and to no file behind it."""
    names = taken_by(_files()[module])
    if module.count(".") == 1 and any(name.room == room_of(module) for name in names):
        return frozenset()  # a door: what lies behind it is not read by those who come to it
    return frozenset(name.module for name in names if name.module in _files() and name.module != module)


def needed_by(module: str) -> set[str]:
    """Return the other files that one reads to know all that a module stands on, doors for the rooms behind them."""
    needed: set[str] = set()
    waiting = [module]
    while waiting:
        new = _imported(waiting.pop()) - needed - {module}
        needed |= new
        waiting.extend(new)
    return needed


def needed_by_operation() -> int:
    """Return the median of the files that a file of `operations` needs."""
    return median_low(len(needed_by(module)) for module in _files() if module.startswith(f"{PRODUCT}.operations."))


def longest_chain() -> int:
    """Return the length of the longest chain of files that import each other in turn; doors end it."""

    @cache
    def length(module: str) -> int:
        return 1 + max(map(length, _imported(module)), default=0)

    return max(map(length, _files()))


COUNTS = {
    "names across rooms": lambda: len(across_rooms()),
    "names from behind doors": lambda: len(behind_doors()),
    "inner names in tests": lambda: len(inner_names_of_tests()),
    "patches in tests": patches_of_tests,
    "files that an operation needs": needed_by_operation,
    "longest chain of files": longest_chain,
}
"""What is counted."""


def main() -> None:
    """Print the counts, and the names behind doors by room."""
    for what, count in COUNTS.items():
        print(f"{what:32}{count():7,}")
    print(f"\n{'room':14}{'door':>6}{'behind it':>11}")
    rooms = sorted({room_of(module) for module in _files()} - {""})
    behind = behind_doors()
    for room in rooms:
        if f"{PRODUCT}.{room}" in _files() and _files()[f"{PRODUCT}.{room}"].name == "__init__.py":
            n_behind = sum(name.room == room for name in behind)
            print(f"{room:14}{len(names_of_door(room)):6}{n_behind:11}")


if __name__ == "__main__":
    main()
