"""The site is built strictly, and its generated pages say what the code says; `python tests/test_docs.py` writes these pages."""

import ast
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ebbtide import (
    MaterializedView,
    StatefulPipeline,
    UpsertPipeline,
    UpsertPipelines,
    errors,
)
from ebbtide.faults import FAULTS
from ebbtide.inspect._metrics import METRICS
from ebbtide.operations import operations
from ebbtide.operations._operation_page import section_of

ROOT = Path(__file__).resolve().parent.parent
PAGE_FOLDER = ROOT / "docs" / "reference"
OPERATIONS_PAGE = PAGE_FOLDER / "operations.md"
PYTHON_PAGE = PAGE_FOLDER / "python.md"
METRICS_PAGE = PAGE_FOLDER / "metrics.md"
FAULTS_PAGE = PAGE_FOLDER / "faults.md"
ROOMS_PAGE = ROOT / "docs" / "rooms.md"
DEMANDS_PAGE = PAGE_FOLDER / "demands.md"
DECISIONS = ROOT / "docs" / "decisions"


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def models_below(models: Iterable[type[BaseModel]]) -> dict[str, type[BaseModel]]:
    """Return some models and all that their fields can hold, by name."""
    found: dict[str, type[BaseModel]] = {}
    waiting = list(models)
    while waiting:
        model = waiting.pop()
        if found.setdefault(model.__name__, model) is model:
            waiting += [
                inner
                for field in model.model_fields.values()
                for inner in models_in(field.annotation)
                if inner.__name__ not in found
            ]
    return found


PIPELINES = (UpsertPipeline, StatefulPipeline, MaterializedView)
MODELS = models_below([*PIPELINES, UpsertPipelines])
"""Every model that a spec can hold."""
SPEC_PAGES: dict[str, tuple[str, str, str]] = {
    "spec.md": (
        "Spec: pipelines",
        "A pipeline is one YAML file. Its `attributes` have the fields below; the command line, Dagster and Python read the same ones.",
        (
            "UpsertPipeline UpsertPipelines StatefulPipeline MaterializedView RefreshEvery SequenceOrder SequenceField "
            "MaterializerConfig Transform"
        ),
    ),
    "spec-sources.md": (
        "Spec: sources, formats, sinks",
        "The fields below `source`, `format`, `columns` and `sink` of a [pipeline](spec.md).",
        (
            "FileSource AfterReadConfig KafkaSource SparkSource SourceStart SchemaRegistry DebeziumFormat PlainFormat ToolFormat MappedFormat "
            "OperationWords PositionPart EventTimeField ColumnConfig DeltaSink OtherSource OtherFormat OtherSink OtherOutput"
        ),
    ),
    "spec-settings.md": (
        "Spec: time to live, limits, schedules",
        "The fields below `ttl`, `quarantine`, `checks`, `schedules` and `freshness` of a [pipeline](spec.md).",
        (
            "StateTtlConfig CleanupConfig IncrementalCleanup CompactionFilter QuarantineConfig ChecksConfig "
            "ExpectationConfig SchedulesConfig EarlyCleanupConfig FreshnessConfig"
        ),
    ),
}
"""File name to title, introduction and names of models."""
SHARED = [name for name in UpsertPipeline.model_fields if all(name in model.model_fields for model in PIPELINES)]
SHARED.remove("ttl")  # each kind has its own
WITH_SOURCE = [
    name
    for name in StatefulPipeline.model_fields
    if name in UpsertPipeline.model_fields and name not in [*SHARED, "ttl"]
]


def spec_page(name: str) -> str:
    """Lay out every field of some models of a spec."""
    title, introduction, models = SPEC_PAGES[name]
    lines = [f"# {title}", "", introduction, ""]
    if name == "spec.md":
        lines += [
            "## Fields of every pipeline",
            "",
            "Upsert pipelines, stateful pipelines and materialized views have these.",
            "",
        ]
        lines += fields(UpsertPipeline, SHARED)
        lines += [
            "## Fields of pipelines with a source",
            "",
            "Upsert pipelines and stateful pipelines have these, too.",
            "",
        ]
        lines += fields(UpsertPipeline, WITH_SOURCE)
    for model in map(MODELS.__getitem__, models.split()):
        lines += [f"## {model.__name__}", "", paragraphs(model)[0], ""]
        lines += fields(model, [field for field in model.model_fields if not is_said_above(model, field)])
        lines += [f"{more}\n" for more in paragraphs(model)[1:] if not more.startswith("Example")]
    return linked("\n".join(lines))


