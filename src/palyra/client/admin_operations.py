"""The endpoints for browser sessions, their downloads and profiles. What happens in a session goes through ``call``."""

import base64
from collections.abc import Mapping
from typing import Any, Literal

from palyra.client.protocol import (
    BadAnswer,
    Operation,
    Request,
    convert_view,
    convert_views,
    get,
    path_of,
    read_answer,
    send_json,
)
from palyra.client.views import (
    AcceptedProfilesView,
    BrowserDownloadView,
    BrowserProfileView,
    BrowserSessionView,
    ErasedDataView,
    IdentityView,
    LeaseView,
    McpServerView,
    NewPairingCode,
    NodeView,
    PairingCodeView,
    PairingView,
    PublisherKeyView,
    PublishersView,
    SkillVersionView,
    SkillView,
    WorkerView,
)
from palyra.secret import Secret

SessionChange = Literal["close", "takeover", "handback"]


def browser_sessions() -> Operation[tuple[BrowserSessionView, ...]]:
    """Every browser session there is, whoever's it is."""
    response = yield get(path_of("v1", "browser", "sessions"))
    return convert_views(read_answer(response), "sessions", BrowserSessionView)


def browser_session(session: str) -> Operation[BrowserSessionView]:
    response = yield get(path_of("v1", "browser", "sessions", session))
    return convert_view(read_answer(response), BrowserSessionView)


def change_browser_session(
    session: str, change: SessionChange, *, reason: str | None = None
) -> Operation[BrowserSessionView]:
    """Ends it, or takes it over for a person, or hands it back."""
    response = yield send_json("POST", path_of("v1", "browser", "sessions", session, change), {"reason": reason})
    return convert_view(read_answer(response), BrowserSessionView)


def browser_downloads(session: str) -> Operation[tuple[BrowserDownloadView, ...]]:
    response = yield get(path_of("v1", "browser", "sessions", session, "downloads"))
    return convert_views(read_answer(response), "downloads", BrowserDownloadView)


def decide_browser_download(
    session: str, download: str, verdict: Literal["release", "delete"]
) -> Operation[BrowserDownloadView]:
    """Lets a download out of quarantine, or deletes it; both are recorded with its digest."""
    place = ("v1", "browser", "sessions", session, "downloads", download)
    if verdict == "release":
        response = yield send_json("POST", path_of(*place, "release"), {})
    else:
        response = yield Request(method="DELETE", path=path_of(*place))
    return convert_view(read_answer(response), BrowserDownloadView)


def browser_profiles() -> Operation[tuple[BrowserProfileView, ...]]:
    response = yield get(path_of("v1", "browser", "profiles"))
    return convert_views(read_answer(response), "profiles", BrowserProfileView)


def create_browser_profile(
    principal: str, name: str, *, colour: str | None = None, private: bool = False
) -> Operation[BrowserProfileView]:
    body = {"principal": principal, "name": name, "colour": colour, "private": private}
    response = yield send_json("POST", path_of("v1", "browser", "profiles"), body)
    return convert_view(read_answer(response), BrowserProfileView)


def change_browser_profile(profile: str, change: Literal["reset", "delete"]) -> Operation[BrowserProfileView]:
    """Empties a profile, or deletes it."""
    place = ("v1", "browser", "profiles", profile)
    if change == "reset":
        response = yield send_json("POST", path_of(*place, "reset"), {})
    else:
        response = yield Request(method="DELETE", path=path_of(*place))
    return convert_view(read_answer(response), BrowserProfileView)


def accept_browser_profiles() -> Operation[AcceptedProfilesView]:
    """Goes on from an older copy of the folder of profiles that was put back."""
    response = yield send_json("POST", path_of("v1", "browser", "profiles", "accept"), {})
    return convert_view(read_answer(response), AcceptedProfilesView)


# The endpoints of device identity: the request each makes and what its answer becomes.


def identity() -> Operation[IdentityView]:
    """The authorities, the newest first, and the devices that have or had a certificate."""
    response = yield get(path_of("v1", "identity"))
    return convert_view(read_answer(response), IdentityView)


