"""The endpoints for browser sessions, their downloads and profiles. What happens in a session goes through ``call``."""

from typing import Literal

from palyra.client.protocol import (
    Operation,
    Request,
    convert_view,
    convert_views,
    get,
    path_of,
    read_answer,
    send_json,
)
from palyra.client.views import AcceptedProfilesView, BrowserDownloadView, BrowserProfileView, BrowserSessionView

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