def fields(model: type[BaseModel], names: Iterable[str]) -> list[str]:
    """Lay out some fields of a model as a table."""
    described = [(model.model_fields[name].alias or name, model.model_fields[name].description) for name in names]
    return ["| field | meaning |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in described), ""]


def is_said_above(model: type[BaseModel], field: str) -> bool:
    """Return whether the tables of shared fields have a model's field already, in the same words."""
    if model not in PIPELINES or field not in [*SHARED, *WITH_SOURCE]:
        return False
    return model.model_fields[field].description == UpsertPipeline.model_fields[field].description


def linked(text: str) -> str:
    """Turn links as descriptions have them, `(views.md)`, into links from the folder of the page."""

    def target(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        if path == "" and anchor:
            path = next((page for page in SPEC_PAGES if anchor[1:] in anchors(page)), "")
        elif path:
            [found] = (ROOT / "docs").rglob(Path(path).name)
            path = os.path.relpath(found, PAGE_FOLDER)
        return f"]({path}{anchor})"

    return re.sub(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)", target, text)


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's models."""
    return {name.lower() for name in SPEC_PAGES[page][2].split()}


PUBLIC = {
    "ebbtide": "Run pipelines, look at them, and write stateful functions.",
    "ebbtide.extend": "Write [sources, formats, sinks and operations](../how-to/extending.md) of a package of your own.",
    "ebbtide.testing": "Test specs and functions without Spark.",
}
"""Public module to what it is for."""


def python_page() -> str:
    """Lay out the public names of the package: each with its arguments and the first sentence of its docstring."""
    lines = [
        "# Python API",
        "",
        "`help(NAME)` shows arguments, errors and examples of each. Importing the package loads no Spark.",
        "",
    ]
    for name, purpose in PUBLIC.items():
        module = importlib.import_module(name)
        names = getattr(module, "__all__", None) or [each for each in vars(module) if _is_own(module, each)]
        lines += [f"## {name}", "", purpose, "", "| name | meaning |", "|---|---|"]
        lines += [
            f"| `{_called(getattr(module, each), each)}` | {_first_sentence(getattr(module, each))} |"
            for each in sorted(names)
        ]
        lines.append("")
    return "\n".join(lines)


def _is_own(module: Any, name: str) -> bool:
    found = getattr(module, name)
    return not name.startswith("_") and getattr(found, "__module__", None) == module.__name__


def _called(found: Any, name: str) -> str:
    """Return a name as it is called, without types and defaults."""
    if not callable(found) or (inspect.isclass(found) and issubclass(found, (Exception, BaseModel))):
        return name
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return name
    is_enum = inspect.isclass(found) and hasattr(found, "__members__")
    shown = [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return name if is_enum or not shown else f"{name}({', '.join(shown)})"


def _first_sentence(found: Any) -> str:
    """Return the first sentence of a docstring; of a constant its type."""
    text = inspect.getdoc(found) if callable(found) else None
    if not text:
        return f"Of type `{type(found).__name__}`."
    first, *_ = re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()))
    return first.replace("|", "\\|")


def operations_page() -> str:
    """Lay out every operation: its command, its job, what it is asked for."""
    lines = [
        "# Operations",
        "",
        "An operation works on a pipeline's tables. Each one is a command, `ebbtide COMMAND SPEC... [--root DIR] [--json]`, and a",
        "job in Dagster. The job takes the same settings below `ops: {JOB_op: {config: ...}}`. An operation that is planned changes nothing without `--apply`,",
        "in Dagster `action: apply`. [Another package](../how-to/extending.md#an-operation) can add operations.",
        "",
    ]
    for operation in operations():
        lines += section_of(operation)
    return "\n".join(lines)


def metrics_page() -> str:
    """Lay out the metrics: type, meaning, labels, where the value comes from, and who has it."""
    lines = [
        "# Metrics",
        "",
        "`ebbtide status --metrics` prints them, and `ebbtide run --follow --metrics-port PORT` serves them: [how to](../how-to/operating.md#watch).",
        "Those of a pipeline have the label `pipeline`. Names of counters end in `_total` where they are shown. A value that is unknown is left out.",
        "",
    ]
    parts = {
        "In both": ("status", "run"),
        "Of the status alone": ("status",),
        "Of a followed run alone": ("run",),
    }
    for title, viewers in parts.items():
        lines += [f"## {title}", "", "| metric | type | labels | meaning | from |", "|---|---|---|---|---|"]
        for metric in METRICS:
            if metric.viewers == viewers:
                labels = ", ".join(f"`{name}`" for name in metric.label_names)
                lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} | {metric.origin} |")
        lines.append("")
    lines.append("A followed run also has `process_*` of its own process: memory, CPU, handles; not those of the JVM.")
    return "\n".join(lines) + "\n"


