"""How often a wrong token may be tried. Guessing one is hopeless anyway: this bounds what trying costs.

Wrong tries count against the token they name, so that whoever sends nonsense does not lock out the holder of a good
one; and against everybody together, so that naming many tokens gains nothing.
"""

import re
from collections import deque

from palyra.console.errors import TooManyLogins
from palyra.console.limits import LOGIN_WINDOW_SECONDS, MAX_WRONG_LOGINS, MAX_WRONG_LOGINS_PER_TOKEN

_NAMED = re.compile(r"plr_([0-7][0-9A-HJKMNP-TV-Z]{25})_")


class LoginThrottle:
    def __init__(self) -> None:
        self._wrong: deque[tuple[float, str]] = deque()

    def check(self, raw: str, now: float) -> None:
        """Raises when this one is not to be looked at."""
        self._forget(now)
        name = _name_of(raw)
        of_this = sum(1 for _, other in self._wrong if other == name)
        if of_this >= MAX_WRONG_LOGINS_PER_TOKEN or len(self._wrong) >= MAX_WRONG_LOGINS:
            raise TooManyLogins("too many wrong tokens were tried", retry_after_seconds=int(LOGIN_WINDOW_SECONDS))

    def wrong(self, raw: str, now: float) -> None:
        self._forget(now)
        if len(self._wrong) < MAX_WRONG_LOGINS:
            self._wrong.append((now, _name_of(raw)))

    def _forget(self, now: float) -> None:
        while self._wrong and now - self._wrong[0][0] >= LOGIN_WINDOW_SECONDS:
            self._wrong.popleft()


def _name_of(raw: str) -> str:
    """The token's public part. What has none counts as one and the same."""
    match = _NAMED.match(raw)
    return match[1] if match else ""
