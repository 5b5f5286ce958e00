"""``/v1/skills``, ``/v1/publishers`` and ``/v1/channels``: skills, for operators, and the messages that skills send."""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator
from typing import Annotated, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.clock import rfc3339
from palyra.errors import LimitExceeded
from palyra.executors.wasm.channels import Listening
from palyra.server.context import ApiService
from palyra.server.http.envelope import WrongShape, answer, answer_events, read_bytes, read_into, read_query, to_view
from palyra.server.http.route_schema import ChannelText, FreeObject, describe
from palyra.server.http.views import (
    ApprovedVersion,
    AuditData,
    ConfigurationData,
    ErasedData,
    KeyRevocation,
    PublisherKeyData,
    PublisherList,
    RemovedVersions,
    ReviewData,
    ReviewedVersion,
    SkillData,
    SkillDetails,
    SkillHistoryEntry,
    SkillList,
    SkillVersionData,
    UnreadableKeyData,
)
from palyra.skills.limits import MAX_ARTIFACT_BYTES, MAX_PUBLISHER_CHARS, MAX_REASON_CHARS
from palyra.skills.package.manifest import PUBLISHER, SkillManifest
from palyra.skills.registry.lifecycle import SkillState
from palyra.skills.registry.records import SkillVersion
from palyra.skills.trust.capability_difference import CapabilityDifference, capability_lines
from palyra.skills.trust.findings import Severity
from palyra.skills.trust.publisher_keys import PublisherKey

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
KEEP_ALIVE_SECONDS: Final = 15.0


class TooManyListeners(LimitExceeded):
    code = "channel.too_many_listeners"
    hint = "end some of the programs that follow channels"


@describe("What skills send to a channel from now on.", answers="events", path={"name": ChannelText})
async def follow_channel(service: ApiService, request: Request) -> Response:
    """Stream messages from now on. Earlier ones are in the journal."""
    service.require_permitted(service.caller(request), "journal.read")
    name = request.path_params["name"]
    if not _NAME.fullmatch(name):
        raise WrongShape(f"{name[:128]!r} is not a name of a channel")
    listening = service.channels().listen(name)
    if listening is None:
        raise TooManyListeners("the limit of programs that follow channels is reached")
    return answer_events(_messages(service, listening))


async def _messages(service: ApiService, listening: Listening) -> AsyncIterator[bytes]:
    with listening, service.streaming(listening):
        # A client that has read this line gets every later message.
        yield b": listening\n\n"
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    message = await anext(listening)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            except StopAsyncIteration:
                return
            yield b"event: channel.message\nid: %d\ndata: %s\n\n" % (message.seq, msgspec.json.encode(message))


Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)]


class ApprovalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: str
    digest: str
    reason: Reason = ""


class ChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: str | None = None
    reason: Reason = ""


class PauseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names no version: the change is about the version in use."""

    reason: Reason = ""


class SkillQuery(msgspec.Struct, frozen=True, kw_only=True):
    all: Literal["true", "false"] = "false"


class RemovalQuery(msgspec.Struct, frozen=True, kw_only=True):
    version: str | None = None


class ConfigurationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    configuration: FreeObject
    version: str | None = None


class PublisherBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    publisher: Annotated[str, msgspec.Meta(max_length=MAX_PUBLISHER_CHARS, pattern=rf"^{PUBLISHER.pattern.pattern}\Z")]
    public_key: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[A-Za-z0-9+/]{43}=$"})]


class RotationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    statement: str


class RevocationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key_id: Annotated[str, msgspec.Meta(pattern=r"^ed25519:[0-9a-f]{32}$")]
    reason: Reason = ""


@describe("The installed skills.", query=SkillQuery, data=SkillList)
async def list_skills(service: ApiService, request: Request) -> Response:
    """List the skills. Removed versions, which stay on record, are listed with ``all=true`` only."""
    service.admit_operator(request, "skill.manage")
    everything = read_query(request, SkillQuery).all == "true"
    found, left_out = await asyncio.to_thread(find_skills, service, everything=everything)
    return answer({"skills": [skill_view(one) for one in found], "removed_left_out": left_out})


class InstalledSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill with its versions, the newest first. ``shown`` is the one in use, or the newest."""

    skill_id: str
    shown: SkillVersion
    in_use: SkillVersion | None
    versions: list[SkillVersion]

    @property
    def waiting(self) -> list[SkillVersion]:
        return [one for one in self.versions if one.state is SkillState.QUARANTINED]


