"""The budget of one browser session: requested, clamped to the configured ceiling, and counted.

Every field is the smaller of the requested and the configured value, so a caller can only ask for less. The length of
the action window is not a field: a shorter window would be a looser limit.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from palyra.errors import InvalidInput, LimitExceeded
from palyra.limits import KIB, MIB

# The span in which `max_actions_per_window` counts.
ACTION_WINDOW_MS: Final = 1_000
# Beyond any session's use; keeps sums of fields within what every client's integers hold.
MAX_BUDGET_VALUE: Final = 2**40
_MS: Final = 1_000.0


class BadBudget(InvalidInput):
    code = "browser.bad_budget"
    hint = "name fields of the session budget with whole numbers; 0 is allowed only for downloads and network bytes"


class BudgetSpent(LimitExceeded):
    """A count of the whole session reached its end. Waiting does not bring it back."""

    code = "browser.budget_spent"
    hint = "close this session and open another, or ask the operator for a higher ceiling"


class TooFast(LimitExceeded):
    code = "browser.too_many_actions"
    hint = "wait for the time that `retry_after_ms` says, or send several actions at a slower pace"


class TooLarge(LimitExceeded):
    """One request or reply exceeds its own limit. The next one may fit."""

    code = "browser.beyond_limit"
    hint = "ask for less: a part of the page, a smaller picture, shorter text"
    http_status = 413


class SessionOver(LimitExceeded):
    """The session reached its longest life, or nobody used it for too long."""

    code = "browser.session_over"
    hint = "open another session; a persistent profile has kept its logins"
    http_status = 410


class SessionBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configured budget is the ceiling for what callers request."""

    max_navigation_timeout_ms: int = 15_000
    max_session_lifetime_ms: int = 1_800_000
    idle_ttl_ms: int = 600_000
    max_screenshot_bytes: int = 1 * MIB
    max_response_bytes: int = 512 * KIB
    max_observe_snapshot_bytes: int = 64 * KIB
    max_visible_text_bytes: int = 16 * KIB
    max_action_timeout_ms: int = 5_000
    max_type_input_bytes: int = 4 * KIB
    max_actions_per_session: int = 256
    max_actions_per_window: int = 20
    max_tabs_per_session: int = 32
    max_log_entries: int = 256
    max_log_bytes: int = 64 * KIB
    max_download_bytes: int = 8 * MIB
    max_session_download_bytes: int = 32 * MIB
    max_session_downloads: int = 128
    max_network_bytes: int = 256 * MIB

    def __post_init__(self) -> None:
        for name in FIELDS:
            _check(name, getattr(self, name))


FIELDS: Final = SessionBudget.__struct_fields__
# A caller may want none of these.
_MAY_BE_ZERO: Final = frozenset(
    ("max_download_bytes", "max_session_download_bytes", "max_session_downloads", "max_network_bytes")
)


def clamp(asked: Mapping[str, int], ceiling: SessionBudget) -> SessionBudget:
    """Take the smaller value of each field. A field that was not requested has the ceiling's value."""
    for name, value in asked.items():
        if name not in FIELDS:
            raise BadBudget(f"a session budget has no field {name[:64]!r}")
        _check(name, value)
    return SessionBudget(
        **{name: min(asked.get(name, most), most) for name, most in msgspec.structs.asdict(ceiling).items()}
    )


def _check(name: str, value: object) -> None:
    least = 0 if name in _MAY_BE_ZERO else 1
    # A boolean is an int to Python and a mistake here.
    if type(value) is not int or not least <= value <= MAX_BUDGET_VALUE:
        raise BadBudget(f"{name} is a whole number from {least} to {MAX_BUDGET_VALUE}", field=name)


class SessionMeter:
    """The counters of one session. The caller passes instants as monotonic seconds."""

    def __init__(self, budget: SessionBudget, now: float) -> None:
        self.budget = budget
        self.actions = 0
        self._began = now
        self._used = now
        self._recent: deque[float] = deque()

    def why_over(self, now: float) -> str | None:
        """Return `lifetime` or `idle` when the session's time is up. This does not count as use."""
        if (now - self._began) * _MS >= self.budget.max_session_lifetime_ms:
            return "lifetime"
        return "idle" if (now - self._used) * _MS >= self.budget.idle_ttl_ms else None

    def use(self, now: float) -> None:
        """Restart the idle time. Raise ``SessionOver`` when the session's time is up."""
        reason = self.why_over(now)
        if reason is not None:
            raise SessionOver(f"the session is over: {OVER[reason]}", reason=reason)
        self._used = now

    def spend_action(self, now: float) -> None:
        """Count an action, a navigation or an observation. A refused one is not counted."""
        self.use(now)
        if self.actions >= self.budget.max_actions_per_session:
            raise BudgetSpent(f"the session has done its {self.actions} actions", field="max_actions_per_session")
        window = ACTION_WINDOW_MS / _MS
        while self._recent and now - self._recent[0] >= window:
            self._recent.popleft()
        if len(self._recent) >= self.budget.max_actions_per_window:
            wait = max(1, round((self._recent[0] + window - now) * _MS))
            raise TooFast(
                f"{len(self._recent)} actions within {ACTION_WINDOW_MS} ms",
                retry_after_ms=wait,
                field="max_actions_per_window",
            )
        self._recent.append(now)
        self.actions += 1

    def require(self, field: str, size: int) -> None:
        most: int = getattr(self.budget, field)
        if size > most:
            raise TooLarge(f"{size} is more than {field} allows, which is {most}", field=field, limit=most)

    def timeout_ms(self, asked: int | None, field: str, now: float) -> int:
        """Clamp a requested wait to the field and to the end of the session."""
        most: int = getattr(self.budget, field)
        left = self.budget.max_session_lifetime_ms - int((now - self._began) * _MS)
        return max(1, min(most if asked is None or asked < 1 else asked, most, left))


OVER: Final = {"lifetime": "it reached its longest life", "idle": "nobody used it for too long"}
