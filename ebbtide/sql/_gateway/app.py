"""The endpoints: each reads its request, asks the session on a thread, and answers."""

from __future__ import annotations

import asyncio
import importlib.metadata
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ebbtide.errors import GatewayError, OperationCanceledError, SqlSyntaxError
from ebbtide.sql import _statements as ast
from ebbtide.sql._gateway.clients import (
    Audit,
    AuditEntry,
    Client,
    Role,
    must_only_read,
    refuse_beyond,
    refuse_configuring,
    refuse_setting,
    refuse_writing,
)
from ebbtide.sql._gateway.guard import CLIENT
from ebbtide.sql._gateway.requests import (
    SHOWN,
    CompleteBody,
    OpenBody,
    Refusal,
    StatementBody,
    answer,
    failure,
    on_thread,
    page_token,
    read_body,
    refuse_long,
    seconds,
)
from ebbtide.sql._gateway.sessions import HostedOperation, HostedSession, Limits, Sessions
from ebbtide.sql._parsing import parse_text
from ebbtide.sql._results import Result, Row

Returned = TypeVar("Returned")
Handler = Callable[[Request], Awaitable[Response]]
TURN_S = 1
"""Additional time that a request may wait behind another one for the same operation."""
OPERATION_BYTES = 8
"""Random bytes of an operation's id."""
JOB = re.compile(r"[A-Za-z0-9_.:-]{1,255}")
"""Form of a job's id in a path."""
OPENAPI = Path(__file__).with_name("openapi.yaml")
"""Describes the endpoints; a test holds it to them."""
CONFIGURING = (ast.SetOption, ast.Reset, ast.Use)


def _refuse_none(statement: str) -> None:
    """Accept any statement."""


