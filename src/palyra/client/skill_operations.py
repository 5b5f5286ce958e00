"""The endpoints for skills and their publishers."""

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
from palyra.client.views import ErasedDataView, PublisherKeyView, PublishersView, SkillVersionView, SkillView

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