def rotate_authority() -> Operation[IdentityView]:
    """Replaces the authority that signs. The one before is trusted until the last certificate by it has ended."""
    response = yield send_json("POST", path_of("v1", "identity", "rotation"), {})
    return convert_view(read_answer(response), IdentityView)


# The endpoints about MCP servers behind Palyra.

# A server may take a while to start, on a machine that does much else.
LOOK_PATIENCE_MS = 60_000


def mcp_servers() -> Operation[tuple[McpServerView, ...]]:
    response = yield get(path_of("v1", "mcp", "servers"))
    return convert_views(read_answer(response), "servers", McpServerView)


def mcp_server(name: str) -> Operation[McpServerView]:
    response = yield get(path_of("v1", "mcp", "servers", name))
    return convert_view(read_answer(response), McpServerView)


def look_at_mcp_server(name: str) -> Operation[McpServerView]:
    """Has the server started, without hosts and secrets, to see what it offers."""
    path = path_of("v1", "mcp", "servers", name, "look")
    response = yield send_json("POST", path, {}, patience_ms=LOOK_PATIENCE_MS)
    return convert_view(read_answer(response), McpServerView)


def approve_mcp_tools(name: str, tools: Mapping[str, str]) -> Operation[McpServerView]:
    """``tools`` are those to approve, each with the digest of the definition that was reviewed."""
    response = yield send_json("POST", path_of("v1", "mcp", "servers", name, "approve"), {"tools": dict(tools)})
    return convert_view(read_answer(response), McpServerView)


# The endpoints for paired devices.


def nodes() -> Operation[tuple[NodeView, ...]]:
    """Every device that was ever paired, revoked ones included."""
    response = yield get(path_of("v1", "nodes"))
    return convert_views(read_answer(response), "nodes", NodeView)


def node(device: str) -> Operation[NodeView]:
    """One device, by id or name, with its newest requests."""
    response = yield get(path_of("v1", "nodes", device))
    return convert_view(read_answer(response), NodeView)


def revoke_node(device: str, *, reason: str | None = None) -> Operation[NodeView]:
    """Ends a device's access at once: its streams are cut and its certificates are void."""
    response = yield send_json("POST", path_of("v1", "nodes", device, "revoke"), {"reason": reason})
    return convert_view(read_answer(response), NodeView)


def withhold_capability(device: str, capability: str) -> Operation[NodeView]:
    """Nobody gets this of the device any more, whatever it reports when it registers again."""
    response = yield send_json("POST", path_of("v1", "nodes", device, "withhold"), {"capability": capability})
    return convert_view(read_answer(response), NodeView)


def allow_capability(device: str, capability: str) -> Operation[NodeView]:
    response = yield send_json("POST", path_of("v1", "nodes", device, "allow"), {"capability": capability})
    return convert_view(read_answer(response), NodeView)


# The endpoints of pairing: the request each makes and what its answer becomes.


def create_pairing_code(
    method: str = "pin", kind: str = "node", *, ttl_seconds: int | None = None
) -> Operation[NewPairingCode]:
    """A code for one new device, shown this once. The daemon listens for devices from then on."""
    body = {"method": method, "kind": kind, "ttl_seconds": ttl_seconds}
    response = yield send_json("POST", path_of("v1", "pairing", "codes"), body)
    data = read_answer(response)
    if not isinstance(data, dict) or not isinstance(data.get("code"), str):
        raise BadAnswer("the server made a code and did not show it")
    shown = {name: value for name, value in data.items() if name != "code"}
    return NewPairingCode(view=convert_view(shown, PairingCodeView), code=Secret(data["code"]))


def pairing_codes() -> Operation[tuple[PairingCodeView, ...]]:
    """The codes in force, without the codes themselves."""
    response = yield get(path_of("v1", "pairing", "codes"))
    return convert_views(read_answer(response), "codes", PairingCodeView)


