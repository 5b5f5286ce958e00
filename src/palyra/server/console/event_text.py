"""Journal entries as one line of text each, for lists. The whole entry and its code are one click away."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from palyra.store.event import Event

# The most informative keys of payloads, in order.
_INFORMATIVE: Final = (
    *("error", "refusal", "reason", "meaning", "outcome", "state", "target", "tool", "skill_id", "name", "ref"),
    *("version", "action", "count", "errors", "address", "text", "code", "capability", "publisher", "kind"),
    *("worker_id", "device_id"),
)
_MOST = 3
_STAMP: Final = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d\.\d+Z")
_ULID: Final = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{18}([0-9A-HJKMNP-TV-Z]{8})\b")
_SHA256: Final = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
# The text of a download begins with its id and digest, which the list of downloads shows.
_OF_A_DOWNLOAD: Final = re.compile(r"^\S{26} [0-9a-f]{64} ")
REASONS: Final = {
    "policy.permitted": "a policy permits it",
    "policy.forbidden": "a policy forbids it",
    "policy.no_permit": "no policy permits it",
    "policy.approval_required": "a policy asks for a person's approval",
}

Payload = Mapping[str, Any]


def describe_session_event(event: Payload) -> str:
    text = _OF_A_DOWNLOAD.sub("", str(event.get("text") or ""))
    return shorten_ids(text).replace("content_disagrees", "content disagrees")


def code_of(event: Event) -> str:
    """Return the entry's code, as reference, metrics and the API use it, or an empty text."""
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


def to_words(code: str) -> str:
    """Write a code that has no sentence of its own in words."""
    return REASONS.get(code) or code.rpartition(".")[2].replace("_", " ")


def shorten_ids(text: str) -> str:
    """Shorten as pages do: an id to its end, a digest to its beginning, an instant to the minute."""
    return _STAMP.sub(r"\1 \2 UTC", _SHA256.sub(r"\1", _ULID.sub(r"\1", text)))


def format_count(number: int, one: str, many: str = "") -> str:
    return f"{'no' if number == 0 else format(number, ',')} {one if number == 1 else many or one + 's'}"


def join_parts(*parts: Any) -> str:
    return " · ".join(str(part) for part in parts if part)


def format_target(target: Any) -> str:
    match target:
        case {"host": str(host), "port": int(port), **more}:
            scheme = more.get("scheme")
            return f"{scheme}://{host}:{port}" if scheme else f"{host}:{port}" if port else host
        case _:
            return str(target or "")


def find_reason(payload: Payload) -> str:
    """Return what went wrong, in the error's own sentence if it has one."""
    match payload:
        case {"error": {"message": str(text)}} | {"refusal": {"detail": str(text)}} | {"message": str(text)} if text:
            return text
        case {"error": {"code": str(code)}} | {"refusal": {"code": str(code)}} | {"refusal": {"kind": str(code)}}:
            return to_words(code)
        case {"code": str(code)}:
            return to_words(code)
        case _:
            return ""


def summarize(payload: Payload) -> str:
    parts = [part for key in _INFORMATIVE if (part := _part(key, payload.get(key)))]
    return " · ".join(parts[:_MOST])


def _part(key: str, value: Any) -> str:
    if value is None or value in ("", {}, []):
        return ""
    if key in ("error", "refusal") and isinstance(value, dict):
        return find_reason({key: value})
    match value:
        case {"host": str(), "port": int()}:
            return format_target(value)
        case list() | tuple():
            return ", ".join(str(each) for each in value[:_MOST])
        case dict():
            return ", ".join(f"{name} {each}" for name, each in list(value.items())[:_MOST])
        case str():
            return to_words(value) if key in ("outcome", "state", "kind", "code") else value
        case _:
            return f"{key} {value}"


