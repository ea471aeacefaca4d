"""The client over a session in memory, written to texts."""

import io
import re

import pyarrow as pa
import pytest
from statements.sql_support import MemorySession

from ebbtide.errors import ConfigError, EbbtideError, SessionGoneError, SqlError, SqlSyntaxError
from ebbtide.sql import ResultFormat, Script, Shell

MOST_NESTED = 16


class Written:
    """A shell, its session, and what it wrote."""

    def __init__(self, folder, values=None):
        self.out, self.err = io.StringIO(), io.StringIO()
        self.session = MemorySession(tables={"few": pa.table({"id": [1, 2], "name": ["Ada", None]})})
        self.opened_next = [self.session]
        self.shell = Shell(
            self._open, lambda: values or {}, ResultFormat.TABLE, self.out, self.err, is_interactive=False
        )
        self.folder = folder
        self.has_quit = False

    def run(self, text):
        self.has_quit = self.shell.run([Script("test.sql", text, self.folder)])
        return self.out.getvalue()

    def _open(self):
        opened = self.opened_next.pop(0)
        if isinstance(opened, EbbtideError):
            raise opened
        return opened


@pytest.fixture
def written(tmp_path):
    return Written(tmp_path)


def test_statements_are_executed_in_order_and_messages_said(written):
    shown = written.run("SET a = 1; SELECT * FROM few;\nSHOW TABLES")
    few = "+----+------+\n| id | name |\n|----+------|\n|  1 | Ada  |\n|  2 | NULL |\n+----+------+\n"
    names = "+------+\n| name |\n|------|\n| few  |\n+------+\n"
    assert shown == f"a is 1.\n{few}(2 rows)\n{names}(1 row)\n"


def test_data_formats_have_nothing_but_data(written):
    shown = written.run("SET result-format = csv; SET timing = on; SET a = 1; SELECT * FROM few;")
    assert shown == "id,name\n1,Ada\n2,\n"
    assert re.fullmatch(r"a is 1\.\nTime: \d+\.\d{3} s\nTime: \d+\.\d{3} s\n", written.err.getvalue())


def test_settings_of_the_client_are_its_own(written):
    shown = written.run("SET 'result-format' = 'vertical'; SET timing; RESET result-format; SET;")
    assert "timing" in shown
    assert "Of the client: result-format = table, timing = off" in shown
    assert [statement.strip() for statement in written.session.executed] == ["SET"]
    with pytest.raises(EbbtideError, match="Allowed: table, tableau, vertical, csv, json, markdown"):
        written.run("SET result-format = xml")


def test_places_in_errors_are_those_of_the_script(written):
    with pytest.raises(SqlSyntaxError, match=r" at line 5, column 11\.") as raised:
        written.run("SELECT * FROM few;\n\n-- next\n  SHOW STEPS\n     FROM 'x';\nSET never = 1")
    assert raised.value.__notes__ == ["test.sql, line 4"]
    assert not any("never" in statement for statement in written.session.executed)


def test_script_that_cannot_be_split_executes_nothing(written):
    with pytest.raises(EbbtideError, match="begins at line 2, column 8 is not closed"):
        written.run("SET a = 1;\nSELECT 'torn;")
    assert written.session.executed == []


@pytest.mark.demand("sql-scripts")
def test_source_is_relative_to_the_script_that_says_it(written, tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one.sql").write_text("SOURCE 'two.sql'; SET after = 3;")
    (tmp_path / "inner" / "two.sql").write_text("\ufeffSET two = 2;\n\nSELECT * FROM nowhere;")
    with pytest.raises(SqlError, match=r"There is no table 'nowhere'") as raised:
        written.run("SOURCE 'inner/one.sql';")
    [place] = raised.value.__notes__
    assert place.endswith("two.sql, line 3")
    assert written.session.settings == {"two": "2"}


def test_source_that_is_a_circle_is_refused(written, tmp_path):
    (tmp_path / "circle.sql").write_text("SOURCE 'circle.sql'")
    with pytest.raises(EbbtideError, match=f"nested too deep.*{MOST_NESTED}"):
        written.run("SOURCE 'circle.sql'")


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_source_that_cannot_be_read_is_refused(written, tmp_path, content):
    if content is not None:
        (tmp_path / "x.sql").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        written.run("SOURCE 'x.sql'")


def test_quit_ends_all_scripts(written, tmp_path):
    (tmp_path / "x.sql").write_text("QUIT; SET a = 1")
    written.run("SOURCE 'x.sql'; SET b = 2;")
    assert written.has_quit
    assert written.session.settings == {}


def test_help_lists_statements_settings_and_keys(written):
    shown = written.run("HELP")
    for listed in ("CREATE SOURCE name", "EMIT CHANGES", "SET result-format = vertical", "Ctrl-R", "\\watch"):
        assert listed in shown


@pytest.mark.demand("sql-variables")
def test_variables_stand_for_their_values(tmp_path):
    written = Written(tmp_path, {"table": "few", "a.b": "1"})
    assert "(2 rows)" in written.run("SELECT * FROM ${table}; SET x = '${a.b}'")
    assert written.session.settings == {"x": "1"}


@pytest.mark.parametrize("reference", ["${other}", "${}", "${table }"])
def test_unknown_variables_are_refused_before_anything_is_executed(tmp_path, reference):
    written = Written(tmp_path, {"table": "few"})
    with pytest.raises(EbbtideError, match="is not defined"):
        written.run(f"SELECT * FROM {reference}")
    assert written.session.executed == []


def test_variable_makes_no_second_statement(tmp_path):
    written = Written(tmp_path, {"x": "few; DROP TABLE few"})
    with pytest.raises(EbbtideError, match="not one statement"):
        written.run("SOURCE ${x}")
    with pytest.raises(EbbtideError, match="not one statement"):
        written.run("SELECT * FROM ${x}")


@pytest.mark.parametrize("definitions", [["a"], ["=1"], ["a b=1"], ["a=1", "a=2"]])
def test_definitions_that_are_none_are_refused(definitions):
    with pytest.raises(ConfigError, match="-D"):
        Script.variables(definitions)
    assert Script.variables(["a=b=c", "d="]) == {"a": "b=c", "d": ""}


def test_operations_are_closed_whatever_comes_of_them(written):
    begun = []
    execute = written.session.execute
    written.session.execute = lambda statement: begun.append(execute(statement)) or begun[-1]
    with pytest.raises(EbbtideError):
        written.run("SELECT * FROM few; SELECT * FROM nowhere")
    assert [operation.is_closed for operation in begun] == [True, True]


def test_session_that_cannot_be_opened_is_tried_again(written):
    written.opened_next.insert(0, SqlError("not now"))
    with pytest.raises(EbbtideError, match="not now"):
        written.run("SELECT * FROM few")
    with written.shell:
        assert "(2 rows)" in written.run("SELECT * FROM few")
    assert written.session.is_closed


def test_session_that_is_gone_is_replaced_by_a_new_one(written):
    class Gone(MemorySession):
        def _plan(self, statement, operation):
            raise SessionGoneError("There is no such session.")

    written.opened_next.insert(0, Gone(tables={}))
    with pytest.raises(EbbtideError, match="no such session"):
        written.run("SELECT * FROM few")
    assert "opens a new session" in written.out.getvalue()
    assert "(2 rows)" in written.run("SELECT * FROM few")
    assert written.opened_next == []


def test_messages_have_no_credentials_and_no_control_characters(written):
    shown = written.run("SET a = 's3://user:hunter2@bucket'; SET b = 'x\x1b[2J'")
    assert "hunter2" not in shown
    assert "\x1b" not in shown
