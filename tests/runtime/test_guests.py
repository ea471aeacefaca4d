"""How the runtime finds what materialized views are made of."""

import pytest

from ebbtide.errors import ConfigError
from ebbtide.runtime import _guests as guests
from ebbtide.runtime import view_source
from ebbtide.runtime._guests import ViewSource


@pytest.fixture(autouse=True)
def _found_again():
    view_source.cache_clear()
    yield
    view_source.cache_clear()


def test_source_of_views_is_found_by_its_entry_point():
    found = view_source()
    assert f"{found.__module__}.{found.__name__}" == "ebbtide.views.source.ComputedTables"
    assert isinstance(found(None, "root"), ViewSource)


def test_installation_without_views_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(guests, "entry_points", lambda **given: [])
    with pytest.raises(
        ConfigError, match=r"no entry point 'tables' of the group 'ebbtide.sources'.*Install ebbtide again"
    ):
        view_source()
