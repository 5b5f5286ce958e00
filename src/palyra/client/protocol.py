"""The HTTP API as values: requests out, responses in, and the meaning of each response.

An operation is a generator that yields a Request, receives the Response, and returns a typed result. It does no I/O, so
the blocking, the asyncio and the in-process client are the same code with different transports.
"""

from collections.abc import Generator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from palyra.client.views import CallView
from palyra.errors import ExitCode, Failed, InvalidInput, LimitExceeded, NeedsApproval, RemoteError, Unavailable
from palyra.limits import KIB, MIB
from palyra.secret import Secret

T = TypeVar("T")
Headers: TypeAlias = tuple[tuple[str, str], ...]

EXIT_CODE_HEADER = "palyra-exit-code"
_MAX_QUOTED_CHARS = 200


class ClientLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of what a client accepts from a server, even a hostile one."""

    # A result of 1 MiB may grow sixfold when escaped. This API never sends more.
    max_response_bytes: int = 8 * MIB
    max_header_bytes: int = 64 * KIB
    # One event carries one journal payload.
    max_event_bytes: int = 256 * KIB
    # A silent stream is opened again where it left off, in case the network forgot it.
    stream_idle_seconds: float = 60.0
    # Reconnections in a row that bring no event before the stream is given up.
    max_stream_resumes: int = 5
    max_resume_delay_seconds: float = 5.0
    max_idle_connections: int = 8
    # Beyond this many exchanges at once, callers wait for a free connection.
    max_connections: int = 64


DEFAULT_LIMITS = ClientLimits()
DEFAULT_TIMEOUT_SECONDS = 30.0


class ConnectFailed(Unavailable):
    code = "client.connect_failed"
    hint = "is the daemon running? `palyra up` starts one"


class ConnectionLost(Unavailable):
    code = "client.connection_lost"
    hint = "the request may have been carried out: look at its state before you repeat it"


class ClientTimeout(LimitExceeded):
    code = "client.timeout"
    hint = "the daemon did not answer in time; the request may still be carried out"


class ResponseTooLarge(LimitExceeded):
    code = "client.response_too_large"
    hint = "ask for less at once"


class BadAnswer(Failed):
    code = "client.bad_answer"
    hint = "the server at this address does not speak this version of Palyra's API"


class BadRequestValue(InvalidInput):
    code = "client.bad_value"
    hint = "use the ids and names that the API gave you"


class ApiError(RemoteError):
    """A failure the server reported. ``data`` is the rest of its answer: for a call that failed, its CallView."""

    data: Any = None

    @property
    def call(self) -> CallView | None:
        return None if self.data is None else convert_view(self.data, CallView)

    @property
    def call_id(self) -> str:
        return self._text_detail("call_id")

    def _text_detail(self, name: str) -> str:
        value = self.details.get(name)
        return value if isinstance(value, str) else ""


class NeedsApprovalError(ApiError, NeedsApproval):
    """A person must approve first. Show ``approval_id`` to one, then make the same call again."""

    @property
    def approval_id(self) -> str:
        return self._text_detail("approval_id")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """``patience_ms`` is how much longer than usual an answer may take, since a call runs or a person thinks."""

    method: str
    path: str
    body: bytes = b""
    headers: Headers = ()
    token: Secret | None = None
    patience_ms: int = 0

    @property
    def is_repeatable(self) -> bool:
        return self.method == "GET"

    def with_token(self, token: Secret | None) -> "Request":
        return self if token is None else msgspec.structs.replace(self, token=token)

    def wire_headers(self, host: str) -> list[tuple[bytes, bytes]]:
        headers = [("host", host), ("user-agent", "palyra-python"), ("accept-encoding", "identity"), *self.headers]
        if self.body and header_of(self.headers, "content-type") is None:
            headers.append(("content-type", "application/json"))
        if self.body or self.method not in ("GET", "DELETE"):
            headers.append(("content-length", str(len(self.body))))
        if self.token is not None:
            headers.append(("authorization", f"Bearer {self.token.reveal()}"))
        return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]


class Response(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        return header_of(self.headers, name)


class AsyncByteStream(Protocol):
    """An answer, read as it comes. ``chunk`` returns bytes, which are empty at a clean end."""

    status: int
    headers: Headers

    async def chunk(self) -> bytes: ...

    async def close(self) -> None: ...


class AsyncTransportPort(Protocol):
    """Carries requests for a client; the blocking client runs it in a thread."""

    async def open(self) -> None: ...

    async def exchange(self, request: Request) -> Response: ...

    async def open_stream(self, request: Request) -> AsyncByteStream: ...

    async def close(self) -> None: ...


Operation: TypeAlias = Generator[Request, Response, T]


def header_of(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key.lower() == name), None)


def path_of(*segments: str, query: Mapping[str, str | None] | None = None) -> str:
    """Join the segments, each quoted, so that an id from outside stays one segment of the path."""
    for segment in segments:
        if segment in ("", ".", ".."):
            raise BadRequestValue(f"{segment!r} cannot be part of an address")
    try:
        path = "/" + "/".join(quote(segment, safe="") for segment in segments)
    except UnicodeEncodeError as error:
        raise BadRequestValue("half a surrogate pair cannot be part of an address") from error
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def api_path(*segments: str, query: Mapping[str, str | None] | None = None) -> str:
    return path_of("v1", *segments, query=query)


def get(path: str) -> Request:
    return Request(method="GET", path=path, headers=(("accept", "application/json"),))


def post(path: str, body: Mapping[str, Any], *, patience_ms: int = 0) -> Request:
    return send_json("POST", path, body, patience_ms=patience_ms)


def delete(path: str) -> Request:
    return Request(method="DELETE", path=path)


def send_json(method: str, path: str, body: Mapping[str, Any], *, patience_ms: int = 0) -> Request:
    """Encode the body without its fields that are None."""
    given = {name: value for name, value in body.items() if value is not None}
    try:
        encoded = msgspec.json.encode(given)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise BadRequestValue(f"this cannot be sent as JSON: {error}") from error
    return Request(
        method=method, path=path, body=encoded, headers=(("accept", "application/json"),), patience_ms=patience_ms
    )


def read_answer(response: Response) -> Any:
    """Return the ``data`` of a success. Raise a failure with the server's code, hint and exit code."""
    try:
        document = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(f"the server answered {response.status} without a JSON document") from error
    match document:
        case {"ok": True, "data": data} if 200 <= response.status < 300:
            return data
        case {"ok": False, "error": {"code": str(), "message": str()} as error}:
            raise remote_error(error, response, document.get("data"))
        case _:
            raise BadAnswer(f"the server answered {response.status} with an unknown document")


