"""One line on what a journal event says, for lists. The whole event is a click away."""

from typing import Any

from palyra.journal.event import Event

# Keys of payloads that say the most, the first that is there first.
_TELLING = (
    *(
        "error",
        "refusal",
        "reason",
        "meaning",
        "outcome",
        "state",
        "target",
        "tool",
        "skill_id",
        "name",
        "ref",
        "action",
    ),
    *("count", "errors", "address", "code", "worker_id", "device_id", "version"),
)
_MOST = 3
_LONGEST = 160


def said(event: Event) -> str:
    payload = event.payload_value()
    if not isinstance(payload, dict):
        return str(payload)[:_LONGEST]
    parts = [part for key in _TELLING if (part := _part(key, payload.get(key)))]
    return " · ".join(parts[:_MOST])[:_LONGEST]


def _part(key: str, value: Any) -> str:
    if value is None or value in ("", {}, []):
        return ""
    match value:
        case {"code": str(code), **_more}:
            return code
        case {"kind": str(kind), **_more}:
            return kind
        case list() | tuple():
            return ", ".join(str(each) for each in value[:_MOST])
        case dict():
            return ", ".join(f"{name} {each}" for name, each in list(value.items())[:_MOST])
        case str():
            return value
        case _:
            return f"{key} {value}"
