"""Where the tables are, and what is kept beside them."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from pydantic import Field


class StorageResource(dg.ConfigurableResource["StorageResource"]):
    """The roots under which everything is stored."""

    root: str = Field(description="Folder of all pipelines' tables: a path or a URI. Required.")
    data_docs: str = Field(description="Local folder for Great Expectations' Data Docs. Required.")
    keep_data_docs: int = Field(default=20, gt=0, description="Evaluations kept per pipeline. Default: 20.")

    def docs_of(self, pipeline: str) -> Path:
        """Return the folder of a pipeline's Data Docs."""
        return Path(self.data_docs).resolve() / pipeline
