"""The pages that list what the code has; `python tests/test_docs.py` writes docs/spec.md and docs/operations.md."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from ebbtide import (
    CleanupConfig,
    CompactionFilter,
    IncrementalCleanup,
    MaterializedView,
    StatefulPipeline,
    StateTtlConfig,
    UpsertPipeline,
    UpsertPipelines,
)
from ebbtide.operations.operation_page import section_of
from ebbtide.operations.registry import operations
from ebbtide.spec import parts
from ebbtide.spec.extensions import OtherFormat, OtherSink, OtherSource
from ebbtide.spec.kafka import KafkaSource, SchemaRegistry
from ebbtide.spec.positioned import SourceStart
from ebbtide.spec.transform import Transform
from ebbtide.spec.upsert import MaterializerConfig, SequenceOrder
from ebbtide.spec.view import RefreshEvery

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "spec.md"
OPERATIONS_PAGE = ROOT / "docs" / "operations.md"
MODELS: tuple[type[BaseModel], ...] = (
    UpsertPipeline,
    UpsertPipelines,
    StatefulPipeline,
    MaterializedView,
    RefreshEvery,
    parts.FileSource,
    KafkaSource,
    SourceStart,
    SchemaRegistry,
    parts.DebeziumFormat,
    parts.PlainFormat,
    parts.ColumnConfig,
    SequenceOrder,
    MaterializerConfig,
    Transform,
    StateTtlConfig,
    CleanupConfig,
    IncrementalCleanup,
    CompactionFilter,
    parts.QuarantineConfig,
    parts.ChecksConfig,
    parts.ExpectationConfig,
    parts.SchedulesConfig,
    parts.FreshnessConfig,
    parts.DeltaSink,
    OtherSource,
    OtherFormat,
    OtherSink,
)


def page() -> str:
    """Lay out every field of a spec."""
    lines = [
        "# The pipeline spec",
        "",
        "One schema for YAML (the `attributes` of a `defs.yaml`), the command line and Python.",
        "",
    ]
    for model in MODELS:
        lines += [f"## {model.__name__}", "", paragraphs(model)[0], "", "| field | meaning |", "|---|---|"]
        lines += [f"| `{field.alias or name}` | {field.description} |" for name, field in model.model_fields.items()]
        lines.append("")
        lines += [f"{more}\n" for more in paragraphs(model)[1:] if not more.startswith("Example")]
    return "\n".join(lines)


def operations_page() -> str:
    """Lay out every operation: its command, its job, what it is asked for."""
    lines = [
        "# Operations",
        "",
        "What is done to a pipeline's tables on request or by schedule. Each is a command, `ebbtide COMMAND SPEC... [--root DIR] [--json]`, and a",
        "job in Dagster, whose configuration has the same settings below `ops: {JOB_op: {config: ...}}`. An operation that is planned changes nothing",
        "unless it is given `--apply`, in Dagster `action: apply`. [Another package](extending.md#an-operation) can add some.",
        "",
    ]
    for operation in operations():
        lines += section_of(operation)
    return "\n".join(lines)


def paragraphs(model: type[BaseModel]) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (model.__doc__ or "").split("\n\n")]


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


def test_spec_page_is_what_the_code_says():
    assert PAGE.read_text(encoding="utf-8") == page()


def test_operations_page_is_what_the_code_says():
    assert OPERATIONS_PAGE.read_text(encoding="utf-8") == operations_page()


def test_fields_of_operations_state_their_default_unless_they_are_required():
    for operation in operations():
        for name, field in operation.Params.model_fields.items():
            said = field.description or ""
            assert field.is_required() or "Default" in said or "needed to apply" in said, f"{operation.name}.{name}"


def test_spec_page_has_every_model_that_a_spec_can_hold():
    held = {inner for model in MODELS for field in model.model_fields.values() for inner in models_in(field.annotation)}
    assert held <= set(MODELS)


def test_spec_fields_state_their_default_or_that_they_are_required():
    for model in MODELS:
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
    listed = set(re.findall(r"`([a-z_0-9]+)`", (ROOT / "docs" / "bad-records.md").read_text(encoding="utf-8")))
    assert len(reasons) > 20
    assert reasons <= listed


def test_contributing_says_what_each_room_is_for():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in (ROOT / "ebbtide").glob("*/__init__.py")}
    assert {room for room in rooms if f"`ebbtide/{room}`" not in page} == set()


def test_links_of_the_pages_lead_somewhere():
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page(), encoding="utf-8")
    OPERATIONS_PAGE.write_text(operations_page(), encoding="utf-8")