def remote_error(error: dict[str, Any], response: Response, data: Any = None) -> ApiError:
    exit_code = _exit_code(response)
    kind = NeedsApprovalError if exit_code is ExitCode.NEEDS_APPROVAL else ApiError
    hint = error.get("hint")
    raised = kind(
        error["message"],
        remote_code=error["code"],
        hint=hint if isinstance(hint, str) else "",
        exit_code=exit_code,
        http_status=response.status,
    )
    details = error.get("details")
    # Set, not passed: a remote detail may have the name of a parameter.
    raised.details = details if isinstance(details, dict) else {}
    raised.data = data
    return raised


_EXIT_CODE_BY_STATUS = {
    202: ExitCode.NEEDS_APPROVAL,
    400: ExitCode.USAGE,
    403: ExitCode.DENIED,
    429: ExitCode.LIMIT,
    503: ExitCode.UNAVAILABLE,
}


def _exit_code(response: Response) -> ExitCode:
    sent = response.header(EXIT_CODE_HEADER)
    known = {str(int(code)): code for code in ExitCode if code is not ExitCode.DONE}
    return known.get(sent or "", _EXIT_CODE_BY_STATUS.get(response.status, ExitCode.FAILED))


def convert_view(data: Any, view: type[T]) -> T:
    """Convert an object to a typed view. Its ``document`` keeps the whole object: newer servers may send more."""
    if not isinstance(data, dict):
        raise BadAnswer(f"the server's answer is not the object of a {view.__name__}")
    try:
        return msgspec.convert({**data, "document": data}, view)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"the server's {view.__name__} is malformed: {error}"[:_MAX_QUOTED_CHARS]) from error


def convert_views(data: Any, key: str, view: type[T]) -> tuple[T, ...]:
    """Convert a list, bare or as the member ``key`` of an object."""
    items = data.get(key) if isinstance(data, dict) else data
    if not isinstance(items, list):
        raise BadAnswer(f"the server's answer holds no list of {key}")
    return tuple(convert_view(item, view) for item in items)


def fetch_view(request: Request, view: type[T]) -> Operation[T]:
    return convert_view(read_answer((yield request)), view)


def fetch_views(request: Request, key: str, view: type[T]) -> Operation[tuple[T, ...]]:
    return convert_views(read_answer((yield request)), key, view)


def take_secret(data: Any, name: str) -> tuple[Secret, dict[str, Any]]:
    """Split an answer into the secret that it shows once, and the other members."""
    if not isinstance(data, dict) or not isinstance(data.get(name), str):
        raise BadAnswer(f"the server's answer does not show the {name}")
    return Secret(data[name]), {key: value for key, value in data.items() if key != name}
