"""Imports go downward only: what each room may import."""

import ast
import importlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import counters
import pytest
from click.testing import CliRunner
from frame.source import nodes_of

from ebbtide.cli import main

pytestmark = pytest.mark.group("rooms")
ROOT = Path(__file__).resolve().parent.parent
STDLIB = set(sys.stdlib_module_names) | {"__future__"}
COLUMNS = {"pydantic", "pyarrow", "numpy"}
SPARK = {"pyspark", "delta", "py4j"}

ROOMS = {
    "doors": set(),
    "redaction": set(),
    "amounts": set(),
    "errors": set(),
    "faults": set(),
    "environment": set(),
    "hosts": set(),
    "lines": set(),
    "markdown": set(),
    "storage": COLUMNS,
    "processes": set(),
    "java": set(),
    "users": set(),
    "executors": {"pyspark"},
    "user_code": {"pyspark"},
    "durations": {"pydantic"},
    "cron": {"pydantic"},
    "facts": {"pydantic"},
    "columns": {"pyarrow", "numpy"},
    "changelog": {"pyarrow", "numpy"},
    "keyed_state": {"pydantic", "numpy"},
    "materializer": set(),
    "entries": {"pyarrow", "numpy"},
    "model": COLUMNS,
    "ddl": {"pyarrow"},
    "sqltext": {"numpy", "pyarrow"},
    "stores": COLUMNS,
    "formats": COLUMNS | {"pydantic_core", "msgspec"},
    "sessions": {"numpy", "pyarrow"} | SPARK,
    "sources": COLUMNS | SPARK,
    "operators": COLUMNS,
    "delta": COLUMNS | {"deltalake", "pyroaring", "pydantic_core"},
    "ledger": COLUMNS | SPARK,
    "tables": COLUMNS | SPARK | {"pydantic_core", "pyroaring"},
    "spec": COLUMNS | {"pydantic_core", "yaml"},
    "definitions": set(),
    "expressions": COLUMNS | SPARK,
    "runtime": COLUMNS | SPARK,
    "fleet": set(),
    "inspect": COLUMNS | SPARK,
    "operations": COLUMNS | SPARK | {"pyroaring"},
    "checks": COLUMNS | SPARK,
    "views": COLUMNS | SPARK,
    "sql": COLUMNS | {"yaml"} | SPARK,
    "dagster": {"dagster", "pydantic"} | SPARK,
    "functions": set(),
    "testing": COLUMNS,
    "extend": set(),
    "spark": SPARK,
    "proposal": COLUMNS | {"yaml"},
    "replay": COLUMNS,
    "cli": {"yaml", "pyarrow", "pydantic"} | SPARK,
}
"""The rooms of `ebbtide`, from the lowest up, and the libraries that each may import. A room imports those above it in this list."""

ALONE = {
    "click": ("ebbtide/cli/", "ebbtide/sql/_shell/show.py"),
    "cli_helpers": "ebbtide/sql/_shell/show.py",
    "dagster_pipes": "ebbtide/inspect/_pipes.py",
    "openlineage": "ebbtide/inspect/_lineage",
    "opentelemetry": "ebbtide/inspect/_spans.py",
    "prometheus_client": ("ebbtide/inspect/_exposition.py", "ebbtide/cli/metrics_server.py"),
    "sqlglot": ("ebbtide/ddl/", "ebbtide/sqltext/", "ebbtide/spec/", "ebbtide/sql/", "ebbtide/checks/_queries.py"),
    "duckdb": "ebbtide/checks/_engines.py",
    "prompt_toolkit": "ebbtide/sql/_shell",
    "pygments": "ebbtide/sql/_shell",
    "starlette": "ebbtide/sql/_gateway/",
    "uvicorn": "ebbtide/sql/_gateway/",
    "h11": "ebbtide/sql/_gateway/server.py",
    "urllib3": "ebbtide/sql/_remote.py",
    "rocksdict": "ebbtide/stores/_rocksdb",
    "msgpack": "ebbtide/stores/_rocksdb/codec.py",
    "obstore": "ebbtide/storage/",
    "llvmlite": "ebbtide/columns/_compiled.py",
    "numba": "ebbtide/columns/_compiled.py",
    "pandas": ("ebbtide/expressions/_row_functions.py", "ebbtide/checks/great_expectations/"),
    "confluent_kafka": "ebbtide/sources/_kafka/",
    "great_expectations": "ebbtide/checks/great_expectations/",
    "jinja2": "ebbtide/checks/great_expectations/data_docs.py",
    "fastavro": ("ebbtide/formats/_avro", "ebbtide/sources/_kafka/registry.py"),
}
"""Libraries that one place has to itself."""