def faults_page() -> str:
    """Lay out the faults by part: the sentence, the way out and the error of each."""
    lines = [
        "# Faults",
        "",
        "What can be wrong with a part of a pipeline. A run and an operation refuse to begin with the sentence. `ebbtide status` shows it, and the",
        "metric `ebbtide_misfit` is 1, where a look without the lease can find it. A `table` is a sink, a changelog or a quarantine.",
    ]
    parts = list(dict.fromkeys(part for part, _ in FAULTS))
    for part in parts:
        lines += ["", f"## {part.capitalize()}", "", "| fault | sentence | way out | error |", "|---|---|---|---|"]
        for (of, name), words in FAULTS.items():
            if of == part:
                lines.append(f"| {name} | {words.says} | {words.way_out} | `{words.error.__name__}` |")
    return "\n".join(lines) + "\n"


def rooms_page() -> str:
    """Lay out the rooms by floor, and the door of each."""
    import counters

    floors = counters.floors()
    lines = [
        "# Rooms",
        "",
        "A room takes from rooms on lower floors only. Names that are still taken from behind a door are counted by `python tests/support/counters.py`.",
        "",
        "```text",
    ]
    for floor in range(max(floors.values()), 0, -1):
        names = sorted(room for room, own in floors.items() if own == floor)
        lines.append(f"{floor:2}  {'  '.join(names)}")
    lines += ["```", "", "| room | purpose | names at its door |", "|---|---|---|"]
    for room, door in sorted(counters.rooms().items()):
        purpose = (ast.get_docstring(ast.parse(door.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        names = ", ".join(f"`{name}`" for name in sorted(counters.names_of_door(room)))
        lines.append(f"| `{room}` | {purpose} | {names} |")
    return "\n".join(lines) + "\n"


@cache
def demands_marked() -> dict[str, list[str]]:
    """Return the tests that mark each demand, read from their sources."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.demand(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.demand":
                    for name in mark.args:
                        place = f"{path.relative_to(ROOT / 'tests').as_posix()}::{node.name}"
                        found.setdefault(ast.literal_eval(name), []).append(place)
    return found


def demands_page() -> str:
    """List the demands of the documents, each with its name here and its tests."""
    from demands import DEMANDS

    lines = [
        "# Demands of the documents",
        "",
        "Sentences of the documents that Ebbtide follows, what stands for each here, and the tests below `tests/` that show it.",
    ]
    for document in dict.fromkeys(demand.document for demand in DEMANDS.values()):
        lines += ["", f"## {document}", "", "| demand | here | tests |", "|---|---|---|"]
        for name, demand in DEMANDS.items():
            if demand.document == document:
                tests = "<br>".join(f"`{test}`" for test in demands_marked().get(name, ()))
                lines.append(f"| {demand.says} | {demand.here} | {tests} |")
    return "\n".join(lines) + "\n"


def decisions_page() -> str:
    """List the decisions by their titles."""
    lines = [
        "# Decisions",
        "",
        "Each page has a question, the facts that were found, the answer, and the reason to ask again.",
        "",
    ]
    for path in sorted(DECISIONS.glob("0*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        number, _, rest = title.partition(" ") if title[:4].isdigit() else (path.name[:4], "", title)
        lines.append(f"- [{number.rstrip(':.')}]({path.name}): {rest.lstrip(': ')}")
    return "\n".join(lines) + "\n"


def paragraphs(model: type[BaseModel]) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (model.__doc__ or "").split("\n\n")]


@pytest.mark.parametrize("name", SPEC_PAGES)
def test_spec_page_is_what_the_code_says(name):
    assert (PAGE_FOLDER / name).read_text(encoding="utf-8") == spec_page(name)


def test_operations_page_is_what_the_code_says():
    assert OPERATIONS_PAGE.read_text(encoding="utf-8") == operations_page()


def test_python_page_is_what_the_docstrings_say():
    assert PYTHON_PAGE.read_text(encoding="utf-8") == python_page()


def test_metrics_page_is_what_the_list_says():
    assert METRICS_PAGE.read_text(encoding="utf-8") == metrics_page()


def test_faults_page_is_what_the_table_says():
    assert FAULTS_PAGE.read_text(encoding="utf-8") == faults_page()


def test_demands_page_is_what_the_marks_of_tests_say():
    assert DEMANDS_PAGE.read_text(encoding="utf-8") == demands_page()


def test_each_demand_has_a_test_and_each_mark_a_demand():
    from demands import DEMANDS

    assert demands_marked().keys() == DEMANDS.keys()


@pytest.mark.group("rooms")
def test_rooms_page_is_what_the_doors_say():
    assert ROOMS_PAGE.read_text(encoding="utf-8") == rooms_page()


def test_fields_of_operations_state_their_default_unless_they_are_required():
    for operation in operations():
        for name, field in operation.Params.model_fields.items():
            said = field.description or ""
            assert field.is_required() or "Default" in said or "required to apply" in said, f"{operation.name}.{name}"


def test_spec_page_has_every_model_that_a_spec_can_hold():
    shown = [name for _, _, names in SPEC_PAGES.values() for name in names.split()]
    assert sorted(shown) == sorted(MODELS)


def test_spec_fields_state_their_default_or_that_they_are_required():
    for model in MODELS.values():
        for name, field in model.model_fields.items():
            said = field.description or ""
            choice = name == "type" and field.default is PydanticUndefined
            assert choice or ("Required" in said if field.is_required() else "Default" in said), (
                f"{model.__name__}.{name}"
            )


def test_bad_records_page_lists_every_reason():
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "ebbtide" / "formats").glob("*.py"))
    reasons = set(re.findall(r"BadRecordError(?:\.of)?\(\s*\"([a-z_0-9]+)\"", code))
    reasons |= {"missing_before", "missing_after", "bad_event_time"}
    listed = set(
        re.findall(r"`([a-z_0-9]+)`", (ROOT / "docs" / "how-to" / "bad-records.md").read_text(encoding="utf-8"))
    )
    assert len(reasons) > 20
    assert reasons <= listed


def test_errors_page_has_every_class():
    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    bases = {"EbbtideError", "Terminal", "Transient"}
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.EbbtideError)
    }
    assert {name for name in classes - bases if f"`{name}`" not in text} == set()


def test_contributing_says_what_each_room_is_for():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "ebbtide").glob("*/__init__.py")}
    assert {room for room in rooms if f"`ebbtide/{room}`" not in page} == set()


def test_site_is_built_strictly(tmp_path):
    """Dead links and anchors fail the build."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("zensical.toml", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / ".site" / "index.html").exists()
    assert "<code>ebbtide/ledger</code>" in (tmp_path / ".site" / "contributing.html").read_text(encoding="utf-8")


def test_navigation_has_every_page():
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    listed = set(re.findall(r"[\w/-]+\.md", str(navigation)))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert listed == {page for page in pages if not re.match(r"decisions/\d", page)}


def test_index_of_decisions_lists_every_one():
    assert (DECISIONS / "index.md").read_text(encoding="utf-8") == decisions_page()
    numbers = [path.name[:4] for path in DECISIONS.glob("0*.md")]
    assert len(numbers) == len(set(numbers)), "two pages have one number"


def test_links_of_the_pages_lead_somewhere():
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]:
        for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


if __name__ == "__main__":
    sys.path.append(str(ROOT / "tests" / "support"))
    for name in SPEC_PAGES:
        (PAGE_FOLDER / name).write_text("", encoding="utf-8")  # so that links find it
    for name in SPEC_PAGES:
        (PAGE_FOLDER / name).write_text(spec_page(name), encoding="utf-8")
    OPERATIONS_PAGE.write_text(operations_page(), encoding="utf-8")
    PYTHON_PAGE.write_text(python_page(), encoding="utf-8")
    METRICS_PAGE.write_text(metrics_page(), encoding="utf-8")
    FAULTS_PAGE.write_text(faults_page(), encoding="utf-8")
    ROOMS_PAGE.write_text(rooms_page(), encoding="utf-8")
    DEMANDS_PAGE.write_text(demands_page(), encoding="utf-8")
    (DECISIONS / "index.md").write_text(decisions_page(), encoding="utf-8")