_LONGEST = 160
# The actions of people on pages, by their names in the journal.
_ACTIONS: Final = {
    "approval.decide": "answering a request",
    "browser.change": "changing a browser session",
    "browser.download": "changing a download",
    "browser.operate": "operating a browser",
    "browser.profile": "changing a browser profile",
    "browser.profiles": "accepting older browser profiles",
    "browser.watch": "watching a browser",
    "call.cancel": "stopping a call",
    "call.save": "saving a call",
    "doctor.examine": "examining this machine",
    "journal.export": "exporting the journal",
    "journal.verify": "verifying the journal",
    "node.change": "changing a device",
    "pairing.decide": "answering a device",
    "pairing.make_code": "making a pairing code",
    "pairing.withdraw_code": "taking a pairing code back",
    "skill.discard": "giving a candidate up",
    "skill.scaffold": "writing a skill's scaffold",
    "skill.status": "changing a skill",
    "token.create": "making a token",
    "token.revoke": "revoking a token",
    "worker.change": "changing a worker",
}


def describe_event(event: Event) -> str:
    payload = event.payload_value()
    if not isinstance(payload, dict):
        return str(payload)[:_LONGEST]
    own = SENTENCES.get(event.kind)
    words = own(payload) if own is not None else summarize(payload)
    return shorten_ids(words)[:_LONGEST]


def _describe_hosts(payload: Payload) -> str:
    hosts = dict(payload.get("hosts") or {}).items()
    return f"{payload.get('server', 'a server')}: " + ", ".join(f"{host} {outcome}" for host, outcome in hosts)


def _about_tool(words: str) -> Callable[[Payload], str]:
    return lambda payload: join_parts(payload.get("reason"), f"{payload.get('tool', 'a call')} {words}")


def _about_call(words: str) -> Callable[[Payload], str]:
    return lambda payload: f"{payload.get('tool', 'a call')} {words}"


def _describe_decision(payload: Payload) -> str:
    tool, reasons = payload.get("tool", "a call"), payload.get("reasons") or ()
    match payload.get("outcome"):
        case "allow":
            return f"{tool} is allowed"
        case "needs_approval":
            return f"{tool} needs a person's approval"
        case "deny":
            return f"{tool} is denied{f': {to_words(str(reasons[0]))}' if reasons else ''}"
        case _:
            return summarize(payload)


def _describe_end(payload: Payload) -> str:
    ended = f"{payload.get('tool', 'a call')} {to_words(str(payload.get('state', 'ended')))}"
    return f"{ended}: {reason}" if (reason := find_reason(payload)) else ended


def _describe_planted(payload: Payload) -> str:
    names = [each for each in payload.get("names") or () if isinstance(each, dict)]
    first = str(names[0].get("name", "")) if names else ""
    more = int(payload.get("count") or 1) - 1
    moved = int(payload.get("moved") or 0)
    done = "moved aside" if moved else str(names[0].get("problem") or names[0].get("why") or "left") if names else ""
    where = str(names[0].get("moved_to") or "") if names else ""
    listed = f"{first} and {more:,} more" if more > 0 else first
    return join_parts(f"{payload.get('tool', 'a call')} planted {listed}: {done}{f', see {where}' if where else ''}")


def _describe_refusal(payload: Payload) -> str:
    tool, reason = str(payload.get("tool", "a call")), find_reason(payload) or "refused"
    return reason if tool in reason else f"{tool}: {reason}"


def _describe_egress_refusal(payload: Payload) -> str:
    where, reason = format_target(payload.get("refusal")), find_reason(payload)
    text = reason if where.partition(":")[0] in reason else f"{where}: {reason}"
    return join_parts(text, payload.get("tool"))


def _about_skill(words: str) -> Callable[[Payload], str]:
    def describe(payload: Payload) -> str:
        version = f"{payload.get('skill_id', 'a skill')} {payload.get('version', '')}".strip()
        return join_parts(f"{version} {words}", payload.get("reason"))

    return describe


def _describe_audit(payload: Payload) -> str:
    findings = (
        format_count(int(payload.get("errors") or 0), "error"),
        format_count(int(payload.get("warnings") or 0), "warning"),
    )
    return join_parts(f"{payload.get('skill_id', '')} {payload.get('version', '')}".strip(), ", ".join(findings))


def _about_publisher(words: str) -> Callable[[Payload], str]:
    return lambda payload: f"a key of {payload.get('publisher', 'a publisher')} {words}"


