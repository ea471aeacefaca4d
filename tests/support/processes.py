"""Tests that begin again in their process as another process would."""

from ebbtide.delta import _key_index as key_index


def as_another_process(monkeypatch):
    """Let no copy of a data file be mapped yet."""
    monkeypatch.setattr(key_index, "_shared", {})
