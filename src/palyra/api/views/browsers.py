"""The data of answers about browser sessions, their downloads, and profiles."""

from typing import Any, Literal, NotRequired, TypedDict


class BrowserSessionData(TypedDict):
    """``run_id`` is empty for a session that no call of this daemon opened. ``fences`` are those around its browser,
    each with what was asked and what was seen."""

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
    """``rolled_back``: their folder is an older copy of itself, or was emptied; none is used until it is accepted."""

    profiles: list[BrowserProfileData]
    rolled_back: bool


class AcceptedProfilesData(TypedDict):
    """Numbers of changes: the last that was heard of, the last of the older copy, and what it has now."""

    heard: int
    found: int
    generation: int
