"""Records of other tools, that become records that are read by a program of jq."""

from __future__ import annotations

from dataclasses import dataclass

from ebbtide.formats.format import Json

_OPERATIONS = frozenset({"insert", "update", "delete"})


@dataclass(frozen=True)
class Conversion:
    """The conversion of one tool's records.

    Args:
        writer: What the records are, as messages call them.
        fields: Fields that each of them has, beside what `values` says.
        values: The values that a field may have; a record with another one is not of this tool.
        program: The program of jq, a record in and a record out. Records that are no change are dropped.
    """

    writer: str
    fields: frozenset[str]
    values: tuple[str, frozenset[str]] | None
    program: str

    def fits(self, record: Json) -> bool:
        """Return whether a record is of this tool."""
        if self.values is not None:
            name, allowed = self.values
            if record.get(name) not in allowed:
                return False
        return self.fields <= record.keys()


CONVERSIONS = (
    Conversion(
        writer="those of kcat -J",
        fields=frozenset({"topic", "partition", "offset", "payload"}),
        values=None,
        program="{topic, partition, offset, key, value: .payload}",
    ),
    Conversion(
        writer="Maxwell's",
        fields=frozenset({"database", "table", "type", "ts"}),
        values=None,
        program='{kind: {"insert": "+I", "update": "+U", "delete": "-D", "bootstrap-insert": "+I"}[.type], '
        'row: (.data + (.position | split(":") | {file: .[0], pos: (.[1] | tonumber)}))} | select(.kind)',
    ),
    Conversion(
        writer="those of AWS DMS",
        fields=frozenset({"metadata"}),
        values=None,
        program='{kind: {"load": "+I", "insert": "+I", "update": "+U", "delete": "-D"}[.metadata.operation], '
        "row: (.data + {at: .metadata.timestamp})} | select(.kind)",
    ),
    Conversion(
        writer="those of AWS DMS for S3",
        fields=frozenset(),
        values=("Op", frozenset("IUD")),
        program='{kind: {"I": "+I", "U": "+U", "D": "-D"}[.Op], row: del(.Op)} | select(.kind)',
    ),
    Conversion(
        writer="rows with an operation in words",
        fields=frozenset(),
        values=("op", _OPERATIONS),
        program='{kind: {"insert": "+I", "update": "+U", "delete": "-D"}[.op], row: del(.op)} | select(.kind)',
    ),
)
"""The page of formats (docs/reference/formats.md) has a sample of each."""


def conversion_of(record: Json) -> Conversion | None:
    """Return how a record that is not read is converted; None if that is unknown.

    Example:
        >>> conversion_of({"op": "insert", "id": 1}).writer
        'rows with an operation in words'
    """
    return next((conversion for conversion in CONVERSIONS if conversion.fits(record)), None)
