"""docs/reference/sql-gateway.md and its OpenAPI description, held to a real gateway."""

import json
import os
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml
from statements.gateway_support import TOKEN, serving

from ebbtide.sql import Limits, ResultKind
from ebbtide.sql._gateway.app import Gateway
from ebbtide.sql._gateway.clients import Audit
from ebbtide.sql._gateway.requests import STATUSES
from ebbtide.sql._gateway.sessions import Sessions
from ebbtide.sql._results import CompletionKind, OperationStatus

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "sql-gateway.md").read_text(encoding="utf-8")
DESCRIPTION = (ROOT / "ebbtide" / "sql" / "_gateway" / "openapi.yaml").read_text(encoding="utf-8")
OPENAPI = yaml.safe_load(DESCRIPTION)
FENCE = re.compile(r"^```(sh|json)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ANY = "…"
"""Stands in the page for a text that differs each time."""


def endpoints():
    """(method, path) of all that the app serves, but for HEAD."""
    app = Gateway(Sessions(None, Limits(), print), Limits(), read_only=False, audit=Audit()).app()
    return {(method, route.path) for route in app.routes for method in route.methods - {"HEAD"}}


def examples():
    """The page's commands, each with the JSON that it is said to print; None: nothing is said."""
    blocks = FENCE.findall(PAGE)
    for number, (language, text) in enumerate(blocks):
        if language == "sh":
            after = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
            yield text, json.loads(after[1]) if after[0] == "json" else None


def fits(printed, said):
    """Return whether an output is the one of the page."""
    if said == ANY:
        return isinstance(printed, str) and bool(printed)
    if isinstance(said, dict):
        return (
            isinstance(printed, dict)
            and printed.keys() == said.keys()
            and all(fits(printed[name], said[name]) for name in said)
        )
    if isinstance(said, list):
        return isinstance(printed, list) and len(printed) == len(said) and all(map(fits, printed, said))
    return printed == said


def test_examples_of_the_page_print_what_it_says(tmp_path):
    commands = list(examples())
    script = "".join(f"{{\n{command}}} > {number}.out\n" for number, (command, _) in enumerate(commands))
    with serving(token=TOKEN) as gateway:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=os.environ | {"URL": gateway.url, "GATEWAY_TOKEN": TOKEN, "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert len(commands) > 15
    for number, (command, said) in enumerate(commands):
        printed = (tmp_path / f"{number}.out").read_text(encoding="utf-8")
        assert said is None or fits(json.loads(printed), said), f"{command}{printed}"
    assert (tmp_path / "openapi.yaml").read_text(encoding="utf-8") == DESCRIPTION
    assert (tmp_path / "auth").stat().st_mode & 0o777 == 0o600


def test_examples_send_every_request_that_there_is():
    sent = PAGE.replace("$SESSION", "/v1/sessions/{session}").replace(
        "$OPERATION", "/v1/sessions/{session}/operations/{operation}"
    )
    sent = sent.replace("/jobs/job-1/", "/jobs/{job}/").replace("/pages/0", "/pages/{token}").replace("$URL", "")
    for method, path in endpoints():
        lines = [
            line
            for line in sent.splitlines()
            if line.startswith("curl") and re.search(rf'"{re.escape(path)}["?]', line)
        ]
        explicit = {"DELETE": "-X DELETE", "POST": "-X POST"}.get(method, "")
        assert any(explicit in line or (method == "POST" and "--json" in line) for line in lines), (method, path)


def test_page_lists_every_status():
    table = PAGE.partition("## Status codes")[2].partition("## Security")[0]
    assert {str(int(status)) for status in STATUSES.values()} <= set(re.findall(r"\b\d{3}\b", table))


def test_description_has_every_endpoint():
    described = {
        (method.upper(), path) for path, item in OPENAPI["paths"].items() for method in item if method != "parameters"
    }
    assert described == endpoints()


def test_description_has_every_kind():
    schemas = OPENAPI["components"]["schemas"]
    assert set(schemas["Operation"]["properties"]["status"]["enum"]) == set(OperationStatus)
    assert set(schemas["Result"]["properties"]["kind"]["enum"]) == set(ResultKind)
    kinds = schemas["Completions"]["properties"]["completions"]["items"]["properties"]["kind"]["enum"]
    assert set(kinds) == set(CompletionKind)


def schema_of(method, template, status):
    """The schema of an answer."""
    responses = OPENAPI["paths"][template][method.lower()]["responses"]
    reference = responses.get(str(status), responses["default"])["$ref"]
    name = reference.rpartition("/")[2]
    schema = OPENAPI["components"]["responses"][name]["content"]["application/json"]["schema"]
    return schema | {"components": OPENAPI["components"]}


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT id FROM orders",
        "SELECT id FROM orders EMIT CHANGES",
        "SET a = 1",
        "SELECT * FROM nowhere",
        "SELECT * FROM never",
    ],
)
def test_answers_are_as_described(statement):
    operation_template = "/v1/sessions/{session}/operations/{operation}"
    with serving() as gateway:
        session = gateway.open(a="1")
        template = "/v1/sessions/{session}"
        operation = gateway.execute(session, statement)
        requests = [
            ("GET", "/v1/health", "/v1/health", None),
            ("GET", "/v1/info", "/v1/info", None),
            ("POST", "/v1/sessions", "/v1/sessions", {}),
            ("POST", "/v1/sessions", "/v1/sessions", {"settings": 1}),
            ("GET", template, session, None),
            ("POST", f"{template}/heartbeat", f"{session}/heartbeat", None),
            ("POST", f"{template}/complete", f"{session}/complete", {"text": "or", "offset": 2}),
            ("POST", f"{template}/statements", f"{session}/statements", {"statement": "SHOW TABLES"}),
            ("GET", operation_template, operation, None),
            ("GET", f"{operation_template}/result", f"{operation}/result?timeout_s=0.5", None),
            ("GET", f"{operation_template}/pages/{{token}}", f"{operation}/pages/0?timeout_s=0.5", None),
            ("GET", f"{operation_template}/pages/{{token}}", f"{operation}/pages/9?timeout_s=0.5", None),
            ("POST", f"{operation_template}/cancel", f"{operation}/cancel", None),
            ("DELETE", operation_template, operation, None),
            ("POST", f"{template}/configure", f"{session}/configure", {"statement": "SET a = 1"}),
            ("GET", f"{template}/jobs", f"{session}/jobs", None),
            ("POST", f"{template}/jobs/{{job}}/stop", f"{session}/jobs/job-1/stop", None),
            ("POST", f"{template}/jobs/{{job}}/stop", f"{session}/jobs/none/stop", None),
            ("DELETE", template, session, None),
            ("DELETE", template, session, None),
        ]
        for method, described, path, body in requests:
            reply = gateway.call(method, path, body)
            jsonschema.validate(reply.json, schema_of(method, described, reply.status))
