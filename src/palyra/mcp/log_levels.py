"""Which log messages a client wants of its calls: none before it has said so.

Clients of the revisions with a handshake say it once for their session; those after say it with a request, and the
library keeps to that itself.
"""

from collections import OrderedDict
from typing import Final, Literal

from palyra.mcp.limits import MAX_SESSIONS

# The least serious first, as the protocol orders them.
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
# A request of a newer revision asks for messages under this key of its ``_meta``.
REQUEST_LEVEL: Final = "io.modelcontextprotocol/logLevel"
# Entries of the journal that say a call was kept from doing what it was asked for.
_WARNINGS: Final = frozenset({"call.refused", "egress.refused", "skill.refused", "vault.use_denied"})

SessionKey = tuple[str, str, str]


def level_of(kind: str) -> Literal["info", "warning"]:
    """How serious an entry of the journal is to whoever made the call."""
    return "warning" if kind in _WARNINGS else "info"


class LogLevels:
    def __init__(self) -> None:
        self._least: OrderedDict[SessionKey, str] = OrderedDict()

    def choose(self, session: SessionKey, level: str) -> None:
        self._least.pop(session, None)
        self._least[session] = level
        while len(self._least) > MAX_SESSIONS:
            self._least.popitem(last=False)

    def any_wanted(self, session: SessionKey) -> bool:
        return session in self._least

    def wanted(self, session: SessionKey, level: str) -> bool:
        least = self._least.get(session)
        return least is not None and LEVELS.index(level) >= LEVELS.index(least)