class Gateway:
    """Answers the requests of clients.

    Args:
        sessions: Sessions of the clients.
        limits: Limits of the clients.
        read_only: Whether statements that write are refused.
        audit: Records the beginning and the end of each statement.
    """

    def __init__(
        self,
        sessions: Sessions,
        limits: Limits,
        *,
        read_only: bool,
        audit: Audit,
    ) -> None:
        self._sessions = sessions
        self._limits = limits
        self._read_only = read_only
        self._audit = audit

    def app(self) -> Starlette:
        """Return the application of the endpoints."""
        session = "/v1/sessions/{session}"
        operation = f"{session}/operations/{{operation}}"
        endpoints: list[tuple[str, str, Handler]] = [
            ("GET", "/v1/health", self._health),
            ("GET", "/v1/info", self._info),
            ("GET", "/v1/openapi.yaml", self._openapi),
            ("GET", "/v1/sessions", self._list),
            ("POST", "/v1/sessions", self._open),
            ("GET", session, self._of_session(self._describe)),
            ("DELETE", session, self._of_session(self._close)),
            ("POST", f"{session}/configure", self._configure),
            ("POST", f"{session}/heartbeat", self._of_session(self._heartbeat)),
            ("POST", f"{session}/complete", self._of_session(self._complete)),
            ("POST", f"{session}/statements", self._execute),
            ("GET", f"{session}/jobs", self._jobs),
            ("POST", f"{session}/jobs/{{job}}/stop", self._stop_job),
            ("GET", operation, self._of_session(self._status)),
            ("DELETE", operation, self._of_session(self._close_operation)),
            ("GET", f"{operation}/result", self._of_session(self._result)),
            ("GET", f"{operation}/pages/{{token}}", self._of_session(self._page)),
            ("POST", f"{operation}/cancel", self._of_session(self._cancel)),
        ]
        routes = [Route(path, _failing_in_json(handler), methods=[method]) for method, path, handler in endpoints]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _no_such_endpoint})
        app.router.redirect_slashes = False
        return app

    def _of_session(self, handle: Callable[[Request, HostedSession], Awaitable[Response]]) -> Handler:
        """Return a handler that calls another with the session of the request, which is in use until the answer."""

        async def handler(request: Request) -> Response:
            hosted = self._hosted(request)
            with hosted.used():
                return await handle(request, hosted)

        return handler

    # --- without a session

    async def _health(self, request: Request) -> Response:
        self._sessions.refuse_if_ending()
        return answer({"status": "ok"})

    async def _info(self, request: Request) -> Response:
        client = _client(request)
        return answer(
            {
                "product": "ebbtide",
                "version": importlib.metadata.version("ebbtide"),
                "client": client.name,
                "role": client.role,
                "read_only": self._read_only or client.role is Role.READER,
                "sessions": len(self._sessions),
                "limits": asdict(self._limits),
            }
        )

    async def _openapi(self, request: Request) -> Response:
        text = await on_thread(OPENAPI.read_text, "utf-8")
        return Response(text, media_type="application/yaml")

    # --- sessions

    async def _list(self, request: Request) -> Response:
        seen = self._sessions.seen_by(_client(request))
        return answer({"sessions": [_listed(hosted) for hosted in seen]})

    async def _open(self, request: Request) -> Response:
        body = await self._body(request, OpenBody)
        for key in body.settings:
            refuse_setting(key)
        hosted = await on_thread(self._sessions.open, body.settings, _client(request))
        described = await on_thread(self._described, hosted)
        return answer(described, HTTPStatus.CREATED)

    async def _describe(self, request: Request, hosted: HostedSession) -> Response:
        return answer(await on_thread(self._described, hosted))

    async def _close(self, request: Request, hosted: HostedSession) -> Response:
        await on_thread(self._sessions.close, hosted)
        return answer({"session": hosted.id})

    async def _configure(self, request: Request) -> Response:
        """Execute SET, RESET or USE, and wait for the end."""
        body = await self._body(request, StatementBody)
        async with self._begun(request, body.statement, _refuse_all_but_configuring) as (hosted, operation):
            await self._rows_of(hosted, operation)
            return answer(await on_thread(self._described, hosted))

    async def _heartbeat(self, request: Request, hosted: HostedSession) -> Response:
        return answer({"session": hosted.id, "idle_timeout_s": self._limits.idle_timeout_s})

    async def _complete(self, request: Request, hosted: HostedSession) -> Response:
        body = await self._body(request, CompleteBody)
        refuse_long("text", body.text, self._limits.statement_bytes)
        offset = min(body.offset, len(body.text))
        completions = await on_thread(hosted.session.complete, body.text, offset)
        listed = [asdict(completion) for completion in completions]
        return answer({"completions": listed})

    # --- operations

    async def _execute(self, request: Request) -> Response:
        body = await self._body(request, StatementBody)
        async with self._begun(request, body.statement) as (_, operation):
            return answer(_of_operation(operation), HTTPStatus.CREATED)

    async def _status(self, request: Request, hosted: HostedSession) -> Response:
        return answer(await on_thread(_of_operation, _operation(request, hosted)))

    async def _result(self, request: Request, hosted: HostedSession) -> Response:
        operation = _operation(request, hosted)
        timeout_s = seconds(request, self._limits.wait_s)
        result = await _in_turn(operation, timeout_s, operation.operation.result)
        if result is None:
            return answer(_of_operation(operation), HTTPStatus.ACCEPTED)
        return answer({"kind": result.kind, "columns": _columns(result), "message": result.message})

    async def _page(self, request: Request, hosted: HostedSession) -> Response:
        operation = _operation(request, hosted)
        token = page_token(request)
        timeout_s = seconds(request, self._limits.wait_s)
        page = await _in_turn(operation, timeout_s, partial(operation.pages.page, token))
        if page is None:
            return answer(_of_operation(operation), HTTPStatus.ACCEPTED)
        return answer({"rows": page.rows, "next": page.next, "position": page.position, "notice": page.notice})

    async def _cancel(self, request: Request, hosted: HostedSession) -> Response:
        operation = _operation(request, hosted)
        await on_thread(operation.operation.cancel)
        return answer(await on_thread(_of_operation, operation))

    async def _close_operation(self, request: Request, hosted: HostedSession) -> Response:
        operation = _operation(request, hosted)
        await on_thread(hosted.close_operation, operation.id)
        return answer({"operation": operation.id})

    # --- jobs

    async def _jobs(self, request: Request) -> Response:
        async with self._begun(request, "SHOW JOBS") as (hosted, operation):
            return answer(await self._rows_of(hosted, operation))

    async def _stop_job(self, request: Request) -> Response:
        job: str = request.path_params["job"]
        if not JOB.fullmatch(job):
            allowed = "1 to 255 letters, digits, _ . : -"
            next_step = "SHOW JOBS lists them."
            what = "The job's id is not usable."
            raise Refusal(HTTPStatus.BAD_REQUEST, what, job[:SHOWN], allowed, next_step)
        async with self._begun(request, f"STOP JOB '{job}'") as (hosted, operation):
            return answer(await self._rows_of(hosted, operation))

    # --- what they share

    def _hosted(self, request: Request) -> HostedSession:
        return self._sessions.get(request.path_params["session"], _client(request))

    async def _body(self, request: Request, kind: type[Any]) -> Any:
        return await read_body(request, kind, self._limits.statement_bytes)

    @asynccontextmanager
    async def _begun(
        self, request: Request, statement: str, judge: Callable[[str], None] = _refuse_none
    ) -> AsyncIterator[tuple[HostedSession, HostedOperation]]:
        """Record a statement and begin to execute it; the session is in use until the request is answered.

        Args:
            request: Request of the statement.
            statement: Text of the statement.
            judge: Refuses statements that the endpoint does not take.
        """
        address = request.client.host if request.client else ""
        session: str = request.path_params["session"]
        operation_id = secrets.token_hex(OPERATION_BYTES)
        entry = AuditEntry(
            self._audit,
            _client(request),
            address,
            session,
            operation_id,
            statement,
        )
        async with entry.refusals():
            self._sessions.refuse_if_ending()
            refuse_long("statement", statement, self._limits.statement_bytes)
            hosted = self._hosted(request)
        with hosted.used():
            async with entry.refusals():
                await on_thread(judge, statement)
                await on_thread(self._judge, hosted.client.role, statement)
            await on_thread(entry.begin)  # raises, so that no statement is executed without a record
            async with entry.refusals():
                operation = await on_thread(hosted.execute, statement, operation_id)
            operation.operation.when_over(lambda: entry.end(operation.outcome))
            yield hosted, operation

    def _judge(self, role: Role, statement: str) -> None:
        """Refuse a statement that a client may not execute.

        Raises:
            GatewayError: the role, the gateway or the operator does not allow it.
        """
        try:
            asked = parse_text(statement)
        except SqlSyntaxError:
            if self._read_only:
                refuse_writing(statement)
            return  # the operation raises this error
        refuse_beyond(role, asked)
        refuse_configuring(asked)
        if self._read_only or must_only_read(role, asked):
            refuse_writing(statement)

    async def _rows_of(self, hosted: HostedSession, operation: HostedOperation) -> dict[str, Any]:
        """Return message, columns and rows of a short statement once it has ended, and forget the operation."""
        try:
            return await on_thread(_all_of, operation, self._limits.wait_s)
        finally:
            await on_thread(hosted.close_operation, operation.id)

    def _described(self, hosted: HostedSession) -> dict[str, Any]:
        return {
            "session": hosted.id,
            "catalog": hosted.session.catalog_name,
            "settings": dict(hosted.session.settings),
            "idle_timeout_s": self._limits.idle_timeout_s,
            "operations": [_of_operation(operation) for operation in list(hosted.operations.values())],
        }


