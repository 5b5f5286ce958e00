from typing import Any

from palyra.executors.mcp_upstream.spec import PROTOCOL_CONTENT
from palyra.pipeline.domain.call import CallRecord, CallState
from palyra.server.mcp.client_view import result_of


def record(**more: Any) -> CallRecord:
    known: dict[str, Any] = {
        "call_id": "C",
        "run_id": "R",
        "tool": "fs.list",
        "principal": "agent:bot",
        "actor": "agent:bot",
        "channel": "mcp",
        "state": CallState.SUCCEEDED,
        "created_ms": 0,
        **more,
    }
    return CallRecord(**known)


def test_a_result_is_text_and_structure_with_its_ids() -> None:
    decided = {"outcome": "allow", "policies": ["p"], "reasons": ["r"], "bundle_digest": "d"}
    shown = result_of(record(result={"a": 1}, decision=decided), {"type": "object"})
    assert shown.structured == {"a": 1} and shown.content == ({"type": "text", "text": '{"a":1}'},)
    assert shown.meta["dev.palyra/call_id"] == "C" and shown.meta["dev.palyra/decision"]["policies"] == ["p"]
    assert result_of(record(result=[1]), {"type": "array"}).structured == {"result": [1]}


def test_a_picture_comes_as_image_content() -> None:
    schema = {"type": "object", "properties": {"image_base64": {}, "media_type": {}}}
    shown = result_of(record(result={"image_base64": "aGk=", "media_type": "image/png"}), schema)
    assert shown.content[0] == {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    assert shown.structured == {"media_type": "image/png"}


def test_content_of_the_protocol_is_passed_on_as_it_is() -> None:
    block = {"type": "text", "text": "hi"}
    shown = result_of(record(result={"content": [block]}), {"type": "object", PROTOCOL_CONTENT: True})
    assert shown.content == (block,)


def test_a_denial_names_the_way_out_and_the_other_tools() -> None:
    error = {"code": "call.denied", "message": "policy denies fs.list", "hint": "add 'fs.list' to tools.allowed"}
    denied = record(state=CallState.DENIED, error=error)
    shown = result_of(denied, {}, may_use=("echo", "fs_list"))
    said = shown.content[0]["text"]
    assert shown.is_error and shown.structured is None
    assert "add 'fs.list' to tools.allowed" in said and "You may use: echo." in said and "call.denied" in said
    assert shown.meta["dev.palyra/error"]["code"] == "call.denied"
    assert "no tool at all" in result_of(denied, {}).content[0]["text"]


def test_what_a_failed_call_brought_back_is_kept() -> None:
    failed = record(
        state=CallState.TIMED_OUT, error={"code": "x", "message": "too long", "hint": ""}, result={"stdout": "half"}
    )
    shown = result_of(failed, {"type": "object"})
    assert "Ended at its deadline" in shown.content[0]["text"] and "half" in shown.content[1]["text"]