def find_skills(service: ApiService, *, everything: bool) -> tuple[list[InstalledSkill], int]:
    """Return the skills, and the number of removed versions that were omitted."""
    found, left_out = [], 0
    for skill_id, known in service.skills().index.listed():
        versions = [one for one in known if everything or one.state is not SkillState.REMOVED]
        left_out += len(known) - len(versions)
        if versions:
            in_use = next((one for one in versions if one.state is SkillState.APPROVED), None)
            shown = in_use or versions[0]
            found.append(InstalledSkill(skill_id=skill_id, shown=shown, in_use=in_use, versions=versions))
    return found, left_out


def skill_view(skill: InstalledSkill) -> SkillData:
    return {
        "skill_id": skill.skill_id,
        "name": skill.shown.manifest.name,
        "publisher": skill.shown.publisher,
        "active_version": None if skill.in_use is None else skill.in_use.version,
        "versions": [version_view(version) for version in skill.versions],
    }


@describe("Installs an archive into quarantine.", accepts="archive", data=ReviewedVersion, status=201)
async def install_skill(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "skill.manage")
    raw = await read_bytes(request, MAX_ARTIFACT_BYTES)
    version = await service.skills().install(raw, actor=caller.actor)
    details = await service.skills().details(version.skill_id)
    difference = details.differences[version.digest]
    return answer({**version_view(version), **_review(service, version, difference)}, 201)


@describe("Judges an archive as an installation would, and keeps nothing.", accepts="archive", data=AuditData)
async def audit_skill(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "skill.manage")
    judged = await service.skills().judge(await read_bytes(request, MAX_ARTIFACT_BYTES))
    return answer(
        to_view(
            AuditData,
            judged,
            skill_id=judged.manifest.skill_id,
            version=judged.manifest.version,
            publisher=judged.manifest.publisher,
            findings=judged.report.findings,
        )
    )


@describe("One skill with its versions and its history.", data=SkillDetails)
async def show_skill(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "skill.manage")
    skill_id = request.path_params["skill_id"]
    details = await service.skills().details(skill_id)
    owner = await asyncio.to_thread(service.skills().index.owner, skill_id)
    return answer(
        {
            "skill_id": skill_id,
            "publisher": details.versions[0].publisher,
            "newest_approved": None if owner is None else owner.newest_approved,
            "versions": [
                {
                    **version_view(version),
                    **_review(service, version, details.differences[version.digest]),
                    "configuration": details.configurations.get(version.version, {}),
                    "problem": details.problems.get(version.digest),
                }
                for version in details.versions
            ],
            "history": [to_view(SkillHistoryEntry, entry, time=rfc3339(entry.time_ms)) for entry in details.history],
            **({"kept_folder": details.kept_folder} if details.kept_folder else {}),
        }
    )


@describe("Puts exactly this archive in use.", body=ApprovalBody, data=ApprovedVersion)
async def approve_skill(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "skill.manage")
    body = await read_into(request, ApprovalBody)
    version = await service.skills().approve(
        request.path_params["skill_id"], body.version, body.digest, actor=caller.actor, reason=body.reason
    )
    # It is in use now. Answer when it is compiled: a module with an interpreter in it takes half a minute.
    await service.prepare_skills()
    return answer({**version_view(version), "gets_less": list(service.gets_less(version.manifest.capabilities))})


@describe("Disables or enables the version in use.", body=PauseBody, data=SkillVersionData)
async def pause_skill(service: ApiService, request: Request) -> Response:
    """Apply the last word of the path."""
    caller = service.admit_operator(request, "skill.manage")
    body = await read_into(request, PauseBody)
    pause = service.skills().disable if request.url.path.endswith("/disable") else service.skills().enable
    version = await pause(request.path_params["skill_id"], actor=caller.actor, reason=body.reason)
    return answer(version_view(version))


@describe("Quarantines a version, or rolls back to one.", body=ChangeBody, data=SkillVersionData)
async def change_skill(service: ApiService, request: Request) -> Response:
    """Apply the last word of the path."""
    caller = service.admit_operator(request, "skill.manage")
    body = await read_into(request, ChangeBody)
    skill_id, skills = request.path_params["skill_id"], service.skills()
    why: dict[str, str] = {"actor": caller.actor, "reason": body.reason}
    change = skills.quarantine if request.url.path.endswith("/quarantine") else skills.rollback
    version = await change(skill_id, body.version, **why)
    return answer(version_view(version))


