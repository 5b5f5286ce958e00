"""Requests made up from the daemon's own ``/openapi.json``, fitting and not, against a daemon with a browser beside it.

Every operation and every check that schemathesis has, none replaced, none left out: no request breaks the daemon, every
answer is the one that the description promises, what does not fit is refused, what fits is not refused for its shape,
and whoever brings no credentials, or wrong ones, gets nothing.
"""

import io
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from requests.adapters import HTTPAdapter
from schemathesis import GenerationMode
from urllib3.response import HTTPResponse

from fakes.daemon import Daemon, Place
from palyra.server.console.app import describe_routes
from palyra.server.http.app import TABLES
from palyra.server.http.openapi import openapi_document

DOCUMENT = openapi_document(TABLES, version="0", elsewhere=describe_routes())
OPERATIONS = [(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods]
SESSION = "/console/v1/session"
# A loaded machine is slow, and examining it takes a while.
PATIENCE_SECONDS = 300

schemathesis.openapi.format(
    "visible-text", st.text("aZ9 é√語", min_size=1, max_size=64).map(lambda text: text.strip() or "a")
)
schemathesis.openapi.format(
    "json-object",
    st.dictionaries(st.text("abc", max_size=4), st.integers(-9, 9) | st.booleans() | st.text("abc"), max_size=3).map(
        json.dumps
    ),
)


@schemathesis.serializer("application/json")
def written_as_the_description_asks(_context: Any, value: Any) -> bytes:
    """A schema tells values apart, not spellings: 30.0 is written 30. Other spellings are sent by test_api_attacks."""
    return value if isinstance(value, bytes) else json.dumps(whole(value)).encode()


def whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With everything that may be there, so that nothing is refused for its being away."""
    settings = "[browser]\nallow_no_sandbox = true\nready = 0\n"
    with Place(Path(tmp_path_factory.mktemp("fuzz")), settings).daemon(browser=True) as running:
        shown = requests.get(f"{running.url}/openapi.json", timeout=60).json()
        assert shown["paths"] == DOCUMENT["paths"], "what is fuzzed is what the daemon shows"
        yield running


class FirstBlock(HTTPAdapter):
    """Of a stream that goes on while somebody listens, what stands before its first empty line; then we hang up."""

    def send(self, request: Any, *args: Any, **kwargs: Any) -> requests.Response:
        answer = super().send(request, *args, **kwargs)
        if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
            received = b""
            for chunk in answer.raw.stream(1024):
                received += chunk
                if b"\n\n" in received:
                    break
            answer.close()
            answer.raw = HTTPResponse(io.BytesIO(received), headers=dict(answer.headers), preload_content=False)
        return answer


def connection() -> requests.Session:
    made = requests.Session()
    made.mount("http://", FirstBlock())
    return made


@cache
def log_in(daemon: Daemon, _for: str = "") -> tuple[str, dict[str, str]]:
    """The cookie of somebody who is logged in, and the headers that our pages send along."""
    opened = requests.post(
        f"{daemon.url}{SESSION}", json={"token": daemon.token}, headers={"Origin": daemon.url}, timeout=PATIENCE_SECONDS
    )
    return opened.cookies["palyra_session"], {"Palyra-CSRF": opened.json()["data"]["csrf"], "Origin": daemon.url}


def make_up(daemon: Daemon, method: str, path: str, examples: int) -> None:
    # Whoever logs out has a session of their own to end.
    cookie, headers = log_in(daemon, method if path == SESSION else "")
    known = {"token": {"bearer": daemon.token}, "session": {"api_key": cookie}}
    config = schemathesis.Config.from_dict({"auth": {"openapi": known}})
    schema = schemathesis.openapi.from_dict(DOCUMENT, config=config)
    schema.config.update(base_url=daemon.url)
    operation = schema[path][method]
    with connection() as way:

        def converse(mode: GenerationMode) -> None:
            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def conversation(case: Any) -> None:
                sent = headers if path.startswith("/console/") else {}
                case.validate_response(case.call(session=way, headers=sent, timeout=PATIENCE_SECONDS))

            conversation()

        converse(GenerationMode.POSITIVE)
        if operation.body or operation.query or operation.path_parameters:
            # Where every text is a fitting one, there is nothing wrong to make up.
            with suppress(Unsatisfiable):
                converse(GenerationMode.NEGATIVE)


@pytest.mark.promise("P-documented")
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path}" for method, path in OPERATIONS])
def test_no_request_breaks_a_promise_of_the_description(daemon: Daemon, method: str, path: str) -> None:
    make_up(daemon, method, path, examples=6)


@pytest.mark.soak
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path}" for method, path in OPERATIONS])
def test_nor_do_many(daemon: Daemon, method: str, path: str) -> None:
    make_up(daemon, method, path, examples=150)