def withdraw_pairing_code(code_id: str) -> Operation[PairingCodeView]:
    response = yield Request(method="DELETE", path=path_of("v1", "pairing", "codes", code_id))
    return convert_view(read_answer(response), PairingCodeView)


def pairings(state: str | None = "pending_approval") -> Operation[tuple[PairingView, ...]]:
    """The requests to pair in one state, the newest first, or all with ``state=None``."""
    response = yield get(path_of("v1", "pairing", "requests", query={"state": state}))
    return convert_views(read_answer(response), "pairings", PairingView)


def pairing(pairing_id: str) -> Operation[PairingView]:
    response = yield get(path_of("v1", "pairing", "requests", pairing_id))
    return convert_view(read_answer(response), PairingView)


def approve_pairing(
    pairing_id: str, *, comparison_code: str | None = None, reason: str | None = None
) -> Operation[PairingView]:
    """Lets a device join. With ``comparison_code``, as the device shows it, only the device that shows it."""
    body = {"decision": "approve", "comparison_code": comparison_code, "reason": reason}
    response = yield send_json("POST", path_of("v1", "pairing", "requests", pairing_id, "decision"), body)
    return convert_view(read_answer(response), PairingView)


def reject_pairing(pairing_id: str, *, reason: str | None = None) -> Operation[PairingView]:
    body = {"decision": "reject", "reason": reason}
    response = yield send_json("POST", path_of("v1", "pairing", "requests", pairing_id, "decision"), body)
    return convert_view(read_answer(response), PairingView)


# The endpoints for skills and their publishers.

# The largest archive over a slow line, and an audit or a compilation of it beside other work.
UPLOAD_PATIENCE_MS = 300_000

Change = Literal["disable", "enable", "quarantine", "rollback"]


def install_skill(archive: bytes) -> Operation[SkillVersionView]:
    """Puts an archive into quarantine; nothing of it runs before it is approved."""
    response = yield _upload(path_of("v1", "skills"), archive)
    return convert_view(read_answer(response), SkillVersionView)


def audit_skill(archive: bytes) -> Operation[SkillVersionView]:
    """What an installation would say of the archive. Nothing is kept."""
    response = yield _upload(path_of("v1", "skills", "audit"), archive)
    return convert_view(read_answer(response), SkillVersionView)


def skills(*, removed: bool = False) -> Operation[tuple[SkillView, ...]]:
    """What is installed; with ``removed`` the versions that were removed as well, which stay on record."""
    response = yield get(path_of("v1", "skills", query={"all": "true" if removed else None}))
    return convert_views(read_answer(response), "skills", SkillView)


def skill(skill_id: str) -> Operation[SkillView]:
    """One skill with the review of each version, and its history."""
    response = yield get(path_of("v1", "skills", skill_id))
    return convert_view(read_answer(response), SkillView)


def approve_skill(
    skill_id: str, version: str, digest: str, *, reason: str | None = None
) -> Operation[SkillVersionView]:
    """Puts exactly this archive in use, and waits until it is compiled."""
    body = {"version": version, "digest": digest, "reason": reason}
    path = path_of("v1", "skills", skill_id, "approve")
    response = yield send_json("POST", path, body, patience_ms=UPLOAD_PATIENCE_MS)
    return convert_view(read_answer(response), SkillVersionView)


def change_skill(
    skill_id: str, change: Change, *, version: str | None = None, reason: str | None = None
) -> Operation[SkillVersionView]:
    body = {"version": version, "reason": reason}
    response = yield send_json("POST", path_of("v1", "skills", skill_id, change), body)
    return convert_view(read_answer(response), SkillVersionView)


def remove_skill(skill_id: str, *, version: str | None = None) -> Operation[tuple[SkillVersionView, ...]]:
    """One version, or all of them."""
    response = yield Request(method="DELETE", path=path_of("v1", "skills", skill_id, query={"version": version}))
    return convert_views(read_answer(response), "removed", SkillVersionView)


