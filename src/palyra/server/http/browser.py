"""``/v1/browser``: an operator's view of browser sessions, their downloads, and profiles."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from palyra.browser.domain.limits import MAX_REASON_CHARS
from palyra.executors.browser.arguments import MAX_NAME_CHARS
from palyra.ids import Principal
from palyra.server.context import ApiService
from palyra.server.http.envelope import answer, read_into
from palyra.server.http.route_schema import PrincipalText, describe


class BrowserSessionData(TypedDict):
    """``run_id`` is empty for a session that no call of this daemon opened.

    ``fences`` are the isolation layers around its browser, each as requested and as observed.
    """

    session_id: str
    principal: str
    run_id: str
    state: str
    label: str
    profile_id: str
    persistent: bool
    created_ms: int
    ends_ms: int
    idle_ends_ms: int
    budget: dict[str, int]
    spent: dict[str, int]
    hosts: list[str]
    private_targets: list[str]
    any_public_host: bool
    allow_evaluate: bool
    tabs: list[dict[str, Any]]
    product: str
    operator: str
    fences: list[dict[str, Any]]
    channel: NotRequired[str]
    approved: NotRequired[bool]


class BrowserSessionList(TypedDict):
    sessions: list[BrowserSessionData]


class ClosedBrowserData(TypedDict):
    session_id: str
    closed: bool
    saved: bool
    revision: int
    problem_code: str
    problem_message: str


class BrowserDownloadData(TypedDict):
    id: str
    name: str
    size: int
    digest: str
    source: str
    state: Literal["ready", "incomplete", "quarantined", "refused"]
    reasons: list[str]
    released_by: str


class BrowserDownloadList(TypedDict):
    downloads: list[BrowserDownloadData]


class BrowserProfileData(TypedDict):
    profile_id: str
    principal: str
    name: str
    colour: str
    persistence: bool
    private: bool
    created_ms: int
    updated_ms: int
    revision: int
    size: int
    damaged: str
    session_id: str


class BrowserProfileList(TypedDict):
    """``rolled_back``: the folder is an older copy or was emptied. No profile is used until an operator accepts it."""

    profiles: list[BrowserProfileData]
    rolled_back: bool


class AcceptedProfilesData(TypedDict):
    """Numbers of changes: the newest that was recorded, the newest of the older copy, and the present one."""

    heard: int
    found: int
    generation: int


CREATED = 201


class TakeOverBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)] = ""


# For the document only: the service refuses other values, with its own code.
_VISIBLE = {"format": "visible-text"}
_COLOUR = {"pattern": "^(#[0-9a-f]{6})?$"}


class NewProfileBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    principal: PrincipalText
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS, extra_json_schema=_VISIBLE)]
    colour: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS, extra_json_schema=_COLOUR)] = ""
    private: bool = False


def _operator(service: ApiService, request: Request) -> str:
    caller = service.admit_operator(request, "browser.manage")
    return str(caller.principal)


@describe("Every browser session there is.", data=BrowserSessionList)
async def list_sessions(service: ApiService, request: Request) -> Response:
    return answer({"sessions": await service.browser().sessions(_operator(service, request))})


@describe("One browser session.", data=BrowserSessionData)
async def show_session(service: ApiService, request: Request) -> Response:
    actor = _operator(service, request)
    return answer(await service.browser().session(request.path_params["session"], actor))


@describe("Ends a browser session.", data=ClosedBrowserData)
async def close_session(service: ApiService, request: Request) -> Response:
    actor = _operator(service, request)
    return answer(await service.browser().close(request.path_params["session"], actor))


@describe("A person takes the session over.", body=TakeOverBody, data=BrowserSessionData)
async def take_over(service: ApiService, request: Request) -> Response:
    actor = _operator(service, request)
    body = await read_into(request, TakeOverBody)
    return answer(await service.browser().take_over(request.path_params["session"], actor, body.reason))


@describe("The person hands the session back.", data=BrowserSessionData)
async def hand_back(service: ApiService, request: Request) -> Response:
    actor = _operator(service, request)
    return answer(await service.browser().hand_back(request.path_params["session"], actor))


@describe("What a session downloaded.", data=BrowserDownloadList)
async def list_downloads(service: ApiService, request: Request) -> Response:
    actor = _operator(service, request)
    return answer({"downloads": await service.browser().downloads(request.path_params["session"], actor)})


@describe("Lets a download out of quarantine.", data=BrowserDownloadData)
async def release_download(service: ApiService, request: Request) -> Response:
    actor, where = _operator(service, request), request.path_params
    return answer(await service.browser().release(where["session"], where["download"], actor))


@describe("Deletes a download.", data=BrowserDownloadData)
async def delete_download(service: ApiService, request: Request) -> Response:
    actor, where = _operator(service, request), request.path_params
    return answer(await service.browser().delete(where["session"], where["download"], actor))


@describe("Every browser profile there is.", data=BrowserProfileList)
async def list_profiles(service: ApiService, request: Request) -> Response:
    profiles = await service.browser().profiles(_operator(service, request))
    return answer({"profiles": profiles, "rolled_back": service.browser().profiles_rolled_back})


@describe("Makes a profile for a principal.", body=NewProfileBody, data=BrowserProfileData, status=CREATED)
async def create_profile(service: ApiService, request: Request) -> Response:
    actor = _operator(service, request)
    body = await read_into(request, NewProfileBody)
    made = await service.browser().create_profile(
        Principal.parse(body.principal), body.name, actor, colour=body.colour, private=body.private
    )
    return answer(made, CREATED)


@describe("Goes on from an older copy of the folder of profiles.", data=AcceptedProfilesData)
async def accept_profiles(service: ApiService, request: Request) -> Response:
    return answer(await service.browser().accept_profiles(_operator(service, request)))


@describe("Empties a profile: its logins are gone.", data=BrowserProfileData)
async def reset_profile(service: ApiService, request: Request) -> Response:
    actor = _operator(service, request)
    return answer(await service.browser().reset_profile(request.path_params["profile"], actor))


@describe("Deletes a profile with everything in it.", data=BrowserProfileData)
async def delete_profile(service: ApiService, request: Request) -> Response:
    actor = _operator(service, request)
    return answer(await service.browser().delete_profile(request.path_params["profile"], actor))
