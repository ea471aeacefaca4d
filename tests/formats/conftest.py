"""Records are judged alike whether the compiled scan takes them or not."""

import pytest
from frame.circumstances import assume


@pytest.fixture(params=["scanned", "not scanned"])
def scanned_or_not(request):
    assume("compiled" if request.param == "scanned" else "not compiled")
