"""The history of statements that were typed: who can read it."""

from ebbtide.sql._shell.prompt import MaskedHistory, history_at


def test_history_is_of_one_session_alone_where_no_file_can_be_written(tmp_path):
    (tmp_path / "ebbtide").write_text("a file")
    assert not isinstance(history_at(tmp_path), MaskedHistory)


def test_history_does_not_follow_a_link(tmp_path):
    (tmp_path / "ebbtide").mkdir()
    (tmp_path / "elsewhere").touch()
    (tmp_path / "ebbtide" / "sql_history").symlink_to(tmp_path / "elsewhere")
    assert not isinstance(history_at(tmp_path), MaskedHistory)


def test_history_that_other_users_could_read_is_made_private(tmp_path):
    file = tmp_path / "ebbtide" / "sql_history"
    file.parent.mkdir()
    file.touch(mode=0o644)
    history_at(tmp_path).append_string("SELECT 1;")
    assert file.stat().st_mode & 0o077 == 0
    assert list(history_at(tmp_path).load_history_strings()) == ["SELECT 1;"]
