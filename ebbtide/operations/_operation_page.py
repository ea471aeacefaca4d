"""Writes an operation's section of docs/reference/operations.md, also for operations of other packages."""

from __future__ import annotations

from ebbtide.operations._operation import Operation


def section_of(operation: Operation) -> list[str]:
    """Return the lines of an operation's section, in Markdown.

    Args:
        operation: The operation.
    """
    command = f"ebbtide {operation.command}"
    planned = "; planned unless `--apply`" if operation.is_planned else ""
    lines = [
        f"## {command}",
        "",
        operation.description,
        "",
        f"`{command} SPEC...`, in Dagster `ebbtide_{operation.job_name}`{planned}.",
        "",
    ]
    rows = []
    for action, meaning in operation.further.items():
        option = operation.option_of(action)
        rows.append(f"| `{option}` | `action: {action}` | {meaning} |")
    for name, field in operation.Params.model_fields.items():
        option = operation.option_of(field.alias or name)
        value = f" {field.title}" if field.title else ""
        required = " Required." if field.is_required() else ""
        rows.append(f"| `{option}{value}` | `{name}` | {field.description}{required} |")
    if rows:
        lines += ["| option | in Dagster | meaning |", "|---|---|---|", *rows, ""]
    return lines
