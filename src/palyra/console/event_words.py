"""One line on what a journal event says, for lists. The whole event is a click away."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from palyra.journal.event import Event

# Keys of payloads that say the most, the first that is there first.
_TELLING: Final = (
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
        "version",
    ),
    *(
        "action",
        "count",
        "errors",
        "address",
        "code",
        "text",
        "capability",
        "publisher",
        "kind",
        "worker_id",
        "device_id",
    ),
)
_MOST = 3
_LONGEST = 160
_STAMP: Final = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d\.\d+Z")
_ULID: Final = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{18}([0-9A-HJKMNP-TV-Z]{8})\b")
_SHA256: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
# How the text of a download begins: its id and its digest, which the list of downloads has.
_OF_A_DOWNLOAD: Final = re.compile(r"^\S{26} [0-9a-f]{64} ")

Said = Mapping[str, Any]


def said(event: Event) -> str:
    payload = event.payload_value()
    if not isinstance(payload, dict):
        return str(payload)[:_LONGEST]
    own = OWN_WORDS.get(event.kind)
    words = own(payload) if own is not None else _most_telling(payload)
    return short_ids(words)[:_LONGEST]


def said_in_session(event: Said) -> str:
    """The same for an entry of a browser session's own log."""
    text = _OF_A_DOWNLOAD.sub("", str(event.get("text") or ""))
    return short_ids(text).replace("content_disagrees", "content disagrees")


def short_ids(text: str) -> str:
    """As the pages show them: the end of an id, the beginning of a digest, an instant to the minute."""
    return _STAMP.sub(r"\1 \2 UTC", _SHA256.sub(r"\1", _ULID.sub(r"\1", text)))


def counted(number: int, one: str, many: str = "") -> str:
    return f"{'no' if number == 0 else format(number, ',')} {one if number == 1 else many or one + 's'}"


def _most_telling(payload: Said) -> str:
    parts = [part for key in _TELLING if (part := _part(key, payload.get(key)))]
    return " · ".join(parts[:_MOST])


def _part(key: str, value: Any) -> str:
    if value is None or value in ("", {}, []):
        return ""
    match value:
        case {"code": str(code), **_more}:
            return code
        case {"kind": str(kind), **_more}:
            return kind
        case {"host": str(), "port": int()}:
            return _place(value)
        case list() | tuple():
            return ", ".join(str(each) for each in value[:_MOST])
        case dict():
            return ", ".join(f"{name} {each}" for name, each in list(value.items())[:_MOST])
        case str():
            return value.replace("_", " ") if key in ("outcome", "state", "kind") else value
        case _:
            return f"{key} {value}"


def _place(target: Any) -> str:
    match target:
        case {"host": str(host), "port": int(port), **more}:
            scheme = more.get("scheme")
            return f"{scheme}://{host}:{port}" if scheme else f"{host}:{port}"
        case _:
            return str(target or "")


def _joined(*parts: Any) -> str:
    return " · ".join(str(part) for part in parts if part)


def _with_tool(words: str) -> Callable[[Said], str]:
    return lambda payload: _joined(payload.get("reason"), f"{payload.get('tool', 'a call')} {words}")


def _refused_way_out(payload: Said) -> str:
    refusal = payload.get("refusal")
    told = refusal if isinstance(refusal, dict) else {}
    where = f"{told['host']}:{told['port']}" if told.get("host") and told.get("port") else told.get("host")
    return _joined(told.get("code") or told.get("kind"), where, payload.get("tool"))


def _audited(payload: Said) -> str:
    findings = counted(int(payload.get("errors") or 0), "error"), counted(int(payload.get("warnings") or 0), "warning")
    return _joined(f"{payload.get('skill_id', '')} {payload.get('version', '')}".strip(), ", ".join(findings))


def _run_opened(payload: Said) -> str:
    budget = payload.get("budget")
    calls = budget.get("calls") if isinstance(budget, dict) else None
    return f"up to {counted(calls, 'call')}" if isinstance(calls, int) else "without a bound of its own"


def _token(payload: Said) -> str:
    scopes = payload.get("scopes") or ()
    return _joined(payload.get("label"), f"may {' and '.join(str(each) for each in scopes)}" if scopes else "")


def _session_opened(payload: Said) -> str:
    return f"may reach {', '.join(str(each) for each in payload.get('hosts') or ()) or 'nothing'}"


def _action_failed(payload: Said) -> str:
    match payload.get("error"):
        case {"message": str(message)}:
            return f"{payload.get('action', '')}: {message}"
        case _:
            return _most_telling(payload)


def _action(payload: Said) -> str:
    return f"{payload.get('action', '')} {payload.get('target') or ''}".strip()


def _code_made(payload: Said) -> str:
    how = {"qr": "a QR code", "pin": "a PIN"}.get(str(payload.get("method")), "a code")
    return f"{how} for a {payload.get('kind', 'device')}"


def _bad_tokens(payload: Said) -> str:
    return f"{counted(int(payload.get('count') or 1), 'request')} with no token or a bad one"


def _policies_rejected(payload: Said) -> str:
    errors = payload.get("errors") or [payload.get("code", "")]
    return str(errors[0]).partition("\n")[0]


def _of_browser(payload: Said) -> str:
    return _joined(payload.get("code"), said_in_session(payload))


OWN_WORDS: Final[dict[str, Callable[[Said], str]]] = {
    "approval.requested": _with_tool("waits for a person"),
    "approval.consumed": _with_tool("starts: this was its one yes"),
    "approval.approved": lambda payload: _joined(payload.get("reason"), payload.get("meaning")),
    "approval.denied": _with_tool("may not"),
    "approval.expired": _with_tool("was not answered in time"),
    "run.opened": _run_opened,
    "credential.created": _token,
    "credential.revoked": _token,
    "credential.rejected": _bad_tokens,
    "console.action_failed": _action_failed,
    "console.action_requested": _action,
    "console.action_done": _action,
    "pairing.code_created": _code_made,
    "browser.profiles_folder_rolled_back": lambda _: "the profiles of all browsers are an older copy",
    "policy.rejected": _policies_rejected,
    "console.logged_in": lambda payload: f"as {payload.get('role', 'somebody')}",
    "vault.created": lambda payload: f"its key is kept in: {payload.get('key_source', 'unknown')}",
    "skill.audited": _audited,
    "egress.connected": lambda payload: _joined(_place(payload.get("target")), payload.get("tool")),
    "egress.closed": lambda payload: _joined(_place(payload.get("target")), payload.get("reason"), payload.get("tool")),
    "egress.refused": _refused_way_out,
    "browser.session_opened": _session_opened,
    "browser.downloaded": _of_browser,
    "browser.download_released": _of_browser,
    "browser.download_deleted": _of_browser,
    "policy.swapped": lambda payload: f"{payload.get('new', '')} instead of {payload.get('old', '')}",
    "daemon.started": lambda payload: f"policies {payload.get('bundle_digest', '')}",
}
