"""The record of what clients execute: each statement, how it ended, and each that was refused."""

import json
import os
import threading

import pytest
from frame.waiting import until
from statements.gateway_support import TOKEN, serving

from ebbtide.errors import ConfigError
from ebbtide.sql import Limits, read_clients
from ebbtide.sql._gateway.clients import Audit
from ebbtide.sql._operations import RunningOperation

UNREADABLE = "(cannot be read, and may hold a credential)"


READERS = "token-of-a-reader-for-tests"
READER = {"Authorization": f"Bearer {READERS}"}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "audit.jsonl"


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def outcomes(file):
    """Return what is recorded of each statement: its text and its outcomes."""
    found = {}
    for line in lines(file):
        text, outcome = line.get("statement"), line["outcome"]
        first, *_ = found.setdefault(line["operation"], [text])
        assert text in (None, first)
        found[line["operation"]].append(outcome)
    return [tuple(entry) for entry in found.values()]


def executed(gateway, session, statement):
    operation = gateway.execute(session, statement)
    gateway.call("GET", f"{operation}/result?timeout_s=20")
    return operation


def test_statement_has_a_line_before_it_begins_and_one_at_its_end(file):
    with serving(audit=file) as gateway:
        session = gateway.open()
        executed(gateway, session, "SELECT id FROM orders LIMIT 1")
        executed(gateway, session, "SELECT * FROM nowhere")
        executed(gateway, session, "SELECT * FROM broken")
        executed(gateway, session, "SELECT 'open")
        never = gateway.execute(session, "SELECT * FROM never")
        gateway.call("POST", f"{never}/cancel")
        gateway.call("POST", f"{session}/configure", {"statement": "SET max-rows = 5"})
        gateway.call("GET", f"{session}/jobs")
        gateway.call("POST", f"{session}/jobs/job-1/stop")
        until(lambda: len(lines(file)) == 16)
    assert outcomes(file) == [
        ("SELECT id FROM orders LIMIT 1", "begun", "done"),
        ("SELECT * FROM nowhere", "begun", "failed: SqlError"),
        ("SELECT * FROM broken", "begun", "failed: ValueError"),
        ("SELECT 'open", "begun", "failed: SqlSyntaxError"),
        ("SELECT * FROM never", "begun", "cancelled"),
        ("SET max-rows = 5", "begun", "done"),
        ("SHOW JOBS", "begun", "done"),
        ("STOP JOB 'job-1'", "begun", "done"),
    ]
    first = lines(file)[0]
    last = next(line for line in lines(file)[1:] if line["operation"] == first["operation"])
    assert first == {
        "at": first["at"],
        "client": "default",
        "role": "owner",
        "address": "127.0.0.1",
        "session": session.rpartition("/")[2][:8],
        "operation": first["operation"],
        "outcome": "begun",
        "statement": "SELECT id FROM orders LIMIT 1",
        "statement_bytes": 29,
    }
    assert first["at"].endswith("+00:00")
    assert never.rpartition("/")[2] in {line["operation"] for line in lines(file)}
    assert set(last) == set(first) - {"statement", "statement_bytes"} | {"seconds"}
    assert file.stat().st_mode & 0o777 == 0o600


def test_refused_statement_is_recorded_with_who_sent_it(file, tmp_path):
    known = tmp_path / "clients"
    known.touch(0o600)
    known.write_text(f"reader rita {READERS}\n")
    limits = Limits(statement_bytes=100, operations=1)
    with serving(token=TOKEN, clients=read_clients(known), audit=file, limits=limits) as gateway:
        opened = gateway.call("POST", "/v1/sessions", {}, READER).json["session"]
        session = f"/v1/sessions/{opened}"
        sent = [
            ("statements", "DROP TABLE orders", 403),
            ("statements", "SET 'spark.jars' = 'http://192.0.2.1'", 403),
            ("statements", "VACUUM orders", 403),
            ("configure", "SELECT 1", 403),
            ("statements", f"SELECT '{'x' * 100}'", 413),
            ("statements", "SELECT * FROM never", 201),
            ("statements", "SHOW TABLES", 429),
        ]
        for path, statement, status in sent:
            reply = gateway.call("POST", f"{session}/{path}", {"statement": statement}, READER)
            assert reply.status == status, statement
        assert gateway.call("POST", f"{session}/statements", {"statement": "SELECT 2"}).status == 404
        assert (
            gateway.call("POST", f"{session}/statements", {"statement": "SELECT 3"}, {"Authorization": ""}).status
            == 401
        )
        gateway.call("DELETE", session, headers=READER)
        until(lambda: len(lines(file)) == 10)
    assert outcomes(file) == [
        ("DROP TABLE orders", "refused: GatewayError"),
        ("SET 'spark.jars' = 'http://192.0.2.1'", "refused: GatewayError"),
        ("VACUUM orders", "refused: GatewayError"),
        ("SELECT 1", "refused: GatewayError"),
        (f"SELECT '{'x' * 100}'", "refused: GatewayError"),
        ("SELECT * FROM never", "begun", "cancelled"),
        ("SHOW TABLES", "begun", "refused: GatewayBusyError"),
        ("SELECT 2", "refused: SessionGoneError"),
    ]
    by_client = {(line["client"], line["role"], line["session"]) for line in lines(file)}
    assert by_client == {("rita", "reader", opened[:8]), ("default", "owner", opened[:8])}


