"""One running browser call: its requests to the browser daemon, and their charge on its budget."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from palyra.browser.domain import session_api
from palyra.browser.domain.action import Action, ActionOutcome, LoadState, ObserveAsk, WaitFor
from palyra.browser.domain.page_errors import DocumentGone
from palyra.browser.domain.session_api import ActReport, Caller, SessionEvent
from palyra.browser.service.access import BrowserAway
from palyra.egress.domain.refusal import EgressRefused
from palyra.egress.domain.refusal import HostNotAllowed as EgressHostNotAllowed
from palyra.egress.domain.target import Target
from palyra.errors import PalyraError
from palyra.executors.browser import arguments as limits
from palyra.executors.browser import results
from palyra.executors.browser.session_registry import OwnedSession
from palyra.pipeline.domain.budget import BudgetExhausted, BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan

if TYPE_CHECKING:
    from palyra.browser.service.client import BrowserClient


class BrowserWork:
    """One call: the actions that it has used, and its error where a part of its result is kept."""

    def __init__(
        self, plan: ExecutionPlan, client: "BrowserClient", session: OwnedSession, *, actions: int = 0
    ) -> None:
        self.plan = plan
        self.client = client
        self.session = session
        self.actions = actions
        self.problem: PalyraError | None = None
        # Refused addresses of the session, each with the code.
        self.refused: list[str] = []

    @property
    def arguments(self) -> Any:
        return self.plan.arguments

    @property
    def caller(self) -> Caller:
        return self.session.caller(self.plan.call_id)

    @property
    def most_picture_bytes(self) -> int:
        return max(0, self.plan.max_output_bytes - limits.RESULT_ROOM_BYTES) * 3 // 4

    def common(self) -> dict[str, Any]:
        return {"tab": self.arguments.get("tab", ""), "timeout_ms": self.arguments.get("timeout_ms", 0)}

    def spend(self, count: int) -> None:
        """Charge the actions. Raise when the run has too few left: then none is done."""
        most = self.plan.granted.get(BudgetKind.BROWSER_ACTIONS, 0)
        if self.actions + count > most:
            raise BudgetExhausted(
                f"this call needs {self.actions + count} browser actions and its run has {most} left",
                budget=BudgetKind.BROWSER_ACTIONS.value,
            )
        self.actions += count

    async def act(self, actions: Sequence[Action], *, picture_on_failure: bool = False) -> ActReport:
        self.spend(len(actions))
        report: ActReport = await self.client.act(
            self.caller, self.session.session_id, actions, picture_on_failure=picture_on_failure
        )
        tried = len(report.outcomes) + (report.problem is not None)
        self.actions -= len(actions) - min(tried, len(actions))
        self.refused += [refusal for outcome in report.outcomes for refusal in outcome.refused]
        if isinstance(report.problem, EgressRefused):
            problem = self._in_words(report.problem)
            self.refused.append(f"{report.problem.message} {report.problem.code}")
            return msgspec.structs.replace(report, problem=problem)
        return report

    async def perform(self, action: Action) -> ActionOutcome:
        report = await self.act((action,))
        if report.problem is not None:
            raise report.problem
        return report.outcomes[0]

    def _in_words(self, refused: EgressRefused) -> PalyraError:
        """Report a page's own navigation to a forbidden host as if the agent had requested it."""
        host, port = refused.details.get("host"), refused.details.get("port")
        if isinstance(refused, EgressHostNotAllowed) and isinstance(host, str) and isinstance(port, int):
            try:
                self.session.reach.require(Target.of(host, port, scheme="http"))
            except PalyraError as words:
                return words
        return refused

    async def observe(self, ask: ObserveAsk) -> dict[str, Any]:
        self.spend(1)
        for _ in range(limits.MOVING_PAGE_LOOKS):
            try:
                return results.snapshot_view(await self.client.observe(self.caller, self.session.session_id, ask))
            except DocumentGone:
                if ask.within is not None:
                    raise
            arrived = WaitFor(tab=ask.tab, state=LoadState.LOADED)
            await self.client.act(self.caller, self.session.session_id, (arrived,))
        return results.snapshot_view(await self.client.observe(self.caller, self.session.session_id, ask))

    async def snapshot_after(self, *, wanted: bool = True) -> dict[str, Any]:
        """Return the page after the actions. They stay done, and are reported, also where no snapshot is possible."""
        if not wanted or not self.arguments.get("snapshot"):
            return {}
        ask = ObserveAsk(tab=self.arguments.get("tab", ""))
        try:
            return {"snapshot": await self.observe(ask)}
        except (BrowserAway, BudgetExhausted):
            raise
        except PalyraError as problem:
            return {"snapshot_problem": problem.as_dict()}


def refusals(events: Iterable[SessionEvent]) -> tuple[str, ...]:
    return tuple(f"{event.text} ({event.code})" for event in events if event.kind == session_api.REFUSED)
