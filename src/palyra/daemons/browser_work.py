"""One browser call while it runs: what it asks of the browser daemon, and what that takes of its budget."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from palyra.browser import session_log
from palyra.browser import tool_limits as limits
from palyra.browser.action import Action, ActionOutcome
from palyra.browser.observation import ObserveAsk
from palyra.browser.session_view import ActReport, Caller, SessionEvent
from palyra.daemons import browser_results as results
from palyra.daemons.browser_sessions import OwnedSession
from palyra.errors import PalyraError
from palyra.tools.call import ExecutionPlan

if TYPE_CHECKING:
    from palyra.browser.browser_client import BrowserClient


class BrowserWork:
    """One call: what it has used so far, and how it ended where a part of its result is worth keeping."""

    def __init__(
        self, plan: ExecutionPlan, client: "BrowserClient", session: OwnedSession, *, actions: int = 0
    ) -> None:
        self.plan = plan
        self.client = client
        self.session = session
        self.actions = actions
        self.problem: PalyraError | None = None

    @property
    def arguments(self) -> Any:
        return self.plan.arguments

    @property
    def caller(self) -> Caller:
        return self.session.caller(self.plan.call_id)

    @property
    def most_picture_bytes(self) -> int:
        """What base64 makes fit into the result."""
        return max(0, self.plan.max_output_bytes - limits.RESULT_ROOM_BYTES) * 3 // 4

    def common(self) -> dict[str, Any]:
        return {"tab": self.arguments.get("tab", ""), "timeout_ms": self.arguments.get("timeout_ms", 0)}

    async def perform(self, action: Action) -> ActionOutcome:
        """One action; raises what it failed with."""
        self.actions += 1
        report: ActReport = await self.client.act(self.caller, self.session.session_id, (action,))
        if report.problem is not None:
            raise report.problem
        return report.outcomes[0]

    async def observe(self, ask: ObserveAsk) -> dict[str, Any]:
        self.actions += 1
        return results.snapshot_view(await self.client.observe(self.caller, self.session.session_id, ask))

    async def snapshot_after(self, *, wanted: bool = True) -> dict[str, Any]:
        if not wanted or not self.arguments.get("snapshot"):
            return {}
        return {"snapshot": await self.observe(ObserveAsk(tab=self.arguments.get("tab", "")))}


def refusals(events: Iterable[SessionEvent]) -> tuple[str, ...]:
    return tuple(f"{event.text} ({event.code})" for event in events if event.kind == session_log.REFUSED)
