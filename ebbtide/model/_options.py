"""Options of a part that another package brings along."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class NoOptions(BaseModel):
    """The options of a part that has none."""

    model_config = ConfigDict(extra="forbid")
