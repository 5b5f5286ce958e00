"""A small application that answers like the API, and misbehaves on request: for clients' tests."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

TOKEN = "plr_test-token"
CALL: dict[str, Any] = {
    "call_id": "01JCT0000000000000000000CA",
    "run_id": "01JCT0000000000000000000RN",
    "tool": "echo",
    "principal": "agent:a",
    "status": "succeeded",
    "decision": {"outcome": "allow", "policies": ["p"], "reasons": [], "bundle_digest": "ab"},
    "result": None,
    "receipt": [],
    "attestation": None,
    "created_at": "2026-01-01T00:00:00.000Z",
    "field_of_tomorrow": 1,
}
APPROVAL = {"id": "01JCT0000000000000000000AP", "state": "pending", "principal": "agent:a", "tool": "fs.write"}
TOKEN_VIEW = {"token_id": "01JCT0000000000000000000TK", "principal": "agent:a", "scopes": ["call"], "label": "l"}


class TinyApi:
    """``seen`` holds every request that arrived; ``stream_cuts`` how often an event stream breaks before it ends."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.stream_cuts = 0
        self.started = False
        self.disconnected = threading.Event()
        self.app = Starlette(
            routes=[
                Route("/v1/tool-calls", self._call, methods=["POST"]),
                Route("/v1/tool-calls/{id}/events", self._events),
                Route("/v1/tool-calls/{id}", self._one_call, methods=["GET", "DELETE"]),
                Route("/v1/tools/{name:path}", self._tool),
                Route("/healthz", self._health),
                Route("/metrics", self._metrics),
                Route("/{path:path}", self._rest, methods=["GET", "POST", "DELETE"]),
            ],
            lifespan=self._lifespan,
        )

    def _lifespan(self, _app: Starlette) -> Any:
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            self.started = True
            yield
            self.started = False

        return lifespan()

    async def _note(self, request: Request) -> Any:
        raw = await request.body()
        body = json.loads(raw) if raw else None
        query = dict(request.query_params)
        headers = dict(request.headers)
        path = request.url.path
        self.seen.append({"method": request.method, "path": path, "query": query, "headers": headers, "body": body})
        return body

    async def _call(self, request: Request) -> Response:
        body = await self._note(request)
        match body["tool"]:
            case "denied":
                return failure(403, 3, "call.denied", {"call_id": CALL["call_id"], "message": "a detail named so"})
            case "asked":
                return failure(202, 4, "call.needs_approval", {"call_id": "c", "approval_id": "01AP"})
            case "failed":
                return failure(422, 1, "call.tool_failed", {}, {**CALL, "status": "failed"})
            case "slow":
                await asyncio.sleep(float(body["arguments"]["seconds"]))
            case _:
                pass
        return success({**CALL, "result": body.get("arguments", body.get("arguments_json"))})

    async def _one_call(self, request: Request) -> Response:
        await self._note(request)
        return success({**CALL, "call_id": request.path_params["id"], "status": "cancelled"})

    async def _events(self, request: Request) -> Response:
        await self._note(request)
        if request.path_params["id"] == "unknown":
            return failure(404, 2, "call.unknown", {})
        after = int(request.headers.get("last-event-id", "0"))
        return StreamingResponse(self._stream(request.path_params["id"], after), media_type="text/event-stream")

    async def _stream(self, call_id: str, after: int) -> AsyncIterator[bytes]:
        try:
            yield b": hello\n\nretry: 1\n\n"
            for seq in range(after + 1, 6):
                yield f"event: step.{seq}\nid: {seq}\n".encode()
                await asyncio.sleep(0)
                yield f'data: {{"seq":\ndata: {seq}}}\n\n'.encode()
                if call_id == "endless":
                    await asyncio.sleep(3600)
                if self.stream_cuts and seq % 2 == 0:
                    self.stream_cuts -= 1
                    yield f'event: half\nid: {seq + 1}\ndata: {{"half'.encode()
                    raise CutOffError
        finally:
            self.disconnected.set()

    async def _tool(self, request: Request) -> Response:
        await self._note(request)
        match request.path_params["name"]:
            case "redirect":
                return RedirectResponse("/v1/tools/echo")
            case "text":
                return PlainTextResponse("<html>")
            case "list":
                return success([1])
            case "wrong":
                return success({"name": 7})
            case "gzip":
                return Response(b"x", headers={"content-encoding": "gzip"})
            case "large":
                return Response(b"x" * 300_000)
            case "flood":
                return StreamingResponse(_flood())
            case "ok-but-500":
                return Response(b'{"ok":true,"data":{"name":"x"}}', status_code=500)
            case "deep":
                return Response(b"[" * 100_000)
            case "bad-exit":
                body = {"ok": False, "error": {"code": "a.b", "message": "m", "hint": 7, "details": "no object"}}
                return Response(json.dumps(body), status_code=500, headers={"palyra-exit-code": "99"})
            case "broken":
                raise CutOffError
            case name:
                return success({"name": name, "tier": "builtin", "capabilities": ["network"]})

    async def _health(self, request: Request) -> Response:
        await self._note(request)
        return success({"status": "ok"})

    async def _metrics(self, _request: Request) -> Response:
        return PlainTextResponse("palyra_calls 1\n")

    async def _rest(self, request: Request) -> Response:
        await self._note(request)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return failure(401, 3, "token.rejected", {})
        method, path = request.method, request.url.path
        match (method, path.split("/")[2:]):
            case ("GET", ["tools"]):
                return success({"tools": [{"name": "echo"}, {"name": "sleep"}]})
            case (_, ["runs", *_]):
                return success({"run_id": CALL["run_id"], "budget": {"calls": {"cap": 3}}}, 201)
            case ("GET", ["approvals"]):
                return success([APPROVAL])
            case ("GET", ["approvals", _]):
                return success(APPROVAL)
            case ("POST", ["approvals", _, "decision"]):
                return success({**APPROVAL, "state": "approved", "decided_by": "user:o"})
            case ("GET", ["pairing", "requests"]):
                return success({"pairings": []})
            case ("POST", ["tokens"]):
                return success({**TOKEN_VIEW, "token": "plr_new"}, 201)
            case ("GET", ["tokens"]):
                return success({"tokens": [TOKEN_VIEW]})
            case ("DELETE", ["tokens", _]):
                return success({**TOKEN_VIEW, "revoked_at": "2026-01-01T00:00:00.000Z"})
            case ("GET", ["status"]):
                return success({"version": "1.2.3", "journal": {"head": 9}})
            case _:
                return failure(503, 6, "daemon.stopping", {})


class CutOffError(Exception):
    """Ends an answer in its middle."""


def success(data: Any, status: int = 200) -> Response:
    return _json({"ok": True, "data": data}, status, 0)


def failure(status: int, exit_code: int, code: str, details: dict[str, Any], data: Any = None) -> Response:
    document: dict[str, Any] = {"ok": False, "error": {"code": code, "message": f"{code}!", "hint": "do so"}}
    if details:
        document["error"]["details"] = details
    if data is not None:
        document["data"] = data
    return _json(document, status, exit_code)


def _json(document: dict[str, Any], status: int, exit_code: int) -> Response:
    headers = {"Palyra-Exit-Code": str(exit_code), "content-type": "application/json"}
    return Response(json.dumps(document).encode(), status_code=status, headers=headers)


async def _flood() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 65536
        # Lets the server notice that its client has gone.
        await asyncio.sleep(0)