MOST_FLOORS = 15

MOST_NAMES_OF_DOOR = 25
"""Names that a room may offer to others."""
WIDER_DOORS = {
    "runtime": 28,  # a run, the steps of operations, the computation of views and the turns of a fleet each ask for other names
}
"""Rooms that may offer more."""
AT_MOST = {
    "names across rooms": 457,
    "names from behind doors": 0,
    "inner names in tests": 358,
    "patches in tests": 271,
    "files that an operation needs": 12,
    "longest chain of files": 15,
}
"""Counts of `tests/support/counters.py`, which only fall: who lowers one lowers it here."""

BESIDE = {
    "durations": set(),
    "cron": set(),
    "facts": set(),
    "columns": {"ebbtide.doors"},
    "changelog": {"ebbtide.doors", "ebbtide.columns"},
    "keyed_state": {"ebbtide.doors", "ebbtide.durations", "ebbtide.columns", "ebbtide.changelog"},
    "materializer": {"ebbtide.doors", "ebbtide.columns", "ebbtide.changelog", "ebbtide.keyed_state"},
    "entries": {"ebbtide.doors", "ebbtide.columns", "ebbtide.changelog", "ebbtide.keyed_state"},
    "model": {
        "ebbtide.doors",
        "ebbtide.errors",
        "ebbtide.facts",
        "ebbtide.columns",
        "ebbtide.changelog",
        "ebbtide.keyed_state",
        "ebbtide.entries",
    },
    "functions": {
        "ebbtide.columns",
        "ebbtide.changelog",
        "ebbtide.keyed_state",
        "ebbtide.materializer",
        "ebbtide.stores",
    },
    "testing": {
        "ebbtide.errors",
        "ebbtide.changelog",
        "ebbtide.entries",
        "ebbtide.model",
        "ebbtide.formats",
        "ebbtide.spec",
        "ebbtide.runtime",
    },
    "replay": {
        "ebbtide.doors",
        "ebbtide.errors",
        "ebbtide.durations",
        "ebbtide.columns",
        "ebbtide.changelog",
        "ebbtide.keyed_state",
        "ebbtide.materializer",
        "ebbtide.entries",
        "ebbtide.model",
        "ebbtide.operators",
        "ebbtide.stores",
    },
}
"""Rooms that may import less of the product than stands above them."""

GUEST_OF = {
    "views": {
        "errors",
        "redaction",
        "storage",
        "columns",
        "changelog",
        "model",
        "ddl",
        "sqltext",
        "formats",
        "sources",
        "delta",
        "tables",
        "executors",
        "sessions",
        "spec",
        "expressions",
        "runtime",
    },
    "sql": {
        "doors",
        "amounts",
        "environment",
        "errors",
        "hosts",
        "lines",
        "redaction",
        "storage",
        "processes",
        "columns",
        "model",
        "ddl",
        "sqltext",
        "delta",
        "ledger",
        "sessions",
        "spec",
        "definitions",
        "expressions",
        "runtime",
    },
}
"""Rooms that only the command line and Dagster import, and the rooms that they may import. The package's own names are allowed too."""

DEAR = {
    "pyspark",
    "py4j",
    "delta",
    "pandas",
    "llvmlite",
    "numba",
    "confluent_kafka",
    "obstore",
    "duckdb",
    "dagster",
    "great_expectations",
    "opentelemetry",
    "openlineage",
}
"""Libraries that cost much to load: what does not need them does not load them."""
LOADS = {
    "ebbtide": set(),
    "ebbtide.cli.main": set(),
    "ebbtide.cli.inspection": set(),
    "ebbtide.cli.operations": set(),
    "ebbtide.cli.running": set(),
    "ebbtide.extend": set(),
    "ebbtide.inspect._backlog": set(),
    "ebbtide.inspect._status": set(),
    "ebbtide.operations._pausing": set(),
    "ebbtide.operations._registry": set(),
    "ebbtide.runtime._idle": set(),
    "ebbtide.runtime._observers": set(),
    "ebbtide.dagster": {"dagster"},
}
"""Modules that much begins with, and which of these libraries each may load."""

PROJECT = {
    "pipelines": {"assets", "dagster", "ebbtide", "resources"},
    "assets": {"dagster", "ebbtide", "pyspark"},
    "resources": {"ebbtide"},
    "expectations": {"great_expectations", "pyspark"},
}
"""The folders of this project's own instance."""


HAVING_DOORS = [
    path.parent.name
    for path in sorted((ROOT / "ebbtide").glob("*/__init__.py"))
    if "names_of(__name__)" in path.read_text(encoding="utf-8")
]
"""The rooms whose `__init__` is a door."""