def _describe_dropped(payload: Payload) -> str:
    why = "they were too old" if payload.get("because") == "age" else "all results together were too large"
    return f"{payload.get('results', 0)} results are no longer kept: {why}"


def _describe_run(payload: Payload) -> str:
    budget = payload.get("budget")
    calls = budget.get("calls") if isinstance(budget, dict) else None
    return f"up to {format_count(calls, 'call')}" if isinstance(calls, int) else "without a bound of its own"


def _describe_token(payload: Payload) -> str:
    scopes = payload.get("scopes") or ()
    return join_parts(payload.get("label"), f"may {' and '.join(str(each) for each in scopes)}" if scopes else "")


def _about_secret(words: str) -> Callable[[Payload], str]:
    def describe(payload: Payload) -> str:
        ref, version = payload.get("ref", "a secret"), payload.get("version")
        return f"{ref}{f', version {version},' if version else ''} {words}"

    return describe


def _describe_secret_use(payload: Payload) -> str:
    for_whom = payload.get("host") or payload.get("tool") or payload.get("purpose")
    return f"{payload.get('ref', 'a secret')} was used{f' for {for_whom}' if for_whom else ''}"


def _describe_session(payload: Payload) -> str:
    return f"may reach {', '.join(str(each) for each in payload.get('hosts') or ()) or 'nothing'}"


def _about_action(ending: str) -> Callable[[Payload], str]:
    def describe(payload: Payload) -> str:
        name = str(payload.get("action", ""))
        did = join_parts(_ACTIONS.get(name, name), payload.get("target"))
        return f"{did}: {find_reason(payload) or ending}"

    return describe


def _about_device(words: str) -> Callable[[Payload], str]:
    def describe(payload: Payload) -> str:
        reason = payload.get("reason") or find_reason(payload)
        return join_parts(f"{payload.get('name') or 'a device'} {words}", reason)

    return describe


def _describe_peer_refusal(payload: Payload) -> str:
    return join_parts(f"{payload.get('method', 'a connection')}: {find_reason(payload)}", _format_times(payload))


def _describe_request_refusal(payload: Payload) -> str:
    request = f"{payload.get('method', 'a request')} {payload.get('path', '')}".strip()
    site = payload.get("site")
    return join_parts(f"{request}{f' from {site}' if site else ''}: {find_reason(payload)}", _format_times(payload))


def _format_times(payload: Payload) -> str:
    count = int(payload.get("count") or 1)
    return f"{count:,} times" if count > 1 else ""


def _describe_code(payload: Payload) -> str:
    how = {"qr": "a QR code", "pin": "a PIN"}.get(str(payload.get("method")), "a code")
    return f"{how} for a {payload.get('kind', 'device')}"


def _describe_dropped_arguments(payload: Payload) -> str:
    reason = {"age": "they were too old", "size": "they took too much space"}.get(str(payload.get("reason")), "")
    return join_parts(f"those of {format_count(payload.get('calls', 0), 'call')}", reason)


def _describe_bad_tokens(payload: Payload) -> str:
    return f"{format_count(int(payload.get('count') or 1), 'request')} with no token or a bad one"


def _describe_rejected_policies(payload: Payload) -> str:
    errors = payload.get("errors") or [find_reason(payload)]
    return str(errors[0]).partition("\n")[0]


def _describe_browser_event(payload: Payload) -> str:
    return describe_session_event(payload) or find_reason(payload)


def _describe_credential_use(payload: Payload) -> str:
    ref, where = payload.get("secret_ref", "a secret"), format_target(payload.get("target"))
    return join_parts(f"{ref} was put on a request to {where or 'a host'}", payload.get("tool"))


