"""A format of a project's own: `{"put": {...}}` sets a row, `{"drop": {...}}` deletes the one of its key."""

from __future__ import annotations

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from ebbtide.extend import BadRecordError, DecodedChange, Format, RowKind


class Options(BaseModel):
    """Fields beside `type: puts` in a spec's `format`: the two words."""

    model_config = ConfigDict(extra="forbid")

    put: str = "put"
    drop: str = "drop"


class Puts(Format):
    """The format.

    Args:
        options: What the spec says of it.
        columns: The user's columns.
        key: Names of the key's columns.
    """

    Options = Options

    def __init__(self, options: Options, columns: pa.Schema, key: tuple[str, ...]) -> None:
        self.kinds = {options.put: RowKind.UPDATE_AFTER, options.drop: RowKind.DELETE}

    def changes(self, value: dict[str, object], key: str | None, other_key: str | None = None) -> list[DecodedChange]:
        """Return the change of a record, which has one of the two words."""
        found = [(kind, value[word]) for word, kind in self.kinds.items() if isinstance(value.get(word), dict)]
        if len(found) != 1:
            raise BadRecordError("not_a_put", f"got fields {', '.join(value)}; allowed: one of {', '.join(self.kinds)}")
        [(kind, row)] = found
        return [DecodedChange(kind, row)]
