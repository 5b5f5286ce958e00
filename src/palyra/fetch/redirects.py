"""Where an answer sends the request next, and what may go along.

A redirect is the server's wish, not the caller's: it leads only where the judge lets any request go, never from https
down to http, never in a circle, and to another host it takes nothing along that was meant for the first: no
credentials, no cookies, no header but a harmless few, and no body.
"""

from typing import Final

import msgspec

from palyra.errors import Denied, LimitExceeded
from palyra.fetch.header_rules import Headers, for_another_host, without_body
from palyra.fetch.limits import MAX_REDIRECTS
from palyra.fetch.request import FetchRequest, RedirectMode
from palyra.fetch.web_address import BadUrl, WebAddress

_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_KEEPS_METHOD: Final = frozenset((307, 308))


class RedirectRefused(Denied):
    code = "fetch.redirect_refused"
    hint = "look at where it leads (redirect = manual), and fetch that address by itself if it is right"


class TooManyRedirects(LimitExceeded):
    code = "fetch.too_many_redirects"
    hint = "fetch the last address by itself if it is right"


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """A redirect that was followed, for the result."""

    status: int
    source: str
    destination: str


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a call. ``with_credentials`` is lost with the first change of host and never comes back."""

    address: WebAddress
    method: str
    headers: Headers
    body: bytes | None
    with_credentials: bool = True
    passed: tuple[Passed, ...] = ()
    visited: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def first(cls, request: FetchRequest) -> "Hop":
        return cls(
            address=request.address,
            method=request.method,
            headers=request.headers,
            body=request.body,
            visited=frozenset({(request.method, str(request.address))}),
        )


def is_redirect(status: int) -> bool:
    return status in _REDIRECTS


def next_hop(hop: Hop, status: int, location: str, mode: RedirectMode) -> Hop:
    """The request to make after a redirect. Raises ``RedirectRefused``, ``TooManyRedirects`` or an egress refusal."""
    if mode is not RedirectMode.FOLLOW:
        raise refused(hop, status, location, "the call says to follow none")
    try:
        address = hop.address.join(location)
    except BadUrl as error:
        raise refused(hop, status, location, error.message) from error
    if len(hop.passed) >= MAX_REDIRECTS:
        raise TooManyRedirects(
            f"{MAX_REDIRECTS} redirects were followed and there is another", redirects=_shown(hop.passed)
        )
    if hop.address.target.scheme == "https" and address.target.scheme != "https":
        raise refused(hop, status, location, "it leads from https down to http")
    method, headers, body = hop.method, hop.headers, hop.body
    if (status == 303 and method != "HEAD") or (status not in _KEEPS_METHOD and method == "POST"):
        method, headers, body = "GET", without_body(headers), None
    with_credentials = hop.with_credentials
    if address.target != hop.address.target:
        if body:
            raise refused(hop, status, location, "it would send the request's body to another host")
        with_credentials, headers = False, for_another_host(headers)
    visit = (method, str(address))
    if visit in hop.visited:
        raise refused(hop, status, location, "it leads in a circle")
    return Hop(
        address=address,
        method=method,
        headers=headers,
        body=body,
        with_credentials=with_credentials,
        passed=(*hop.passed, Passed(status=status, source=str(hop.address), destination=str(address))),
        visited=hop.visited | {visit},
    )


def refused(hop: Hop, status: int, location: str, why: str) -> RedirectRefused:
    return RedirectRefused(
        f"the answer {status} of {hop.address.target.authority} is a redirect that is not followed: {why}",
        status=status,
        location="".join(character if " " <= character <= "~" else "?" for character in location[:512]),
        redirects=_shown(hop.passed),
    )


def _shown(passed: tuple[Passed, ...]) -> list[dict[str, object]]:
    return [msgspec.to_builtins(each) for each in passed]
