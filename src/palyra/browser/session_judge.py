"""The judge of a session's addresses: the guard's own, asked before Chromium opens anything.

It judges scheme, host and port. Addresses are the guard's matter: it looks names up itself, and dials what it judged.
"""

import re
from typing import Final

from palyra.egress.grant import EgressGrant
from palyra.egress.judge import EgressProxyPolicyService
from palyra.egress.refusal import OddTarget, shown
from palyra.egress.target import Target

# A WebSocket begins as a request, at the same host and port.
_AS_REQUEST: Final = {"ws": "http", "wss": "https"}
_PARTS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#\\]*)(.?)", re.DOTALL)
_ENDS_AN_AUTHORITY: Final = ("", "/", "?", "#")


class SessionRequestJudge:
    def __init__(self, service: EgressProxyPolicyService, grant: EgressGrant) -> None:
        self._service = service
        self._grant = grant

    async def judge_document(self, url: str) -> None:
        self._service.judge_target(self._grant, target_of(url))

    def judge_request(self, url: str) -> None:
        self._service.judge_target(self._grant, target_of(url))


def target_of(url: str) -> Target:
    """Of the part that says where to; the rest may be as long as pages make it."""
    found = _PARTS.match(url)
    if found is None or found.group(3) not in _ENDS_AN_AUTHORITY:
        raise OddTarget(f"{shown(url)!r} is no address of the web")
    scheme = found.group(1).lower()
    return Target.from_url(f"{_AS_REQUEST.get(scheme, scheme)}://{found.group(2)}/")
