"""Requests made up from the API's own description, fitting and not, against a real daemon.

Whatever comes: no request breaks the daemon, every answer is the document that the description promises, what does not
fit is refused, what fits is refused only for a reason that a schema cannot say.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance

from fakes.daemon import Daemon, Place
from palyra.api.app import TABLES
from palyra.api.openapi import openapi_document
from palyra.console.described_routes import described_routes

DOCUMENT = openapi_document(TABLES, version="0", elsewhere=described_routes())
for methods in DOCUMENT["paths"].values():
    for one in methods.values():
        # Who asks is ours to say here: a made-up session or token never reaches a route.
        one.pop("security")
# A stream that goes on while somebody listens is no request to make up; tests/unit/api/test_channels.py has it.
ENDLESS = {"/v1/channels/{name}/events", "/console/v1/events", "/console/v1/browser/sessions/{session_id}/watch"}
# Whoever ends the session that asks ends the test.
LAST = ("delete", "/console/v1/session")
OPERATIONS = [
    (method, path)
    for path, methods in DOCUMENT["paths"].items()
    if path not in ENDLESS
    for method in methods
    if (method, path) != LAST
]
# Why a request that fits its schema may still be wrong. JSON is read more strictly than a schema can say (`1.0` for 1),
# and some names and texts are parsed by rules that no pattern tells.
BEYOND_SCHEMAS = (
    "json.",
    "arguments.",
    "vault.",
    "skill.",
    "signature.",
    "signing_key.",
    "approval.",
    "principal.",
    "console.",
)
# Of its two ways to give arguments a call takes exactly one.
ONE_OF_TWO = "/v1/tool-calls"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Place(Path(tmp_path_factory.mktemp("fuzz"))).daemon() as running:
        yield running


@cache
def session_of(daemon: Daemon) -> dict[str, str]:
    logged_in = requests.post(
        f"{daemon.url}/console/v1/session", json={"token": daemon.token}, headers={"Origin": daemon.url}, timeout=60
    )
    cookie = logged_in.headers["Set-Cookie"].partition(";")[0]
    return {"Cookie": cookie, "Palyra-CSRF": logged_in.json()["data"]["csrf"], "Origin": daemon.url}


def credentials(daemon: Daemon, path: str) -> dict[str, str]:
    if path.startswith("/console/"):
        # Logging in takes the token in the body, and ends the session of whoever has one.
        return {"Origin": daemon.url} if path == LAST[1] else session_of(daemon)
    return {"Authorization": f"Bearer {daemon.token}"}


def make_up(daemon: Daemon, method: str, path: str, examples: int) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.config.update(base_url=daemon.url)
    operation = schema[path][method]
    converse(daemon, operation, GenerationMode.POSITIVE, examples)
    if operation.body or operation.query or operation.path_parameters:
        # Where every text is a fitting one, there is nothing wrong to make up.
        with suppress(Unsatisfiable):
            converse(daemon, operation, GenerationMode.NEGATIVE, examples)


def converse(daemon: Daemon, operation: Any, mode: GenerationMode, examples: int) -> None:
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
        answer = case.call(headers=credentials(daemon, operation.path), timeout=60)
        # Ours instead of theirs: an answer like 503 is designed where something is not there, a bug never is.
        case.validate_response(answer, excluded_checks=[not_a_server_error, positive_data_acceptance])
        if answer.status_code >= 400 and operation.path != "/readyz":
            said = answer.json()
            code = said.get("error", said)["code"]
            assert code != "internal.bug", case.as_curl_command()
            if mode is GenerationMode.POSITIVE and answer.status_code == 400:
                assert code.startswith(BEYOND_SCHEMAS) or operation.path == ONE_OF_TWO, (code, case.as_curl_command())

    conversation()


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path}" for method, path in OPERATIONS])
def test_no_request_breaks_a_promise_of_the_description(daemon: Daemon, method: str, path: str) -> None:
    make_up(daemon, method, path, examples=6)


@pytest.mark.soak
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path}" for method, path in OPERATIONS])
def test_nor_do_many(daemon: Daemon, method: str, path: str) -> None:
    make_up(daemon, method, path, examples=150)
