"""browser.open: a session with the hosts that were decided on, for the principal and the run of one call."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from palyra.browser import tool_arguments
from palyra.browser.action import Navigate
from palyra.browser.profile_errors import NoSuchProfile
from palyra.browser.session_view import Caller, SessionAsk, SessionView
from palyra.clock import MS_PER_SECOND, rfc3339
from palyra.daemons import browser_results as results
from palyra.daemons.browser_parts import BrowserParts
from palyra.daemons.browser_policy import NEW, evaluate_question
from palyra.daemons.browser_sessions import OwnedSession, session_entity
from palyra.daemons.browser_work import BrowserWork
from palyra.errors import PalyraError
from palyra.identity.principal import Principal
from palyra.policy.decision import Outcome as Verdict
from palyra.policy.entities import Entity, EntityDirectory, EntityRef
from palyra.policy.port import PolicyPort
from palyra.tools.budget import BudgetKind
from palyra.tools.call import ExecutionPlan, Outcome
from palyra.tools.spec import Asker

if TYPE_CHECKING:
    from palyra.browser.browser_client import BrowserClient


class SessionOpening:
    def __init__(self, parts: BrowserParts, policy: PolicyPort, directory: EntityDirectory) -> None:
        self._parts = parts
        self._policy = policy
        self._directory = directory

    async def open(self, plan: ExecutionPlan, client: "BrowserClient") -> Outcome:
        arguments = plan.arguments
        principal = Principal.parse(plan.principal)
        reach = tool_arguments.reach_of(arguments, self._parts.ceiling)
        caller = Caller(principal=plan.principal, run_id=plan.run_id, call_id=plan.call_id)
        viewport = arguments.get("viewport", {})
        ask = SessionAsk(
            profile_id=await self._profile_id(client, caller, arguments.get("profile", "")),
            hosts=reach.hosts,
            private_targets=reach.private_targets,
            any_public_host=reach.any_public_host,
            allow_evaluate=self._may_evaluate(plan, principal, reach),
            label=arguments.get("label", ""),
            viewport_width=viewport.get("width", 0),
            viewport_height=viewport.get("height", 0),
        )
        view = await _made(client.create_session(caller, ask), client, caller)
        session = OwnedSession(
            view, principal=principal, run=plan.run_id, channel=plan.channel, reach=reach, approved=plan.approved
        )
        await self._parts.entered(
            session,
            call=plan.call_id,
            hosts=list(reach.words()),
            private_targets=list(reach.private_targets),
            profile_id=view.profile_id,
            approved=plan.approved,
            fences_waived=list(view.fences_waived),
        )
        work = BrowserWork(plan, client, session, actions=1)
        result: dict[str, Any] = {
            "session": view.session_id,
            "hosts": list(reach.words()),
            "ends_at": rfc3339(view.ends_ms),
            "idle_seconds": view.budget.get("idle_ttl_ms", 0) // MS_PER_SECOND,
            **results.UNTRUSTED,
        }
        if arguments.get("profile"):
            result["profile"] = arguments["profile"]
        error: PalyraError | None = None
        try:
            if "url" in arguments:
                went = await work.perform(Navigate(url=arguments["url"]))
                result["page"] = results.outcome_view(went)
            result |= await work.snapshot_after()
        except PalyraError as failure:
            # The session is there: its owner is told of it, and of what went wrong.
            error = failure
        except asyncio.CancelledError:
            await asyncio.shield(self._given_up(work))
            raise
        finally:
            plan.usage.note(BudgetKind.BROWSER_ACTIONS, work.actions)
        refused = await self._parts.settle(work)
        return Outcome(result=result, receipt=results.receipt_of(view, reach, refused), error=error)

    async def _given_up(self, work: BrowserWork) -> None:
        """Nobody was told of the session: it would be open until its time is over."""
        await self._parts.settle(work)
        await self._parts.close_session(work.session, reason="the call that opened it was stopped")

    async def _profile_id(self, client: "BrowserClient", caller: Caller, name: str) -> str:
        if not name:
            return ""
        found = [each.profile_id for each in await client.profiles(caller) if name in (each.name, each.profile_id)]
        if not found:
            raise NoSuchProfile(f"{caller.principal} has no profile {name!r}")
        return found[0]

    def _may_evaluate(self, plan: ExecutionPlan, principal: Principal, reach: tool_arguments.Reach) -> bool:
        """Whether scripts have any chance in this session. Each call that has one is decided for itself."""
        asker = Asker(
            principal=principal,
            channel=plan.channel,
            run=plan.run_id,
            directory=self._directory,
            tool=Entity(uid=EntityRef("Tool", plan.tool)),
        )
        session = session_entity(NEW, principal, reach)
        return self._policy.decide(evaluate_question(asker, session)).outcome is not Verdict.DENY


async def _made(creating: Awaitable[SessionView], client: "BrowserClient", caller: Caller) -> SessionView:
    """The new session. A call that is cancelled meanwhile leaves none behind."""
    task = asyncio.ensure_future(creating)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            await client.close_session(caller, task.result().session_id)
        raise
