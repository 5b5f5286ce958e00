"""Skills: installed versions, reviews with the differences to the version in use, and the skill builder."""

import asyncio
from typing import Annotated, Any, Literal

import msgspec

from palyra.errors import InvalidInput
from palyra.server.console.errors import BadQuery
from palyra.server.console.page import Listing, Page, Section, Visit, Write
from palyra.server.console.services import Console
from palyra.server.http.skills import find_skills, skill_view, version_view
from palyra.skills.build.generation import CandidateState
from palyra.skills.limits import MAX_REASON_CHARS

Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)]
MAX_NAME_CHARS = 128
MAX_PROMPT_CHARS = 20_000


class DigestMissing(InvalidInput):
    code = "console.digest_missing"
    hint = "approve exactly what was reviewed: send the version and its digest, as the page does"


class StatusBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Literal["approve", "quarantine", "disable", "enable", "rollback"]
    version: str | None = None
    digest: str | None = None
    reason: Reason = ""


_GIVEN = {"type": "string"}
_APPROVAL_NAMES_ITS_ARCHIVE = {
    "anyOf": [
        {"properties": {"status": {"enum": ["quarantine", "disable", "enable", "rollback"]}}},
        {"properties": {"version": _GIVEN, "digest": _GIVEN}, "required": ["version", "digest"]},
    ]
}


class ScaffoldBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    publisher: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)] = "local"
    language: Literal["c", "assemblyscript", "python", "rust", "wat"] = "c"
    prompt: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PROMPT_CHARS)]


class DiscardBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request that discards a candidate: it has no fields."""


async def show_skills(console: Console, visit: Visit) -> dict[str, Any]:
    rows, left_out = await asyncio.to_thread(find_skills, console.service, everything=_everything(visit))
    candidates = await asyncio.to_thread(console.candidates.all) if console.candidates.enabled else ()
    return {"rows": rows, "left_out": left_out, "candidates": candidates, "builder": console.candidates.enabled}


async def console_skills_list_handler(console: Console, visit: Visit) -> dict[str, Any]:
    rows, left_out = await asyncio.to_thread(find_skills, console.service, everything=_everything(visit))
    return {
        "removed_left_out": left_out,
        "skills": [{**skill_view(row), "status": row.shown.state.value} for row in rows],
    }


def _everything(visit: Visit) -> bool:
    """Return whether the list includes removed versions, which stay on record."""
    raw = visit.query("all")
    if raw not in ("", "1"):
        raise BadQuery("all is 1, or is not given")
    return bool(raw)


async def show_skill(console: Console, visit: Visit) -> dict[str, Any]:
    skill_id = visit.path("skill_id")
    details = await console.service.skills().details(skill_id)
    return {
        "title": details.versions[0].manifest.name or skill_id,
        "skill_id": skill_id,
        "details": details,
        "gets_less": {one.digest: console.service.gets_less(one.manifest.capabilities) for one in details.versions},
    }


async def show_candidate(console: Console, visit: Visit) -> dict[str, Any]:
    candidate, files, digest = await asyncio.to_thread(console.candidates.files, visit.path("candidate_id"))
    return {"title": candidate.skill_id, "candidate": candidate, "files": files, "digest": digest}


async def upsert_skill_status(console: Console, visit: Visit, body: StatusBody) -> Any:
    console.service.require_operator(visit.caller, "skill.manage")
    skills, skill_id = console.service.skills(), visit.path("skill_id")
    why: dict[str, str] = {"actor": visit.caller.actor, "reason": body.reason}
    match body.status:
        case "approve":
            if body.version is None or body.digest is None:
                raise DigestMissing("an approval names the version and the digest of its archive")
            changed = await skills.approve(skill_id, body.version, body.digest, **why)
        case "quarantine":
            changed = await skills.quarantine(skill_id, body.version, **why)
        case "rollback":
            changed = await skills.rollback(skill_id, body.version, **why)
        case "disable":
            changed = await skills.disable(skill_id, **why)
        case "enable":
            changed = await skills.enable(skill_id, **why)
    return version_view(changed)


async def write_skill_builder_scaffold(console: Console, visit: Visit, body: ScaffoldBody) -> dict[str, Any]:
    """Write a project from a description into quarantine. It is built and run only after a person promotes it."""
    console.service.require_operator(visit.caller, "skill.manage")
    made = await asyncio.to_thread(
        console.candidates.write_scaffold, body.name, body.publisher, body.language, body.prompt
    )
    return {"candidate_id": made.id, "skill_id": made.skill_id, "state": made.state.value}


async def discard_candidate(console: Console, visit: Visit, _body: DiscardBody) -> dict[str, Any]:
    console.service.require_operator(visit.caller, "skill.manage")
    candidate_id = visit.path("candidate_id")
    await asyncio.to_thread(console.candidates.discard, candidate_id)
    return {"candidate_id": candidate_id, "state": CandidateState.DISCARDED.value}


SECTION = Section(
    pages=(
        Page(
            path="/skills",
            template="skills.html",
            title="Skills",
            show=show_skills,
            live=("skill.", "console.action_done"),
        ),
        Page(
            path="/skills/candidates/{candidate_id}",
            template="candidate.html",
            title="Candidate",
            above="/skills",
            show=show_candidate,
        ),
        Page(
            path="/skills/{skill_id}",
            template="skill.html",
            title="Skill",
            above="/skills",
            show=show_skill,
            live=("skill.",),
        ),
    ),
    listings=(Listing(path="/console/v1/skills", show=console_skills_list_handler),),
    writes=(
        Write(
            path="/console/v1/skills/{skill_id}/status",
            name="skill.status",
            act=upsert_skill_status,
            body=StatusBody,
            body_rules=_APPROVAL_NAMES_ITS_ARCHIVE,
        ),
        Write(
            path="/console/v1/skills/builder",
            name="skill.scaffold",
            act=write_skill_builder_scaffold,
            body=ScaffoldBody,
        ),
        Write(
            path="/console/v1/skills/builder/{candidate_id}/discard",
            name="skill.discard",
            act=discard_candidate,
            body=DiscardBody,
        ),
    ),
)