def purge_skill(skill_id: str) -> Operation[ErasedDataView]:
    """Erases what a removed skill has stored."""
    response = yield Request(method="DELETE", path=path_of("v1", "skills", skill_id, "data"))
    return convert_view(read_answer(response), ErasedDataView)


def configure_skill(
    skill_id: str, configuration: Mapping[str, Any], *, version: str | None = None
) -> Operation[dict[str, Any]]:
    """The configuration with the defaults filled in."""
    body = {"configuration": dict(configuration), "version": version}
    response = yield send_json("PUT", path_of("v1", "skills", skill_id, "configuration"), body)
    data = read_answer(response)
    if not isinstance(data, dict) or not isinstance(data.get("configuration"), dict):
        raise BadAnswer("the server stored a configuration and did not show it")
    whole: dict[str, Any] = data["configuration"]
    return whole


def publishers() -> Operation[PublishersView]:
    response = yield get(path_of("v1", "publishers"))
    return convert_view(read_answer(response), PublishersView)


def add_publisher(publisher: str, public_key: bytes) -> Operation[PublisherKeyView]:
    """Trusts the raw Ed25519 key to sign for the publisher."""
    body = {"publisher": publisher, "public_key": base64.b64encode(public_key).decode("ascii")}
    response = yield send_json("POST", path_of("v1", "publishers"), body)
    return convert_view(read_answer(response), PublisherKeyView)


def remove_publisher(publisher: str, key_id: str) -> Operation[PublisherKeyView]:
    """Takes a key off the list; what it signed before stays installed."""
    response = yield Request(method="DELETE", path=path_of("v1", "publishers", publisher, key_id))
    return convert_view(read_answer(response), PublisherKeyView)


def rotate_publisher(statement: str) -> Operation[PublisherKeyView]:
    """Accepts a publisher's new key on the word of the old one."""
    response = yield send_json("POST", path_of("v1", "publishers", "rotation"), {"statement": statement})
    return convert_view(read_answer(response), PublisherKeyView)


def revoke_key(key_id: str, *, reason: str | None = None) -> Operation[tuple[SkillVersionView, ...]]:
    """Ends a key for good; returns the versions that were disabled with it."""
    body = {"key_id": key_id, "reason": reason}
    response = yield send_json("POST", path_of("v1", "publishers", "revocation"), body)
    return convert_views(read_answer(response), "disabled", SkillVersionView)


def _upload(path: str, archive: bytes) -> Request:
    headers = (("accept", "application/json"), ("content-type", "application/octet-stream"))
    return Request(method="POST", path=path, body=archive, headers=headers, patience_ms=UPLOAD_PATIENCE_MS)


# The endpoints for the worker fleet.


def workers() -> Operation[tuple[WorkerView, ...]]:
    """Every worker of the fleet, removed ones included for a while."""
    response = yield get(path_of("v1", "workers"))
    return convert_views(read_answer(response), "workers", WorkerView)


def worker(worker: str) -> Operation[WorkerView]:
    """One worker, by id or name, with its open leases."""
    response = yield get(path_of("v1", "workers", worker))
    return convert_view(read_answer(response), WorkerView)


def change_worker(worker: str, change: str, *, reason: str | None = None) -> Operation[WorkerView]:
    """``change`` is drain, resume, quarantine, release or remove."""
    response = yield send_json("POST", path_of("v1", "workers", worker, change), {"reason": reason})
    return convert_view(read_answer(response), WorkerView)


def leases(*, worker: str | None = None, ended: bool = False) -> Operation[tuple[LeaseView, ...]]:
    """The open leases, newest first; with ``ended`` those that are over as well, as far as the ledger keeps them."""
    query = {"worker": worker, "all": "true" if ended else None}
    response = yield get(path_of("v1", "leases", query=query))
    return convert_views(read_answer(response), "leases", LeaseView)


def lease(lease_id: str) -> Operation[LeaseView]:
    """One lease, with the end of what its call has printed while it runs."""
    response = yield get(path_of("v1", "leases", lease_id))
    return convert_view(read_answer(response), LeaseView)