RECORDED = {
    "SET s3.secret.key = hunter2 hunter2": "SET s3.secret.key = ***",
    "CREATE SOURCE s (..) WITH ('password' = 'it''s hunter2')": "CREATE SOURCE s (..) WITH ('password' = ***)",
    "CREATE SOURCE s (..) WITH ('password' = 'a, hunter2', path = 'in', token = x)": "CREATE SOURCE s (..) WITH ('password' = ***, path = 'in', token = ***)",
    'CREATE SOURCE s (..) WITH (\'sasl.password\' = "a\\"hunter2")': "CREATE SOURCE s (..) WITH ('sasl.password' = ***)",
    "CREATE SOURCE s (..) WITH (path = 's3://user:hunter2@bucket/x')": "CREATE SOURCE s (..) WITH (path = 's3://***@bucket/x')",
    "CREATE TABLE t USING jdbc OPTIONS ('password' 'hunter2', url 'x')": "CREATE TABLE t USING jdbc OPTIONS ('password' '***', url 'x')",
    "CREATE TABLE t USING jdbc OPTIONS (password /* the old one */ = 'hunter2')": "CREATE TABLE t USING jdbc OPTIONS (password /* the old one */ = '***')",
    "SELECT * FROM csv.`s3://key:hunter2@bucket/in`": "SELECT * FROM csv.`s3://***@bucket/in`",
    "SELECT 1;\n  SET a.secret = 'hunter2';\nSELECT 2": "SELECT 1;\n  SET a.secret = ***;\nSELECT 2",
    "SELECT 'password=hunter2'": "SELECT 'password=***'",
    "SET my-token = it's hunter2's": "SET my-token = ***",
    "SET token = 'hunter2": UNREADABLE,
    f"SELECT '{TOKEN}'": "SELECT '***'",
    "SELECT '\u202e\n\x00ü'": "SELECT '\u202e\n\x00ü'",
    f"SELECT '{'x' * 3000}'": f"SELECT '{'x' * 1992}",
    "SELECT * FROM orders WHERE id = 3 AND name = 'x'": "SELECT * FROM orders WHERE id = 3 AND name = 'x'",
    "SELECT 'never closed": "SELECT 'never closed",
    "": "",
}  # fmt: skip


def test_statements_are_recorded_without_credentials_and_each_on_one_line(file):
    with serving(token=TOKEN, audit=file) as gateway:
        session = gateway.open()
        for statement in RECORDED:
            gateway.call("DELETE", gateway.execute(session, statement))
    begun = [line for line in lines(file) if "statement" in line]
    assert [line["statement"] for line in begun] == list(RECORDED.values())
    assert [line["statement_bytes"] for line in begun] == [len(statement.encode()) for statement in RECORDED]
    assert "hunter2" not in file.read_text()
    assert TOKEN not in file.read_text()


def test_audit_that_cannot_be_written_is_said_as_the_gateway_starts(tmp_path):
    with (
        pytest.raises(ConfigError, match=r"The audit's file cannot be written\. Got: .*No such file"),
        serving(audit=tmp_path / "none" / "audit"),
    ):
        pass


def test_statement_that_cannot_be_recorded_is_not_executed(tmp_path, caplog):
    folder = tmp_path / "gone"
    folder.mkdir()
    with serving(audit=folder / "audit") as gateway:
        session = gateway.open()
        (folder / "audit").unlink()
        folder.rmdir()
        for statement in ("SELECT 'x'", "SELECT 'open"):
            reply = gateway.call("POST", f"{session}/statements", {"statement": statement})
            assert (reply.status, reply.error["class"]) == (503, "GatewayError")
            assert (
                "cannot be recorded, so it is not executed. Got: No such file or directory." in reply.error["message"]
            )
            assert str(tmp_path) not in reply.error["message"]
        assert gateway.call("GET", f"{session}/jobs").status == 503
        assert gateway.sessions[0].operations == []
        folder.mkdir()
        executed(gateway, session, "SELECT 'y'")
    assert lines(folder / "audit")[0]["statement"] == "SELECT 'y'"
    assert "No such file" in caplog.text


def test_end_that_cannot_be_recorded_is_logged(tmp_path, caplog):
    folder = tmp_path / "gone"
    folder.mkdir()
    with serving(audit=folder / "audit") as gateway:
        operation = gateway.execute(gateway.open(), "SELECT * FROM never")
        (folder / "audit").unlink()
        folder.rmdir()
        gateway.call("POST", f"{operation}/cancel")
        until(lambda: "is not in the audit: cancelled" in caplog.text)
    assert f"The end of operation {operation.rpartition('/')[2]}" in caplog.text


def test_line_that_a_full_disk_cut_does_not_spoil_the_next(file, monkeypatch):
    write = os.write
    with serving(audit=file) as gateway:
        session = gateway.open()
        with monkeypatch.context() as cut:
            cut.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
            reply = gateway.call("POST", f"{session}/statements", {"statement": "SHOW TABLES"})
            assert reply.status == 503
        executed(gateway, session, "SELECT 'y'")
    torn, whole, *_ = file.read_text().splitlines()
    assert (torn, json.loads(whole)["statement"]) == ('{"at": ', "SELECT 'y'")


def test_lines_of_many_at_once_are_whole(file):
    written = Audit(file)
    long = "x" * 20_000

    def write_many(number):
        for _ in range(20):
            written.write({"number": number, "text": long})

    threads = [threading.Thread(target=write_many, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(line["number"] for line in lines(file)) == sorted(list(range(8)) * 20)


@pytest.mark.parametrize("is_over", [False, True])
def test_end_of_an_operation_is_reported_once(is_over):
    may_end, reported = threading.Event(), []
    operation = RunningOperation(on_cancel=lambda id_: None, on_close=lambda id_: None)
    if is_over:
        may_end.set()

    def fails():
        may_end.wait()
        raise ValueError("x")

    operation.start(fails)
    if is_over:
        until(lambda: operation.status == "FAILED" and operation._is_over.is_set())
    operation.when_over(lambda: reported.append(operation.status))
    may_end.set()
    until(lambda: reported)
    assert reported == ["FAILED"]