def modules(room):
    folder = ROOT / "ebbtide" / room
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


KINDS = (ast.Import, ast.ImportFrom, ast.ClassDef)


@cache
def nodes_of_kinds(path):
    """The nodes of these kinds in a file: each file is read by many tests."""
    return [node for node in nodes_of(path) if isinstance(node, KINDS)]


def nodes(path, kind):
    return [node for node in nodes_of_kinds(path) if isinstance(node, kind)]


def imports(path):
    """(top-level module, full module) of every import in a file; `from ebbtide import formats` imports `ebbtide.formats`."""
    for node in nodes(path, (ast.Import, ast.ImportFrom)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            rooms = [f"{node.module}.{a.name}" for a in node.names if node.module == "ebbtide" and a.name in ROOMS]
            names += rooms
            names += [node.module] if len(rooms) < len(node.names) else []
        yield from ((name.partition(".")[0], name) for name in names)


def room_of(module):
    """Return the room of a module of ours; None for the package itself, whose names are loaded when asked for."""
    _, _, inner = module.partition(".")
    return inner.partition(".")[0] or None


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_imported(path, known):
    """Yield the modules of ours that a file imports: inside functions and for types alone, too."""
    for node in nodes(path, (ast.Import, ast.ImportFrom)):
        if isinstance(node, ast.Import):
            yield from known & {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from known & inner or known & {node.module}


def circles(imported):
    """Return the modules that import themselves over others: what is left once those that import none that is left are taken away.

    Args:
        imported: Module to the modules that it imports.
    """
    left = {module: set(names) - {module} for module, names in imported.items()}
    while leaves := {module for module, names in left.items() if not names & left.keys()}:
        left = {module: names for module, names in left.items() if module not in leaves}
    users = {module: {user for user in left if module in left[user]} for module in left}
    while tops := {module for module, names in users.items() if not names & users.keys()}:
        users = {module: names for module, names in users.items() if module not in tops}
    return set(users)


def strangers(path, allowed):
    here = str(path.relative_to(ROOT))
    alone = {name for name, place in ALONE.items() if here.startswith(place)}
    return {name for top, name in imports(path) if top not in STDLIB | allowed | alone | {"ebbtide"}}


IMPORTS = f"""
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    print(name, *{DEAR!r} & set(sys.modules))
"""
"""Imports modules one after the other, and prints the dear libraries that are loaded behind each."""


LOADING_NONE = [name for name, dear in LOADS.items() if not dear]
LOADING_SOME = [[name] for name, dear in LOADS.items() if dear]


@pytest.mark.parametrize("modules", [LOADING_NONE, *LOADING_SOME], ids=len)
def test_modules_load_no_dear_library_but_their_own(modules):
    asked = [sys.executable, "-c", IMPORTS, *modules]
    printed = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    loaded = {name: set(dear) for name, *dear in map(str.split, printed.splitlines())}
    assert loaded == {name: LOADS[name] for name in modules}


SPEC = """
type: ebbtide.dagster.UpsertPipeline
attributes: {name: t, source: {path: in, records: value}, format: {type: plain}, schema: id BIGINT, key: [id], order: arrival}
"""
COMMANDS = f"""
import sys
from ebbtide.cli import main
try:
    main([*sys.argv[1:], "--root", "root"])
finally:
    print(*sorted({DEAR!r} & set(sys.modules)), file=sys.stderr)
"""


def test_run_that_finds_nothing_and_status_load_no_dear_library(tmp_path, shell):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"kind": "+I", "row": {"id": 1}}\n', encoding="utf-8")
    (tmp_path / "defs.yaml").write_text(SPEC, encoding="utf-8")

    def loaded(command):
        asked = [sys.executable, "-c", COMMANDS, command, "defs.yaml"]
        done = subprocess.run(asked, cwd=tmp_path, check=True, capture_output=True, text=True)
        said = re.search(r"nothing new|step 1 \(batch\)|$", done.stdout)
        return said[0], done.stderr.split()

    shell.cd(tmp_path)
    assert CliRunner().invoke(main, ["run", "defs.yaml", "--root", "root"]).exit_code == 0
    assert loaded("run") == ("nothing new", [])
    assert loaded("status") == ("step 1 (batch)", [])


def test_every_module_is_in_a_room():
    found = {path.stem for path in (ROOT / "ebbtide").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"__init__", "__pycache__", "py"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_no_library_but_its_own(room):
    found = {str(path.relative_to(ROOT)): strangers(path, ROOMS[room]) for path in modules(room)}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_downward_only(room):
    order = list(ROOMS)
    lower = set(order[: order.index(room) + 1])
    may = {name.partition(".")[2] for name in BESIDE[room]} | {room} if room in BESIDE else lower
    for path in modules(room):
        ours = {room_of(name) for top, name in imports(path) if top == "ebbtide"} - {None}
        assert ours <= may, path


def test_rooms_stand_on_few_floors():
    floors = counters.floors()
    assert floors.keys() == ROOMS.keys()
    assert max(floors.values()) <= MOST_FLOORS


@pytest.mark.parametrize("guest", GUEST_OF)
def test_guest_imports_public_names_and_few_others(guest):
    may = {f"ebbtide.{name}" for name in GUEST_OF[guest] | {guest}}
    for path in modules(guest):
        ours = {name for top, name in imports(path) if top == "ebbtide"} - {"ebbtide"}
        assert {name for name in ours if not any(f"{name}.".startswith(f"{own}.") for own in may)} == set(), path


@pytest.mark.parametrize("guest", GUEST_OF)
def test_guest_is_imported_by_the_command_line_and_dagster_alone(guest):
    hosts = {"cli", "dagster", guest}
    for room in ROOMS.keys() - hosts:
        for path in modules(room):
            assert guest not in {room_of(name) for top, name in imports(path) if top == "ebbtide"}, path


@pytest.mark.parametrize(
    ("imported", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, set()),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}, "d": set()}, {"a", "b"}),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"c", "e"}, "e": set()}, {"a", "b", "c"}),
    ],
)
def test_circles_are_found(imported, found):
    assert circles(imported) == found