@describe("Removes one version or all.", query=RemovalQuery, data=RemovedVersions)
async def remove_skill(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "skill.manage")
    removed = await service.skills().remove(
        request.path_params["skill_id"], read_query(request, RemovalQuery).version, actor=caller.actor
    )
    return answer({"removed": [version_view(version) for version in removed]})


@describe("Erases what a removed skill has stored.", data=ErasedData)
async def purge_skill(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "skill.manage")
    erased = await service.skills().purge(request.path_params["skill_id"], actor=caller.actor)
    return answer({"values": erased.values, "bytes": erased.bytes})


@describe("Sets the configuration of a version.", body=ConfigurationBody, data=ConfigurationData)
async def configure_skill(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "skill.manage")
    body = await read_into(request, ConfigurationBody)
    whole = await service.skills().configure(
        request.path_params["skill_id"], body.configuration, body.version, actor=caller.actor
    )
    return answer({"configuration": whole})


@describe("The keys of publishers, those that cannot be read, and those revoked.", data=PublisherList)
async def list_publishers(service: ApiService, request: Request) -> Response:
    service.admit_operator(request, "skill.manage")
    keys, revoked = await asyncio.to_thread(service.skills().publishers)
    unreadable = await asyncio.to_thread(service.skills().unreadable_keys)
    return answer(
        {
            "keys": [key_view(key) for key in keys],
            "unreadable": [
                to_view(UnreadableKeyData, one, problem=one.why, remedy=one.refusal().hint) for one in unreadable
            ],
            "revoked": [
                {
                    "key_id": one["key_id"],
                    "revoked_at": rfc3339(one["revoked_ms"]),
                    "revoked_by": one["revoked_by"],
                    "reason": one["reason"],
                }
                for one in revoked
            ],
        }
    )


@describe("Trusts a key to sign for a publisher.", body=PublisherBody, data=PublisherKeyData, status=201)
async def add_publisher(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "skill.manage")
    body = await read_into(request, PublisherBody)
    try:
        public_key = base64.b64decode(body.public_key.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        raise WrongShape("public_key is not base64") from None
    return answer(key_view(await service.skills().trust_publisher(body.publisher, public_key, actor=caller.actor)), 201)


@describe("Takes a key off the list.", data=PublisherKeyData)
async def remove_publisher(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "skill.manage")
    path = request.path_params
    return answer(
        key_view(await service.skills().distrust_publisher(path["publisher"], path["key_id"], actor=caller.actor))
    )


@describe("Accepts a publisher's new key.", body=RotationBody, data=PublisherKeyData)
async def rotate_publisher(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "skill.manage")
    body = await read_into(request, RotationBody)
    return answer(key_view(await service.skills().rotate_key(body.statement.encode(), actor=caller.actor)))


@describe("Ends a key for good.", body=RevocationBody, data=KeyRevocation)
async def revoke_key(service: ApiService, request: Request) -> Response:
    caller = service.admit_operator(request, "skill.manage")
    body = await read_into(request, RevocationBody)
    disabled = await service.skills().revoke_key(body.key_id, actor=caller.actor, reason=body.reason)
    return answer({"key_id": body.key_id, "disabled": [version_view(version) for version in disabled]})


def version_view(version: SkillVersion) -> SkillVersionData:
    severities = [finding.severity for finding in version.findings]
    errors, warnings = severities.count(Severity.ERROR), severities.count(Severity.WARNING)
    return to_view(SkillVersionData, version, errors=errors, warnings=warnings)


def key_view(key: PublisherKey) -> PublisherKeyData:
    return to_view(PublisherKeyData, key)


def _review(service: ApiService, version: SkillVersion, difference: CapabilityDifference) -> ReviewData:
    manifest: SkillManifest = version.manifest
    return {
        "manifest": msgspec.to_builtins(manifest),
        "tools": [str(manifest.tool_name(tool)) for tool in manifest.tools],
        "capabilities": list(capability_lines(manifest.capabilities)),
        "gets_less": list(service.gets_less(manifest.capabilities)),
        "difference": difference,
        "findings": list(version.findings),
    }
