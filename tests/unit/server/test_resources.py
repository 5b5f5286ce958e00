import json
from typing import Any, cast

import pytest

from palyra.errors import InvalidInput
from palyra.ids import CallId, RunId
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.server.mcp.backend import McpBackend, McpCaller
from palyra.server.mcp.resources import (
    CallAddress,
    CallPart,
    RunAddress,
    list_resources,
    parse_resource,
    read_contents,
    resource_templates,
    uri_of_call,
    uri_of_run,
)

CALLER = McpCaller(principal="agent:bot", actor="agent:bot", token_id="T")


class OneCall:
    def __init__(self, record: CallRecord) -> None:
        self.record = record

    async def calls_of_run(self, *_: Any) -> list[CallRecord]:
        return [self.record]

    async def call_record(self, *_: Any) -> CallRecord:
        return self.record


def a_call() -> CallRecord:
    return CallRecord(
        call_id=str(CallId.new()),
        run_id=str(RunId.new()),
        tool="echo",
        principal="agent:bot",
        actor="agent:bot",
        channel="mcp",
        state=CallState.SUCCEEDED,
        created_ms=0,
        result={"text": "hi"},
        attestation={"signatures": []},
    )


def test_addresses_come_back_as_they_were() -> None:
    run, call = RunId.new(), CallId.new()
    assert parse_resource(uri_of_run(run)) == RunAddress(run)
    assert parse_resource(uri_of_call(call)) == CallAddress(call)
    assert parse_resource(f"{uri_of_call(call)}/receipt") == CallAddress(call, CallPart.RECEIPT)


@pytest.mark.parametrize("uri", ["", "palyra://", "palyra://runs/x", "file:///etc/passwd", "palyra://calls/../x/y/z"])
def test_other_addresses_are_refused(uri: str) -> None:
    with pytest.raises(InvalidInput):
        parse_resource(uri)


async def test_a_run_and_the_parts_of_a_call_are_documents() -> None:
    record = a_call()
    backend = cast("McpBackend", OneCall(record))
    timeline = json.loads(await read_contents(backend, CALLER, uri_of_run(record.run_id)))
    assert timeline["calls"][0]["tool"] == "echo" and timeline["complete"]
    whole = json.loads(await read_contents(backend, CALLER, uri_of_call(record.call_id)))
    assert whole["result"] == {"text": "hi"}
    part = json.loads(await read_contents(backend, CALLER, f"{uri_of_call(record.call_id)}/attestation"))
    assert part == {"signatures": []}


def test_a_listing_has_the_run_first() -> None:
    record = a_call()
    found = list_resources(record.run_id, [record])
    assert [each["uri"] for each in found] == [uri_of_run(record.run_id), uri_of_call(record.call_id)]
    assert len(resource_templates()) == 3
