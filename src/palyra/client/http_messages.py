"""Turns requests into those of httpcore2, and its answers and errors into those of this client, within its limits."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Final

import httpcore2

from palyra.client.address import ServerAddress
from palyra.client.events import Head
from palyra.client.protocol import (
    BadAnswer,
    ClientLimits,
    ConnectFailed,
    ConnectionLost,
    Request,
    Response,
    ResponseTooLarge,
    header_of,
)

# How httpcore2 and h11 begin to say that the peer closed the connection; their other errors are about what it said.
_CLOSED: Final = ("Server disconnected", "peer closed connection")
_DIALLING: Final = "Connect call failed"


def new_request(request: Request, address: ServerAddress, extensions: dict[str, Any]) -> httpcore2.Request:
    return httpcore2.Request(
        request.method,
        httpcore2.URL(
            scheme=b"https" if address.tls else b"http",
            host=address.host.encode("ascii"),
            port=address.port,
            target=(address.prefix + request.path).encode("ascii"),
        ),
        headers=request.wire_headers(address.host_header),
        content=request.body,
        extensions=extensions,
    )


def head_of(answer: httpcore2.Response, limits: ClientLimits) -> Head:
    if sum(len(name) + len(value) for name, value in answer.headers) > limits.max_header_bytes:
        raise BadAnswer(f"the head of the answer is larger than {limits.max_header_bytes} bytes")
    headers = tuple((name.decode("ascii").lower(), value.decode("latin-1")) for name, value in answer.headers)
    if (header_of(headers, "content-encoding") or "identity").lower() != "identity":
        raise BadAnswer("the server compressed an answer that was asked for as it is")
    return Head(answer.status, headers)


async def read_answer(answer: httpcore2.Response, limits: ClientLimits) -> Response:
    head, body, most = head_of(answer, limits), bytearray(), limits.max_response_bytes
    async for chunk in answer.aiter_stream():
        body += chunk
        if len(body) > most:
            raise ResponseTooLarge(f"the answer is larger than {most} bytes", limit=most)
    return Response(status=head.status, headers=head.headers, body=bytes(body))


@contextlib.contextmanager
def named_errors(host: str) -> Iterator[None]:
    """Raises errors of httpcore2 as those of the client."""
    try:
        yield
    except httpcore2.ConnectError as error:
        raise ConnectFailed(f"cannot connect to {host}: {_reason(error)}") from error
    except httpcore2.RemoteProtocolError as error:
        if str(error).startswith(_CLOSED):
            raise ConnectionLost("the server closed the connection before its answer was whole") from error
        raise BadAnswer(f"the server does not speak HTTP/1.1: {error}") from error
    except httpcore2.NetworkError as error:
        raise ConnectionLost(f"the connection broke: {_reason(error)}") from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was made of, down to the first."""
    yield error
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper.exceptions[0] if isinstance(deeper, BaseExceptionGroup) else deeper
        yield error


def _reason(error: BaseException) -> str:
    """In the words of the system, in whose place asyncio puts the address."""
    *_, cause = causes(error)
    said = str(getattr(cause, "strerror", None) or cause)
    number = getattr(cause, "errno", None)
    return os.strerror(number) if number and said.startswith(_DIALLING) else said