def _all_of(operation: HostedOperation, timeout_s: float) -> dict[str, Any]:
    """Return message, columns and rows of a short statement."""
    result = operation.operation.result(timeout_s)
    if result is None:
        raise _too_late(timeout_s)
    rows: list[Row] = []
    token = 0 if result.columns else None
    while token is not None:
        page = operation.pages.page(token, timeout_s)
        if page is None:
            raise _too_late(timeout_s)
        rows += page.rows
        token = page.next
    return {"message": result.message, "columns": _columns(result), "rows": rows}


def _too_late(timeout_s: float) -> OperationCanceledError:
    return OperationCanceledError.of(
        "The statement was not over in time; it is cancelled.",
        allowed=f"{timeout_s:g} s",
        next_step="Try again once other statements of the session are over.",
    )


async def _in_turn(
    operation: HostedOperation, timeout_s: float, wait: Callable[[float], Returned | None]
) -> Returned | None:
    """Wait for a part of an operation's result, one request at a time; None if the time is up."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + timeout_s
    try:
        await asyncio.wait_for(operation.turn.acquire(), timeout_s + TURN_S)
    except TimeoutError:
        return None
    try:
        left_s = max(ends_at - loop.time(), 0)
        return await on_thread(wait, left_s)
    finally:
        operation.turn.release()


def _client(request: Request) -> Client:
    client: Client = request.scope[CLIENT]
    return client


def _operation(request: Request, hosted: HostedSession) -> HostedOperation:
    return hosted.operation(request.path_params["operation"])


def _listed(hosted: HostedSession) -> dict[str, Any]:
    return {
        "session": hosted.shown_id,
        "client": hosted.client.name,
        "role": hosted.client.role,
        "operations": len(hosted.operations),
    }


def _columns(result: Result) -> list[dict[str, str]]:
    return [asdict(column) for column in result.columns]


def _of_operation(operation: HostedOperation) -> dict[str, Any]:
    return {"operation": operation.id, "status": operation.operation.status}


def _refuse_all_but_configuring(statement: str) -> None:
    parsed = parse_text(statement)
    if not isinstance(parsed, CONFIGURING):
        raise GatewayError.of(
            "This statement does not configure a session.",
            got=type(parsed).__name__,
            allowed="SET, RESET, USE",
            next_step="Send other statements to /statements.",
        )


def _failing_in_json(handler: Handler) -> Handler:
    """Return a handler that answers with the error of another."""

    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - `failure` logs unexpected errors
            return failure(error)

    return answered


async def _no_such_endpoint(request: Request, error: Exception) -> Response:
    """Answer a request whose path or method has no endpoint."""
    if not isinstance(error, HTTPException):
        return failure(error)
    got = f"{request.method} {request.scope['path']}"[:SHOWN]
    status = HTTPStatus(error.status_code)
    refusal = Refusal(
        status,
        "There is no such endpoint.",
        got,
        "those of docs/reference/sql-gateway.md",
    )
    made = failure(refusal)
    made.headers.update(error.headers or {})
    return made
