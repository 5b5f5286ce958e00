"""What journal entries are told with: what payloads say most, codes in words, ids and instants as pages show them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from palyra.journal.event import Event

# Keys of payloads that say the most, the first that is there first.
_TELLING: Final = (
    *("error", "refusal", "reason", "meaning", "outcome", "state", "target", "tool", "skill_id", "name", "ref"),
    *("version", "action", "count", "errors", "address", "text", "code", "capability", "publisher", "kind"),
    *("worker_id", "device_id"),
)
_MOST = 3
_STAMP: Final = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d\.\d+Z")
_ULID: Final = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{18}([0-9A-HJKMNP-TV-Z]{8})\b")
_SHA256: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
# How the text of a download begins: its id and its digest, which the list of downloads has.
_OF_A_DOWNLOAD: Final = re.compile(r"^\S{26} [0-9a-f]{64} ")
REASONS: Final = {
    "policy.permitted": "a policy permits it",
    "policy.forbidden": "a policy forbids it",
    "policy.no_permit": "no policy permits it",
    "policy.approval_required": "a policy asks for a person's yes",
}

Said = Mapping[str, Any]


def said_in_session(event: Said) -> str:
    """An entry of a browser session's own log."""
    text = _OF_A_DOWNLOAD.sub("", str(event.get("text") or ""))
    return short_ids(text).replace("content_disagrees", "content disagrees")


def code_of(event: Event) -> str:
    """The code that stands behind the words, where there is one: what reference, metrics and the API call it."""
    payload = event.payload_value()
    match payload:
        case {"error": {"code": str(code)}} | {"refusal": {"code": str(code)}} | {"refusal": {"kind": str(code)}}:
            return code
        case {"code": str(code)} if code:
            return code
        case {"outcome": "deny", "reasons": [str(code), *_]}:
            return code
        case {"action": str(action)} if event.kind.startswith("console."):
            return action
        case _:
            return ""


def in_words(code: str) -> str:
    """``egress.host_not_allowed`` where nobody has said it in a sentence."""
    return REASONS.get(code) or code.rpartition(".")[2].replace("_", " ")


def short_ids(text: str) -> str:
    """As the pages show them: the end of an id, the beginning of a digest, an instant to the minute."""
    return _STAMP.sub(r"\1 \2 UTC", _SHA256.sub(r"\1", _ULID.sub(r"\1", text)))


def counted(number: int, one: str, many: str = "") -> str:
    return f"{'no' if number == 0 else format(number, ',')} {one if number == 1 else many or one + 's'}"


def joined(*parts: Any) -> str:
    return " · ".join(str(part) for part in parts if part)


def place(target: Any) -> str:
    match target:
        case {"host": str(host), "port": int(port), **more}:
            scheme = more.get("scheme")
            return f"{scheme}://{host}:{port}" if scheme else f"{host}:{port}" if port else host
        case _:
            return str(target or "")


def why(payload: Said) -> str:
    """What went wrong, in its own sentence if it has one."""
    match payload:
        case {"error": {"message": str(said)}} | {"refusal": {"detail": str(said)}} | {"message": str(said)} if said:
            return said
        case {"error": {"code": str(code)}} | {"refusal": {"code": str(code)}} | {"refusal": {"kind": str(code)}}:
            return in_words(code)
        case {"code": str(code)}:
            return in_words(code)
        case _:
            return ""


def most_telling(payload: Said) -> str:
    parts = [part for key in _TELLING if (part := _part(key, payload.get(key)))]
    return " · ".join(parts[:_MOST])


def _part(key: str, value: Any) -> str:
    if value is None or value in ("", {}, []):
        return ""
    if key in ("error", "refusal") and isinstance(value, dict):
        return why({key: value})
    match value:
        case {"host": str(), "port": int()}:
            return place(value)
        case list() | tuple():
            return ", ".join(str(each) for each in value[:_MOST])
        case dict():
            return ", ".join(f"{name} {each}" for name, each in list(value.items())[:_MOST])
        case str():
            return in_words(value) if key in ("outcome", "state", "kind", "code") else value
        case _:
            return f"{key} {value}"
