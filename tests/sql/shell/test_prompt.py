"""The client in a real terminal."""

import stat

import pytest
from frame.terminal import Terminal, script


@pytest.fixture
def shell(warm_programs, tmp_path):
    """Start the client in a terminal; its session holds the tables `few` and `many`."""
    opened = []

    def start(*arguments, prompts=True, **environment):
        state = {"XDG_STATE_HOME": str(tmp_path / "state")}
        defs = ["--defs", str(tmp_path)]
        terminal = Terminal(
            [script("memory_shell.py"), *defs, *arguments], state | environment, warm_programs / "python"
        )
        opened.append(terminal)
        if prompts:
            terminal.prompts()
        return terminal

    yield start
    for terminal in opened:
        terminal.__exit__(None, None, None)


@pytest.fixture(scope="module")
def kept_open(warm_programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept open")
    arguments = [script("memory_shell.py"), "--defs", str(folder)]
    with Terminal(arguments, {"XDG_STATE_HOME": str(folder)}, warm_programs / "python") as terminal:
        yield terminal


@pytest.fixture
def terminal(kept_open):
    """A client that each test leaves at its prompt, with nothing above it."""
    kept_open.prompts()
    kept_open.clear()
    return kept_open


def test_a_statement_over_several_lines_is_executed_at_its_semicolon(terminal):
    terminal.type("SELECT *", "enter")
    terminal.shows("->")
    terminal.type("FROM few;", "enter")
    shown = terminal.prompts("(2 rows)")
    assert "|  1 | Ada  |" in shown
    assert "|  2 | NULL |" in shown


def test_prompt_stands_while_the_session_is_still_being_opened(shell, tmp_path):
    terminal = shell(SLOW="yes")
    terminal.type("SELECT * FROM few;", "enter")
    terminal.shows("Opening the session")
    terminal.type("ctrl-c")
    terminal.prompts("Cancelled.")
    (tmp_path / "go").touch()
    terminal.type("SELECT * FROM few;", "enter")
    terminal.prompts("(2 rows)")


def test_prompt_is_left_before_the_session_is_open(shell):
    terminal = shell(SLOW="yes")
    terminal.type("ctrl-d")
    assert terminal.ends() == 0


@pytest.mark.demand("sql-completion")
def test_words_are_completed_as_the_session_knows_them(terminal):
    terminal.type("SELECT * FROM fe", "tab")
    terminal.shows("FROM few")
    terminal.type(";", "enter")
    terminal.prompts("(2 rows)")
    terminal.type("SET result-f", "tab")
    terminal.shows("SET result-format")
    terminal.type(" = vert", "tab")
    terminal.shows("SET result-format = vertical")
    terminal.type(";", "enter")
    terminal.prompts("SET result-format = vertical;")
    terminal.type("SELECT * FROM few;", "enter")
    terminal.prompts("[ 2. row ]", "name | NULL")
    terminal.type("RESET result-format;", "enter")
    terminal.prompts("RESET result-format;")


def test_ctrl_c_cancels_a_statement_and_the_shell_lives(terminal):
    terminal.type("SELECT * FROM never;", "enter")
    terminal.shows("Running, ", " s. Ctrl-C cancels.")
    terminal.type("ctrl-c")
    assert "Running" not in terminal.prompts("Cancelled.")
    terminal.type("SELECT * FROM nowhere;", "enter")
    terminal.prompts("Error: SqlError: There is no table 'nowhere'.")
    terminal.type("SELECT * FROM few;", "enter")
    terminal.prompts("(2 rows)")


def test_statement_that_does_not_end_when_cancelled_is_left_behind(shell):
    terminal = shell()
    terminal.type("\\watch 0.1", "enter")
    terminal.prompts("There is no query to watch.")
    terminal.type("SELECT * FROM stubborn;", "enter")
    terminal.shows("Running, ")
    terminal.type("ctrl-c")
    terminal.prompts("has not yet; it continues in the background.", "Cancelled.")
    terminal.type("ctrl-d")
    assert terminal.ends() == 0


def test_ctrl_c_at_the_prompt_clears_the_line(shell):
    terminal = shell()
    terminal.type("SELECT 'torn", "enter", "ctrl-c")
    terminal.type("quit", "enter")
    assert terminal.ends() == 0
    assert "Error" not in terminal.text


def test_rows_that_do_not_fit_are_in_the_pager(terminal):
    terminal.type("SELECT * FROM many;", "enter")
    shown = terminal.shows("| id | name", "name 19")
    assert "name 22" not in shown
    terminal.type(" ")
    terminal.shows("name 22")
    terminal.type("/name 473", "enter")
    terminal.shows("| 473 | name 473 |", "東京 \\x1b[2J")
    terminal.hides("name 470")
    terminal.type("q")
    terminal.prompts("(500 rows)")
    assert b"\x1b[2J" not in terminal.written.split(b"many")[1]


def test_rows_that_are_too_wide_are_in_the_pager_and_cut_at_its_edge(terminal):
    terminal.type("SELECT * FROM many LIMIT 9;", "enter")
    shown = terminal.shows("| id | name", "| name 8 |")
    assert shown.count("name 7") == 1
    assert len(shown.splitlines()) < 20
    terminal.type("q")
    terminal.prompts("(9 rows)")


def test_pager_is_the_one_of_the_user_and_is_left_before_all_rows_are_read(shell, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nhead -n 4 | sed 's/^/paged /'\n")
    pager.chmod(0o700)
    terminal = shell(PAGER=str(pager), ROWS="50000")
    terminal.type("SELECT * FROM many;", "enter")
    terminal.prompts("paged |  0 | name 0 ", "rows read)")
    terminal.type("SELECT * FROM few;", "enter")
    assert "paged" not in terminal.prompts("(2 rows)").rpartition("few;")[2]


def test_changes_go_on_until_they_are_left(terminal):
    terminal.type("SELECT * FROM few EMIT CHANGES;", "enter")
    shown = terminal.shows("| -U |", "| +U |")
    terminal.until(lambda: terminal.text != shown, "further changes")
    assert b"\x1b[32m| +I |" in terminal.written
    terminal.type("ctrl-c")
    terminal.prompts("changes read)", "Continue from here: EMIT CHANGES FROM '", "Cancelled.")
    terminal.type("SELECT * FROM few;", "enter")
    terminal.prompts("(2 rows)")


def test_watch_executes_the_last_query_again_until_ctrl_c(terminal):
    terminal.type("SELECT * FROM few;", "enter")
    terminal.prompts("(2 rows)")
    terminal.type("\\watch 0.1", "enter")
    terminal.until(lambda: terminal.written.count(b"(2 rows)") > 3, "three more results")
    terminal.type("ctrl-c")
    terminal.prompts("Cancelled.")


@pytest.mark.demand("sql-history")
def test_history_is_searched_and_keeps_no_credentials(shell, tmp_path):
    terminal = shell()
    terminal.type("SET s3.secret.key = verysecret;", "enter")
    terminal.prompts("s3.secret.key is")
    terminal.type("SELECT * FROM few;", "enter")
    terminal.prompts("(2 rows)")
    terminal.type("ctrl-d")
    assert terminal.ends() == 0
    file = tmp_path / "state" / "ebbtide" / "sql_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = file.read_text()
    assert "SET s3.secret.key = ***;" in kept
    assert "verysecret" not in kept
    later = shell()
    later.type("ctrl-r", "few")
    later.shows("SELECT * FROM few;")
    later.type("enter", "enter")
    later.prompts("(2 rows)")


def test_script_of_a_session_comes_before_the_prompt(shell, tmp_path):
    init = tmp_path / "init.sql"
    init.write_text("SET result-format = csv; SELECT * FROM few;")
    terminal = shell("-i", str(init))
    assert "1,Ada" in terminal.text


def test_ctrl_c_ends_a_script_with_its_own_exit_code(shell):
    terminal = shell("-e", "SELECT * FROM never; SELECT * FROM few;", prompts=False)
    terminal.shows("Running, ")
    terminal.type("ctrl-c")
    assert terminal.ends() == 130
    assert "rows" not in terminal.text
