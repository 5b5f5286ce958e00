"""The endpoints for operators: browser, identity, MCP servers, devices, pairing, skills and the fleet."""

import base64
from collections.abc import Mapping
from typing import Any, Literal

from palyra.client.protocol import (
    BadAnswer,
    Operation,
    Request,
    api_path,
    convert_view,
    delete,
    fetch_view,
    fetch_views,
    get,
    post,
    read_answer,
    send_json,
    take_secret,
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

SessionChange = Literal["close", "takeover", "handback"]


def browser_sessions() -> Operation[tuple[BrowserSessionView, ...]]:
    """List the browser sessions of all principals."""
    return fetch_views(get(api_path("browser", "sessions")), "sessions", BrowserSessionView)


def browser_session(session: str) -> Operation[BrowserSessionView]:
    return fetch_view(get(api_path("browser", "sessions", session)), BrowserSessionView)


def change_browser_session(
    session: str, change: SessionChange, *, reason: str | None = None
) -> Operation[BrowserSessionView]:
    """Close a session, take it over for a person, or hand it back."""
    return fetch_view(post(api_path("browser", "sessions", session, change), {"reason": reason}), BrowserSessionView)


def browser_downloads(session: str) -> Operation[tuple[BrowserDownloadView, ...]]:
    return fetch_views(get(api_path("browser", "sessions", session, "downloads")), "downloads", BrowserDownloadView)


def decide_browser_download(
    session: str, download: str, verdict: Literal["release", "delete"]
) -> Operation[BrowserDownloadView]:
    """Release a download from quarantine, or delete it. The journal records both with its digest."""
    place = ("browser", "sessions", session, "downloads", download)
    request = post(api_path(*place, "release"), {}) if verdict == "release" else delete(api_path(*place))
    return fetch_view(request, BrowserDownloadView)


def browser_profiles() -> Operation[tuple[BrowserProfileView, ...]]:
    return fetch_views(get(api_path("browser", "profiles")), "profiles", BrowserProfileView)


def create_browser_profile(
    principal: str, name: str, *, colour: str | None = None, private: bool = False
) -> Operation[BrowserProfileView]:
    body = {"principal": principal, "name": name, "colour": colour, "private": private}
    return fetch_view(post(api_path("browser", "profiles"), body), BrowserProfileView)


def change_browser_profile(profile: str, change: Literal["reset", "delete"]) -> Operation[BrowserProfileView]:
    """Empty a profile, or delete it."""
    place = ("browser", "profiles", profile)
    request = post(api_path(*place, "reset"), {}) if change == "reset" else delete(api_path(*place))
    return fetch_view(request, BrowserProfileView)


def accept_browser_profiles() -> Operation[AcceptedProfilesView]:
    """Accept an older copy of the profiles folder that somebody restored."""
    return fetch_view(post(api_path("browser", "profiles", "accept"), {}), AcceptedProfilesView)


def identity() -> Operation[IdentityView]:
    """List the authorities, newest first, and the devices that have or had a certificate."""
    return fetch_view(get(api_path("identity")), IdentityView)


def rotate_authority() -> Operation[IdentityView]:
    """Replace the authority that signs. The old one is trusted until its last certificate has ended."""
    return fetch_view(post(api_path("identity", "rotation"), {}), IdentityView)


# A server may take a while to start, on a machine that does much else.
LOOK_PATIENCE_MS = 60_000


def mcp_servers() -> Operation[tuple[McpServerView, ...]]:
    return fetch_views(get(api_path("mcp", "servers")), "servers", McpServerView)


def mcp_server(name: str) -> Operation[McpServerView]:
    return fetch_view(get(api_path("mcp", "servers", name)), McpServerView)


def look_at_mcp_server(name: str) -> Operation[McpServerView]:
    """Start the server, without hosts and secrets, to see what it offers."""
    path = api_path("mcp", "servers", name, "look")
    return fetch_view(post(path, {}, patience_ms=LOOK_PATIENCE_MS), McpServerView)


def approve_mcp_tools(name: str, tools: Mapping[str, str]) -> Operation[McpServerView]:
    """Approve ``tools``, each with the digest of the definition that was reviewed."""
    return fetch_view(post(api_path("mcp", "servers", name, "approve"), {"tools": dict(tools)}), McpServerView)


def nodes() -> Operation[tuple[NodeView, ...]]:
    """List every device that was ever paired, revoked ones included."""
    return fetch_views(get(api_path("nodes")), "nodes", NodeView)


def node(device: str) -> Operation[NodeView]:
    """Show one device, by id or name, with its newest requests."""
    return fetch_view(get(api_path("nodes", device)), NodeView)


def revoke_node(device: str, *, reason: str | None = None) -> Operation[NodeView]:
    """End a device's access at once: cut its streams and void its certificates."""
    return fetch_view(post(api_path("nodes", device, "revoke"), {"reason": reason}), NodeView)


def withhold_capability(device: str, capability: str) -> Operation[NodeView]:
    """Withhold a capability of the device, whatever the device reports when it registers again."""
    return fetch_view(post(api_path("nodes", device, "withhold"), {"capability": capability}), NodeView)


def allow_capability(device: str, capability: str) -> Operation[NodeView]:
    return fetch_view(post(api_path("nodes", device, "allow"), {"capability": capability}), NodeView)


def create_pairing_code(
    method: str = "pin", kind: str = "node", *, ttl_seconds: int | None = None
) -> Operation[NewPairingCode]:
    """Make a code for one new device. It is shown once; the daemon listens for devices from then on."""
    body = {"method": method, "kind": kind, "ttl_seconds": ttl_seconds}
    response = yield post(api_path("pairing", "codes"), body)
    code, shown = take_secret(read_answer(response), "code")
    return NewPairingCode(view=convert_view(shown, PairingCodeView), code=code)


def pairing_codes() -> Operation[tuple[PairingCodeView, ...]]:
    """List the codes in force, without their secrets."""
    return fetch_views(get(api_path("pairing", "codes")), "codes", PairingCodeView)


def withdraw_pairing_code(code_id: str) -> Operation[PairingCodeView]:
    return fetch_view(delete(api_path("pairing", "codes", code_id)), PairingCodeView)


def pairings(state: str | None = "pending_approval") -> Operation[tuple[PairingView, ...]]:
    """List the requests to pair in one state, newest first, or all with ``state=None``."""
    return fetch_views(get(api_path("pairing", "requests", query={"state": state})), "pairings", PairingView)


def pairing(pairing_id: str) -> Operation[PairingView]:
    return fetch_view(get(api_path("pairing", "requests", pairing_id)), PairingView)


def approve_pairing(
    pairing_id: str, *, comparison_code: str | None = None, reason: str | None = None
) -> Operation[PairingView]:
    """Let a device join. With ``comparison_code``, only the device that shows this code may join."""
    body = {"decision": "approve", "comparison_code": comparison_code, "reason": reason}
    return fetch_view(post(api_path("pairing", "requests", pairing_id, "decision"), body), PairingView)


def reject_pairing(pairing_id: str, *, reason: str | None = None) -> Operation[PairingView]:
    body = {"decision": "reject", "reason": reason}
    return fetch_view(post(api_path("pairing", "requests", pairing_id, "decision"), body), PairingView)


# The largest archive over a slow line, and an audit or a compilation of it beside other work.
UPLOAD_PATIENCE_MS = 300_000

Change = Literal["disable", "enable", "quarantine", "rollback"]


def install_skill(archive: bytes) -> Operation[SkillVersionView]:
    """Put an archive into quarantine. Nothing of it runs before approval."""
    return fetch_view(_upload(api_path("skills"), archive), SkillVersionView)


def audit_skill(archive: bytes) -> Operation[SkillVersionView]:
    """Review the archive as an installation would, and keep nothing."""
    return fetch_view(_upload(api_path("skills", "audit"), archive), SkillVersionView)


def skills(*, removed: bool = False) -> Operation[tuple[SkillView, ...]]:
    """List the installed skills; with ``removed`` also the versions that were removed."""
    return fetch_views(get(api_path("skills", query={"all": "true" if removed else None})), "skills", SkillView)


def skill(skill_id: str) -> Operation[SkillView]:
    """Show one skill with the review of each version and its history."""
    return fetch_view(get(api_path("skills", skill_id)), SkillView)


def approve_skill(
    skill_id: str, version: str, digest: str, *, reason: str | None = None
) -> Operation[SkillVersionView]:
    """Put exactly this archive in use, and wait until it is compiled."""
    body = {"version": version, "digest": digest, "reason": reason}
    path = api_path("skills", skill_id, "approve")
    return fetch_view(post(path, body, patience_ms=UPLOAD_PATIENCE_MS), SkillVersionView)


def change_skill(
    skill_id: str, change: Change, *, version: str | None = None, reason: str | None = None
) -> Operation[SkillVersionView]:
    body = {"version": version, "reason": reason}
    return fetch_view(post(api_path("skills", skill_id, change), body), SkillVersionView)


def remove_skill(skill_id: str, *, version: str | None = None) -> Operation[tuple[SkillVersionView, ...]]:
    """Remove one version, or all."""
    return fetch_views(
        delete(api_path("skills", skill_id, query={"version": version})),
        "removed",
        SkillVersionView,
    )


def purge_skill(skill_id: str) -> Operation[ErasedDataView]:
    """Erase the data that a removed skill has stored."""
    return fetch_view(delete(api_path("skills", skill_id, "data")), ErasedDataView)


def configure_skill(
    skill_id: str, configuration: Mapping[str, Any], *, version: str | None = None
) -> Operation[dict[str, Any]]:
    """Store the configuration; return it with the defaults filled in."""
    body = {"configuration": dict(configuration), "version": version}
    response = yield send_json("PUT", api_path("skills", skill_id, "configuration"), body)
    data = read_answer(response)
    if not isinstance(data, dict) or not isinstance(data.get("configuration"), dict):
        raise BadAnswer("the server stored a configuration and did not show it")
    whole: dict[str, Any] = data["configuration"]
    return whole


def publishers() -> Operation[PublishersView]:
    return fetch_view(get(api_path("publishers")), PublishersView)


def add_publisher(publisher: str, public_key: bytes) -> Operation[PublisherKeyView]:
    """Trust the raw Ed25519 key to sign for the publisher."""
    body = {"publisher": publisher, "public_key": base64.b64encode(public_key).decode("ascii")}
    return fetch_view(post(api_path("publishers"), body), PublisherKeyView)


def remove_publisher(publisher: str, key_id: str) -> Operation[PublisherKeyView]:
    """Remove a key from the list. Skills that it signed stay installed."""
    return fetch_view(delete(api_path("publishers", publisher, key_id)), PublisherKeyView)


def rotate_publisher(statement: str) -> Operation[PublisherKeyView]:
    """Accept a publisher's new key, which the old key signed."""
    return fetch_view(post(api_path("publishers", "rotation"), {"statement": statement}), PublisherKeyView)


def revoke_key(key_id: str, *, reason: str | None = None) -> Operation[tuple[SkillVersionView, ...]]:
    """Revoke a key for good; return the versions that were disabled with it."""
    body = {"key_id": key_id, "reason": reason}
    return fetch_views(post(api_path("publishers", "revocation"), body), "disabled", SkillVersionView)


def _upload(path: str, archive: bytes) -> Request:
    headers = (("accept", "application/json"), ("content-type", "application/octet-stream"))
    return Request(method="POST", path=path, body=archive, headers=headers, patience_ms=UPLOAD_PATIENCE_MS)


def workers() -> Operation[tuple[WorkerView, ...]]:
    """List the workers of the fleet, with those removed lately."""
    return fetch_views(get(api_path("workers")), "workers", WorkerView)


def worker(worker: str) -> Operation[WorkerView]:
    """Show one worker, by id or name, with its open leases."""
    return fetch_view(get(api_path("workers", worker)), WorkerView)


def change_worker(worker: str, change: str, *, reason: str | None = None) -> Operation[WorkerView]:
    """Change a worker's state: drain, resume, quarantine, release or remove."""
    return fetch_view(post(api_path("workers", worker, change), {"reason": reason}), WorkerView)


def leases(*, worker: str | None = None, ended: bool = False) -> Operation[tuple[LeaseView, ...]]:
    """List the open leases, newest first; with ``ended`` also the ended ones that the ledger still keeps."""
    query = {"worker": worker, "all": "true" if ended else None}
    return fetch_views(get(api_path("leases", query=query)), "leases", LeaseView)


def lease(lease_id: str) -> Operation[LeaseView]:
    """Show one lease; while its call runs, with the end of the call's output."""
    return fetch_view(get(api_path("leases", lease_id)), LeaseView)