def test_imports_inside_functions_and_for_types_count(tmp_path):
    path = tmp_path / "some.py"
    path.write_text("if TYPE_CHECKING:\n    from e.a import A\ndef f():\n    import e.b\n    from e import c, other\n")
    assert set(modules_imported(path, {"e", "e.a", "e.b", "e.c", "e.d"})) == {"e.a", "e.b", "e.c"}


@pytest.mark.parametrize("room", HAVING_DOORS)
def test_door_is_narrow(room):
    assert len(counters.names_of_door(room)) <= WIDER_DOORS.get(room, MOST_NAMES_OF_DOOR)


@pytest.mark.parametrize("what", AT_MOST)
def test_count_of_the_house_does_not_rise(what):
    assert counters.COUNTS[what]() <= AT_MOST[what], "python tests/support/counters.py"


def test_door_offers_what_it_has_and_nothing_else():
    for room in HAVING_DOORS:
        door = importlib.import_module(f"ebbtide.{room}")
        assert set(door.__all__) == counters.names_of_door(room)
        with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
            _ = door.no_such_name


@pytest.mark.parametrize("room", ROOMS)
def test_room_has_no_circle(room):
    paths = {module_name(path): path for path in modules(room)}
    assert circles({name: modules_imported(path, set(paths)) for name, path in paths.items()}) == set()


@pytest.mark.parametrize(
    "room",
    [
        "columns",
        "changelog",
        "keyed_state",
        "materializer",
        "entries",
        "model",
        "stores",
        "formats",
        "operators",
        "delta",
        "ledger",
        "tables",
        "spec",
    ],
)
def test_room_imports_nothing_of_the_package_itself(room):
    """The package's names are those of the upper rooms."""
    for path in modules(room):
        assert "ebbtide" not in {name for _, name in imports(path)}, path


@pytest.mark.parametrize("folder", PROJECT)
def test_folder_of_the_project_imports_what_it_may(folder):
    found = {path: strangers(path, PROJECT[folder] | {folder}) for path in sorted((ROOT / folder).rglob("*.py"))}
    assert {path: names for path, names in found.items() if names} == {}
    assert found


def test_environment_is_read_by_what_belongs_to_the_machine_only():
    def reads(path):
        text = path.read_text(encoding="utf-8")
        return "os.environ" in text or "getenv" in text

    assert {str(path.relative_to(ROOT / "ebbtide")) for path in (ROOT / "ebbtide").rglob("*.py") if reads(path)} <= {
        "__init__.py",  # that of Arrow's allocator, which reads it when it is loaded
        "columns/_compiled.py",  # numba's own, and the user's folder of caches
        "sessions/_session.py",  # PySpark's own
        "sql/_jobs.py",  # where its runs import from
        "sessions/_settings.py",
        "sessions/_class_archive.py",
        "sessions/_jars.py",
        "java.py",
        "sessions/_versions.py",
        "sql/_gateway/serving.py",
        "sql/_opening.py",
        "sql/_shell/prompt.py",
        "sql/_shell/show.py",
        "storage/_bucket.py",
        "environment.py",
    }
