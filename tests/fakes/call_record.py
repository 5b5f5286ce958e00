"""The record of a call that succeeded."""

from typing import Any

from palyra.pipeline.domain.call import CallRecord, CallState


def record(**more: Any) -> CallRecord:
    fields: dict[str, Any] = {
        "call_id": "01CALL", "run_id": "01RUN", "tool": "echo", "principal": "agent:bot", "actor": "agent:bot",
        "channel": "api", "state": CallState.SUCCEEDED, "created_ms": 1, "started_ms": 2, "ended_ms": 7,
    }  # fmt: skip
    return CallRecord(**{**fields, **more})