SENTENCES: Final[dict[str, Callable[[Payload], str]]] = {
    "call.requested": _about_call("was asked for"),
    "call.decided": _describe_decision,
    "call.started": _about_call("starts"),
    "call.finished": _describe_end,
    "call.refused": _describe_refusal,
    "call.abandoned": _about_call("was given up: its process died"),
    "call.planted": _describe_planted,
    "approval.requested": _about_tool("waits for a person"),
    "approval.consumed": _about_tool("starts: this used up its approval"),
    "approval.approved": lambda payload: join_parts(payload.get("reason"), payload.get("meaning")),
    "approval.denied": _about_tool("may not"),
    "approval.expired": _about_tool("was not answered in time"),
    "run.opened": _describe_run,
    "results.dropped": _describe_dropped,
    "credential.created": _describe_token,
    "credential.revoked": _describe_token,
    "credential.rejected": _describe_bad_tokens,
    "console.action_failed": _about_action("it failed"),
    "console.action_requested": _about_action("begins"),
    "console.action_done": _about_action("done"),
    "console.request_refused": _describe_request_refusal,
    "console.logged_in": lambda payload: f"as {payload.get('role', 'somebody')}",
    "pairing.code_created": _describe_code,
    "policy.rejected": _describe_rejected_policies,
    "policy.swapped": lambda payload: f"{payload.get('new', '')} instead of {payload.get('old', '')}",
    "journal.arguments_read": lambda payload: f"of {payload.get('tool', 'a call')} by {payload.get('of', '')}",
    "journal.arguments_mismatch": lambda payload: f"of {payload.get('tool', 'a call')}: {payload.get('found', '')}",
    "journal.arguments_dropped": _describe_dropped_arguments,
    "journal.arguments_not_kept": find_reason,
    "journal.arguments_key_lost": find_reason,
    "vault.created": lambda payload: f"its key is kept in: {payload.get('key_source', 'unknown')}",
    "vault.secret_put": _about_secret("is in force"),
    "vault.secret_deleted": _about_secret("was destroyed"),
    "vault.secret_used": _describe_secret_use,
    "vault.use_denied": lambda payload: f"{payload.get('ref', 'a secret')} was not given out: {find_reason(payload)}",
    "skill.ingested": _about_skill("was read, and its signature verified"),
    "skill.audited": _describe_audit,
    "skill.quarantined": _about_skill("waits for a person"),
    "skill.approved": _about_skill("is in use"),
    "skill.superseded": _about_skill("is not in use any more"),
    "skill.disabled": _about_skill("was stopped"),
    "skill.enabled": _about_skill("runs again"),
    "skill.rolled_back": _about_skill("is in use again"),
    "skill.failed": _about_skill("is kept out"),
    "skill.removed": _about_skill("was removed"),
    "skill.refused": lambda payload: f"an archive was not let in: {find_reason(payload)}",
    "skill.publisher_added": _about_publisher("is trusted"),
    "skill.publisher_pinned": _about_publisher("was pinned"),
    "skill.publisher_removed": _about_publisher("is not trusted any more"),
    "skill.key_unreadable": _about_publisher("cannot be read, and counts for nothing"),
    "skill.key_rotated": _about_publisher("took the place of the one before"),
    "lease.refused": _describe_refusal,
    "lease.result_refused": _describe_refusal,
    "node.connected": _about_device("is connected"),
    "node.disconnected": _about_device("is offline"),
    "node.registered": _about_device("listed its capabilities"),
    "node.peer_refused": _describe_peer_refusal,
    "worker.attested": _about_device("showed what it is"),
    "worker.attestation_refused": _about_device("is not what is demanded"),
    "egress.connected": lambda payload: join_parts(
        f"reached {format_target(payload.get('target'))}", payload.get("tool")
    ),
    "egress.closed": lambda payload: join_parts(
        f"{format_target(payload.get('target'))} closed: {to_words(str(payload.get('reason') or 'done'))}",
        payload.get("tool"),
    ),
    "egress.refused": _describe_egress_refusal,
    "mcp.hosts_decided": _describe_hosts,
    "egress.credential_used": _describe_credential_use,
    "browser.session_opened": _describe_session,
    "browser.downloaded": _describe_browser_event,
    "browser.download_released": _describe_browser_event,
    "browser.download_deleted": _describe_browser_event,
    "browser.egress_refused": _describe_browser_event,
    "browser.profiles_folder_rolled_back": lambda _: "the profiles of all browsers are an older copy",
    "daemon.started": lambda payload: f"policies {payload.get('bundle_digest', '')}",
}
