"""The console's JSON routes as ``/openapi.json`` shows them, made from what its sections offer."""

from collections.abc import Iterator
from typing import Any

from palyra.api.described import RouteShape
from palyra.api.openapi import DescribedRoute
from palyra.console.login import LoginBody
from palyra.console.sections import SECTIONS

_SESSION = "/console/v1/session"


def described_routes() -> Iterator[DescribedRoute]:
    for section in SECTIONS:
        for listing in section.listings:
            yield _route("GET", listing.path, f"Lists what the page shows; for the role {listing.role.value}.")
        for write in section.writes:
            told = f"{write.name}, recorded before and after; for the role {write.role.value}. Needs the CSRF header."
            yield _route(write.method, write.path, told, body=write.body, body_rules=write.body_rules)
        for download in section.downloads:
            told = f"{download.name}, recorded; for the role {download.role.value}."
            yield _route("GET", download.path, told, answers=download.answers)
    yield _route("POST", _SESSION, "Opens a web session for a token.", body=LoginBody, access="open", status=201)
    yield _route("GET", _SESSION, "The web session as it stands.")
    yield _route("DELETE", _SESSION, "Ends the web session.")
    yield _route("GET", "/console/v1/events", "What happens, as it happens.", answers="events")


def _route(method: str, path: str, summary: str, **shape: Any) -> DescribedRoute:
    words = path.replace("{", "").replace("}", "").strip("/").replace("/", "_").replace("-", "_")
    told = RouteShape(**{"summary": summary, "access": "session", "refuses": "problem", **shape})
    return DescribedRoute(method=method, path=path, name=f"{method.lower()}_{words}", shape=told)
