"""The functions that a plan calls, and those of Spark that do more than compute a value of their arguments."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.sql.judging.plans import Node

CALLING_JAVA = frozenset({"reflect", "java_method", "try_reflect"})
"""Call any static method of a Java class: to run a program, to end the process."""
READING_FILES = frozenset({"from_protobuf", "to_protobuf", "table_changes_by_path", "read_files"})
"""Read a file whose path is an argument."""
OF_OTHER_SESSIONS = frozenset({"python_worker_logs"})
"""Return what other sessions have left."""
REVIEWED_MISC = frozenset(
    {
        "aes_decrypt",
        "aes_encrypt",
        "assert_true",
        "bitmap_bit_position",
        "bitmap_bucket_number",
        "bitmap_count",
        "current_catalog",
        "current_database",
        "current_path",
        "current_schema",
        "current_user",
        "input_file_block_length",
        "input_file_block_start",
        "input_file_name",
        "monotonically_increasing_id",
        "raise_error",
        "session_user",
        "spark_partition_id",
        "try_aes_decrypt",
        "typeof",
        "user",
        "uuid",
        "version",
    }
)
"""Those of Spark's group of functions that are neither for numbers, texts nor collections; one that is new in it is refused."""
TABLE_FUNCTIONS = frozenset(
    {
        "collations",
        "explode",
        "explode_outer",
        "inline",
        "inline_outer",
        "json_tuple",
        "posexplode",
        "posexplode_outer",
        "range",
        "sql_keywords",
        "stack",
        "table_changes",
        "variant_explode",
        "variant_explode_outer",
    }
)
"""Table-valued functions that read nothing, or a table by its name."""
BUILT_IN: tuple[list[str], ...] = (
    [],
    ["builtin"],
    ["system", "builtin"],
    ["session"],
    ["system", "session"],
    ["default"],
    ["spark_catalog", "default"],
)
"""What may stand before a function's name."""


def calls_in(node: Node) -> Iterator[tuple[Node, list[str]]]:
    """Yield the nodes at and below one that call a function, with the parts of the function's name in lower case."""
    for each in node.nodes():
        parts = _called(each)
        if parts is not None:
            yield each, [part.lower() for part in parts]


def _called(node: Node) -> list[str] | None:
    if node.name in {"UnresolvedFunction", "UnresolvedTableValuedFunction"}:
        parts = node.fields.get("nameParts") or node.fields["name"]
        return list(parts)
    if node.name == "FunctionIdentifier":
        given = (node.fields["catalog"], node.fields["database"], node.fields["funcName"])
        return [part for part in given if part is not None]
    return None
