"""Records are judged alike whether the compiled scan takes them or not."""

import pytest

from ebbtide.columns import _compiled as compiled


@pytest.fixture(params=["scanned", "not scanned"])
def scanned_or_not(request, monkeypatch):
    monkeypatch.setattr(compiled, "worth_compiling", lambda rows: request.param == "scanned")
