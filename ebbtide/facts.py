"""The base of all facts that are stored of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Facts(BaseModel):
    """Frozen facts. A copy refuses a field that they lack: pydantic would keep its value and never store it."""

    model_config = ConfigDict(frozen=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values.

        Raises:
            TypeError: there is no such field.
        """
        unknown = set(update or {}).difference(type(self).model_fields)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}.")
        return super().model_copy(update=update, deep=deep)
