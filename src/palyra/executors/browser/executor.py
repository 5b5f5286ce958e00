"""The executor of the browser tools: the browser daemon does the work, and results are in the tools' own words."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from palyra.browser.domain import action as does
from palyra.browser.domain import session_api
from palyra.browser.domain.action import Action, ActionOutcome, LoadState, ObserveAsk, PictureFormat, SnapshotForm
from palyra.browser.domain.budget import TooLarge
from palyra.browser.domain.profile import NoSuchProfile
from palyra.browser.domain.session_api import Caller, SessionAsk, SessionEvent, SessionState, SessionView, WatchAsk
from palyra.browser.service.access import BrowserAway
from palyra.clock import MS_PER_SECOND, rfc3339
from palyra.errors import PalyraError
from palyra.executors.browser import arguments as tool_arguments
from palyra.executors.browser import results
from palyra.executors.browser.call import BrowserWork
from palyra.executors.browser.policy_questions import NEW, evaluate_question
from palyra.executors.browser.secrets_and_files import BrowserSupply
from palyra.executors.browser.session_registry import OwnedSession, session_entity
from palyra.executors.browser.session_supervisor import SessionSupervisor
from palyra.executors.browser.spec import BROWSER_EXECUTOR
from palyra.ids import Principal
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan, ExecutorOutcome
from palyra.pipeline.domain.spec import Asker
from palyra.policy.decision import Outcome as Verdict
from palyra.policy.decision import PolicyPort
from palyra.policy.request import Entity, EntityDirectory, EntityRef

if TYPE_CHECKING:
    from palyra.browser.service.client import BrowserClient


class SessionOpening:
    def __init__(self, supervisor: SessionSupervisor, policy: PolicyPort, directory: EntityDirectory) -> None:
        self._supervisor = supervisor
        self._policy = policy
        self._directory = directory

    async def open(self, plan: ExecutionPlan, client: "BrowserClient") -> ExecutorOutcome:
        arguments = plan.arguments
        principal = Principal.parse(plan.principal)
        reach = tool_arguments.reach_of(arguments, self._supervisor.ceiling)
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
        view = await _create_session(client.create_session(caller, ask), client, caller)
        session = OwnedSession(
            view, principal=principal, run=plan.run_id, channel=plan.channel, reach=reach, approved=plan.approved
        )
        await self._supervisor.register(
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
                went = await work.perform(does.Navigate(url=arguments["url"]))
                result["page"] = results.outcome_view(went)
            result |= await work.snapshot_after()
        except PalyraError as failure:
            # The session exists: the result has its id and the failure.
            error = failure
        except asyncio.CancelledError:
            await asyncio.shield(self._abandon(work))
            raise
        finally:
            plan.usage.note(BudgetKind.BROWSER_ACTIONS, work.actions)
        refused = await self._supervisor.settle(work)
        return ExecutorOutcome(result=result, receipt=results.receipt_of(view, reach, refused), error=error)

    async def _abandon(self, work: BrowserWork) -> None:
        """Close the session: nobody got its id, so it would stay open until its time is over."""
        await self._supervisor.settle(work)
        await self._supervisor.close_session(work.session, reason="the call that opened it was stopped")

    async def _profile_id(self, client: "BrowserClient", caller: Caller, name: str) -> str:
        if not name:
            return ""
        found = [each.profile_id for each in await client.profiles(caller) if name in (each.name, each.profile_id)]
        if not found:
            raise NoSuchProfile(f"{caller.principal} has no profile {name!r}")
        return found[0]

    def _may_evaluate(self, plan: ExecutionPlan, principal: Principal, reach: tool_arguments.Reach) -> bool:
        """Whether policy may allow scripts in this session. It decides about each call with one."""
        asker = Asker(
            principal=principal,
            channel=plan.channel,
            run=plan.run_id,
            directory=self._directory,
            tool=Entity(uid=EntityRef("Tool", plan.tool)),
        )
        session = session_entity(NEW, principal, reach)
        return self._policy.decide(evaluate_question(asker, session)).outcome is not Verdict.DENY


async def _create_session(creating: Awaitable[SessionView], client: "BrowserClient", caller: Caller) -> SessionView:
    """Return the new session. A call that is cancelled meanwhile leaves no session behind."""
    task = asyncio.ensure_future(creating)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            await client.close_session(caller, task.result().session_id)
        raise


_Move = does.Back | does.Forward | does.Reload
_MOVES: Final[dict[str, type[_Move]]] = {"back": does.Back, "forward": does.Forward, "reload": does.Reload}
# The part of a call's time to wait for a person. The rest is for the report that nobody came.
_WAITING_PART: Final = 0.9


class BrowserTools:
    name = BROWSER_EXECUTOR
    keeps_deadline = False

    def __init__(self, supervisor: SessionSupervisor, opening: SessionOpening, supply: BrowserSupply) -> None:
        self._supervisor = supervisor
        self._opening = opening
        self._supply = supply
        self._tools: dict[str, Callable[[BrowserWork], Awaitable[dict[str, Any]]]] = {
            "browser.close": self._close,
            "browser.navigate": self._navigate,
            "browser.snapshot": self._snapshot,
            "browser.find": self._snapshot,
            "browser.act": self._act,
            "browser.wait": self._wait,
            "browser.screenshot": self._screenshot,
            "browser.tabs": self._tabs,
            "browser.logs": self._logs,
            "browser.downloads": self._downloads,
            "browser.handoff": self._handoff,
        }

    async def execute(self, plan: ExecutionPlan) -> ExecutorOutcome:
        async with self._supervisor.connected() as client:
            if plan.tool == "browser.open":
                return await self._opening.open(plan, client)
            # The session may have ended since the decision.
            session = self._supervisor.registry.of(plan.principal, plan.run_id, plan.arguments["session"])
            work = BrowserWork(plan, client, session)
            result: dict[str, Any] | None = None
            try:
                result = await self._tools[plan.tool](work)
            except BrowserAway:
                raise
            except PalyraError as failure:
                work.problem = failure
            finally:
                # Used actions are charged however the call ends, and refusals are on record before it ends.
                plan.usage.note(BudgetKind.BROWSER_ACTIONS, work.actions)
                refused = await asyncio.shield(self._supervisor.settle(work))
            receipt = results.receipt_of(session.view, session.reach, refused)
            return ExecutorOutcome(result=result, receipt=receipt, error=work.problem)

    async def _close(self, work: BrowserWork) -> dict[str, Any]:
        discard = work.arguments.get("discard", False)
        await self._supervisor.catch_up(work.session, work.client)
        report = await work.client.close_session(work.caller, work.session.session_id, discard=discard)
        await self._supervisor.record_end(
            work.session, reason="its owner closed it", saved=report.saved, problem=report.problem_code
        )
        result: dict[str, Any] = {"closed": True, "saved": report.saved}
        if report.problem_code:
            result["problem"] = f"{report.problem_code}: {report.problem_message}"
        return result

    async def _navigate(self, work: BrowserWork) -> dict[str, Any]:
        given = work.arguments
        common = {**work.common(), "wait": LoadState(given.get("wait", LoadState.LOADED))}
        action: Action = does.Navigate(url=given["url"], **common) if "url" in given else _MOVES[given["to"]](**common)
        outcome = await work.perform(action)
        return {**results.outcome_view(outcome), **await work.snapshot_after(), **results.UNTRUSTED}

    async def _snapshot(self, work: BrowserWork) -> dict[str, Any]:
        given = work.arguments
        ask = ObserveAsk(
            tab=given.get("tab", ""),
            form=SnapshotForm(given.get("form", SnapshotForm.TREE)),
            within=tool_arguments.element(given.get("within")),
            depth=given.get("depth", 0),
            interactive_only=given.get("interactive_only", False),
            find=given.get("text", ""),
            since_last=given.get("since_last", False),
            max_bytes=given.get("max_bytes", 0),
        )
        return {**await work.observe(ask), **results.UNTRUSTED}

    async def _act(self, work: BrowserWork) -> dict[str, Any]:
        steps = tool_arguments.steps_of(work.arguments)
        actions = await self._supply.fill(work.plan, work.session, steps)
        report = await work.act(actions, picture_on_failure=work.arguments.get("picture_on_failure", False))
        result: dict[str, Any] = {
            "done": len(report.outcomes),
            "outcomes": [results.outcome_view(outcome) for outcome in report.outcomes],
            **results.UNTRUSTED,
        }
        if report.problem is not None:
            work.problem = report.problem
            result["problem"] = report.problem.as_dict()
        if report.picture is not None and len(report.picture.content) <= work.most_picture_bytes:
            result |= results.picture_view(report.picture)
        return result | await work.snapshot_after(wanted=report.problem is None)

    async def _wait(self, work: BrowserWork) -> dict[str, Any]:
        given = work.arguments
        outcome = await work.perform(
            does.WaitFor(
                **work.common(),
                target=tool_arguments.element(given.get("target")),
                text=given.get("text", ""),
                url=given.get("url", ""),
                state=LoadState(given["state"]) if "state" in given else None,
                gone=given.get("gone", False),
            )
        )
        return {**results.outcome_view(outcome), **await work.snapshot_after(), **results.UNTRUSTED}

    async def _screenshot(self, work: BrowserWork) -> dict[str, Any]:
        given = work.arguments
        if given.get("format") == "pdf":
            made = await work.perform(does.ExportPdf(**work.common()))
            if len(made.content) > work.most_picture_bytes:
                raise TooLarge(f"the document has {len(made.content)} bytes, which no result can hold")
        else:
            made = await self._picture(work)
        return {
            "tab": made.tab,
            "url": made.url,
            "title": results.outcome_view(made)["title"],
            "bytes": len(made.content),
            **results.picture_view(made),
            **results.UNTRUSTED,
        }

    async def _picture(self, work: BrowserWork) -> ActionOutcome:
        """Take the picture in the wanted format, or once more as a small JPEG if it is too large for a result."""
        given = work.arguments
        ask = does.Screenshot(
            **work.common(),
            target=tool_arguments.element(given.get("target")),
            full_page=given.get("full_page", False),
            format=PictureFormat(given.get("format", PictureFormat.PNG)),
            quality=given.get("quality", 80),
        )
        small = msgspec.structs.replace(ask, format=PictureFormat.JPEG, quality=tool_arguments.SMALL_PICTURE_QUALITY)
        try:
            made = await work.perform(ask)
            if len(made.content) <= work.most_picture_bytes:
                return made
        except TooLarge:
            if ask == small:
                raise
        made = await work.perform(small)
        if len(made.content) > work.most_picture_bytes:
            raise TooLarge(
                f"the picture has {len(made.content)} bytes, which no result can hold",
                hint="take it of what is in view, of one element, or in a smaller viewport",
            )
        return made

    async def _tabs(self, work: BrowserWork) -> dict[str, Any]:
        tabs = await work.client.tabs(work.caller, work.session.session_id)
        return {"tabs": results.tab_views(tabs), **results.UNTRUSTED}

    async def _logs(self, work: BrowserWork) -> dict[str, Any]:
        kind, last = work.arguments.get("log", "console"), work.arguments.get("last", 50)
        session_id = work.session.session_id
        entries: Iterable[Any]
        match kind:
            case "console":
                entries = await work.client.console_log(work.caller, session_id, last)
            case "network":
                entries = await work.client.network_log(work.caller, session_id, last)
            case _:
                entries = (await work.client.events(work.caller, session_id))[-last:]
        shown = [{name: value for name, value in msgspec.to_builtins(each).items() if value} for each in entries]
        return {"log": kind, "entries": shown, **results.UNTRUSTED}

    async def _downloads(self, work: BrowserWork) -> dict[str, Any]:
        records = await work.client.downloads(work.caller, work.session.session_id)
        result: dict[str, Any] = {"downloads": [results.download_view(each) for each in records], **results.UNTRUSTED}
        if "save" in work.arguments:
            saved, record = await self._supply.save(work.plan, work.session, work.client, records)
            await self._supervisor.record(
                work.session,
                "browser.download_saved",
                call=work.plan.call_id,
                download=record.id,
                name=record.name,
                digest=record.digest,
                path=saved["path"],
            )
            result["saved"] = saved
        return result

    async def _handoff(self, work: BrowserWork) -> dict[str, Any]:
        reason = work.arguments["reason"]
        await self._supervisor.record(work.session, "browser.handoff_requested", call=work.plan.call_id, reason=reason)
        state, by = await self._wait_for_hand_back(work)
        tabs = await work.client.tabs(work.caller, work.session.session_id)
        return {"state": state, "by": by, "tabs": results.tab_views(tabs), **results.UNTRUSTED}

    async def _wait_for_hand_back(self, work: BrowserWork) -> tuple[str, str]:
        session_id = work.session.session_id
        now: SessionView = await work.client.get_session(work.caller, session_id)
        by = now.operator
        state = "taken_over" if now.state is SessionState.TAKEN_OVER else "waiting"
        known = await work.client.events(work.caller, session_id)
        ask = WatchAsk(events_after=known[-1].number if known else 0, frames=False)
        try:
            async with asyncio.timeout(work.plan.timeout_ms / MS_PER_SECOND * _WAITING_PART):
                async for seen in work.client.watch(work.caller, session_id, ask):
                    if not isinstance(seen, SessionEvent):
                        continue
                    if seen.kind == session_api.TAKEN_OVER:
                        state, by = "taken_over", seen.actor
                    elif seen.kind == session_api.HANDED_BACK:
                        return "handed_back", seen.actor or by
        except TimeoutError:
            pass
        return state, by
