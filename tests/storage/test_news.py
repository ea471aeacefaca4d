"""News of files in a local folder."""

import os
import resource
import sys
import threading

import pytest

from ebbtide.storage import Location

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux'")
STOP = threading.Event()


@pytest.fixture
def news(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    found = Location(tmp_path).news()
    assert not found.wait(0, STOP)
    return found


def test_complete_files_are_news_at_any_depth_and_each_once(tmp_path, news):
    for place in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        (place / "1.json").write_text("x")
        assert news.wait(60, STOP)
        assert not news.wait(0, STOP)


def test_file_is_news_once_it_is_closed_or_has_its_name(tmp_path, news):
    with (tmp_path / "1.json").open("w") as file:
        file.write("x")
        file.flush()
        assert not news.wait(0, STOP)
    assert news.wait(60, STOP)
    (tmp_path / ".1.tmp").write_text("x")
    assert not news.wait(0, STOP), "a hidden name"
    (tmp_path / ".1.tmp").rename(tmp_path / "2.json")
    assert news.wait(60, STOP)


def test_new_folder_is_news_and_is_watched_with_those_in_it(tmp_path, news):
    (tmp_path / "c" / "d").mkdir(parents=True)
    assert news.wait(60, STOP)
    while news.wait(0, STOP):
        pass
    (tmp_path / "c" / "d" / "1.json").write_text("x")
    assert news.wait(60, STOP)


def test_handle_above_a_thousand_is_waited_for(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    held = [os.open(tmp_path, os.O_RDONLY) for _ in range(1100)]
    try:
        found = Location(tmp_path).news()
        (tmp_path / "1.json").write_text("x")
        assert found.wait(60, STOP)
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_wait_ends_when_it_is_stopped(tmp_path, news):
    stopped = threading.Event()
    stopped.set()
    assert not news.wait(3600, stopped)


def test_folder_that_is_not_there_has_no_news(tmp_path):
    assert Location(tmp_path / "absent").news() is None
