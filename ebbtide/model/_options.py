"""Options of a part that another package provides."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class NoOptions(BaseModel):
    """Options of a part without options."""

    model_config = ConfigDict(extra="forbid")
