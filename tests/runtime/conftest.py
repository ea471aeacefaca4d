"""Runs without Spark replace its stream for the whole process: it is put back after each test."""

import pytest
from local_pipeline import LocalPipeline

from ebbtide.delta import joining
from ebbtide.runtime import driver


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes pipelines that run without Spark."""
    monkeypatch.setattr(driver, "_stream", driver._stream)
    monkeypatch.setattr(joining, "WIDTH", joining.WIDTH)
    return lambda **fields: LocalPipeline(tmp_path, **fields)
