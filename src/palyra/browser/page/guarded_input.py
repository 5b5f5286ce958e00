"""Input on one element: wait until it can be acted on, send real events, and let none of them reach another element.

Between an inspection of the page and an event the page may have changed. So the page's script precedes every listener
of the page at the event itself, in every frame. It stops an event that does not reach the intended element.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

import msgspec

from palyra.browser.domain.document_state import FrameView
from palyra.browser.domain.limits import MIN_INPUT_SECONDS
from palyra.browser.domain.page_errors import (
    DialogOpen,
    ElementCovered,
    ElementDisabled,
    ElementHidden,
    ElementMoving,
    InputStrayed,
    NotEditable,
)
from palyra.browser.domain.page_tree import FRAME
from palyra.browser.page.locator import FrameHidden, Located, PageTools, Point
from palyra.errors import PalyraError

_NOTHING: Final = {"kind": "nothing"}


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions that must hold before an action."""

    seen: bool = True
    enabled: bool = True
    editable: bool = False
    still: bool = True
    hit: bool = True


class ElementInput:
    def __init__(self, tools: PageTools) -> None:
        self._page, self._frames, self._worlds, self._finder = tools.page, tools.frames, tools.worlds, tools.finder
        # A guard may still be armed, because a dialog or the end of an action's time kept it from being disarmed.
        self._armed = False
        # Whether the tab's main document has answered after the last input.
        self._answered = False

    # Before an action.

    async def point(
        self, located: Located, needs: Needs, deadline: float, guard: dict[str, Any] | None = None
    ) -> Point:
        """Wait until the element can be acted on. Return the point to act at, with the guard armed."""
        loop = asyncio.get_running_loop()
        hidden: FrameHidden | None = None
        while True:
            try:
                outcome = await self._ready(located, needs, deadline, guard)
            except ElementMoving:
                # Too little time was left to see it at rest again. The reason is what covered it before.
                if hidden is None:
                    raise
                await self._covered(located, hidden.frame, hidden.by)
            at = await self._frames.in_window(located.frame, outcome["x"], outcome["y"])
            if isinstance(at, Point):
                if guard is not None:
                    await self._arm_others(located)
                return at
            await self._disarm([located.frame])
            await self._frames.show(located.frame)
            shown = await self._frames.in_window(located.frame, outcome["x"], outcome["y"])
            hidden = shown if isinstance(shown, FrameHidden) else None
            if hidden is not None and loop.time() >= deadline:
                await self._covered(located, hidden.frame, hidden.by)

    async def approach(
        self, located: Located, needs: Needs, deadline: float, guard: dict[str, Any], modifiers: int
    ) -> Point:
        """Return the point with the mouse already there, so that an animation that the mouse starts is seen too."""
        aim = await self._aim(located)
        if aim is None:
            at = await self.point(located, needs, deadline, guard)
            await self.send(mouse("mouseMoved", at, modifiers=modifiers), deadline=deadline)
            return at
        # Chromium handles events in order, so an answer to the next event proves that this one was handled.
        method, moved = mouse("mouseMoved", aim, modifiers=modifiers)
        self._page.cdp.post(method, moved, self._page.session_id)
        at_last = await self.point(located, needs, deadline, guard)
        if at_last != aim:
            await self.send(mouse("mouseMoved", at_last, modifiers=modifiers), deadline=deadline)
        return at_last

    async def _aim(self, located: Located) -> Point | None:
        """Return a first point, in the main document only: elsewhere the frames around are inspected first."""
        if located.frame.parent_id:
            return None
        if located.aim is not None:
            return located.aim
        found = await self._worlds.call(located.frame, "aim", located.bound.number)
        return Point(found["x"], found["y"]) if found is not None else None

    async def ready(
        self,
        located: Located,
        needs: Needs,
        deadline: float,
        guard: dict[str, Any] | None = None,
        typing: dict[str, bool] | None = None,
    ) -> dict[str, Any]:
        """Wait until the element can be acted on without the mouse. ``typing`` gives it the focus at once."""
        outcome = await self._ready(located, msgspec.structs.replace(needs, hit=False), deadline, guard, typing)
        if guard is not None:
            await self._arm_others(located)
        return outcome

    async def _ready(
        self,
        located: Located,
        needs: Needs,
        deadline: float,
        guard: dict[str, Any] | None,
        typing: dict[str, bool] | None = None,
    ) -> dict[str, Any]:
        self._armed = self._armed or guard is not None
        if located.frame.parent_id:
            await self._frames.show(located.frame, if_unseen=True)
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        spec = {
            "number": located.bound.number,
            "role": located.bound.role,
            "name": located.bound.name,
            "needs": msgspec.to_builtins(needs),
            "milliseconds": left * 1000,
            "arm": guard,
            "typing": typing,
        }
        outcome = await self._unless_dialog(self._worlds.call(located.frame, "ready", spec, seconds=left))
        if "problem" in outcome:
            await self._refuse(located, outcome)
        return dict(outcome)

    async def _refuse(self, located: Located, outcome: dict[str, Any]) -> NoReturn:
        problem, name = str(outcome["problem"]), self._finder.name(located)
        match problem:
            case "stale":
                await self._finder.stale(located, outcome)
            case "covered":
                await self._covered(located, located.frame, outcome.get("by"))
            case "hidden":
                raise ElementHidden(f"{name} cannot be seen: {outcome.get('why', '')}", ref=located.ref)
            case "outside":
                raise ElementHidden(f"{name} cannot be scrolled into view", ref=located.ref)
            case "disabled":
                raise ElementDisabled(f"{name} is disabled", ref=located.ref)
            case "readonly":
                raise NotEditable(f"{name} takes no text", ref=located.ref)
            case _:
                raise ElementMoving(f"{name} does not come to rest", ref=located.ref)

    async def _covered(self, located: Located, frame: FrameView, by: dict[str, Any] | None) -> NoReturn:
        if by is None:
            raise ElementCovered(f"{self._finder.name(located)} is outside of what is shown", ref=located.ref)
        cover = self._finder.locate(frame, by)
        named = self._finder.name(cover)
        raise ElementCovered(
            f"{self._finder.name(located)} is covered by {named}", ref=located.ref, covered_by=cover.ref
        )

    # The guard.

    async def _arm_others(self, located: Located) -> None:
        meant = {located.frame.frame_id}
        if located.bound.role == FRAME:
            owners = await self._frames.owners()
            meant |= {inner for inner, owner in owners.items() if owner == (located.frame, located.bound.number)}
        others = [each for each in self._frames.all() if each.frame_id not in meant]
        if others:
            await asyncio.gather(*(self._worlds.try_call(each, "arm", _NOTHING) for each in others))

    async def clear(self) -> None:
        self._answered = False
        if self._armed:
            await self._unless_dialog(self._disarm(self._frames.all()))
            self._armed = False

    async def _disarm(self, frames: Sequence[FrameView]) -> list[Any]:
        return list(await asyncio.gather(*(self._worlds.try_call(each, "disarm") for each in frames)))

    async def judge(self, located: Located) -> list[str] | None:
        """Disarm the guard, and raise if an event would have reached another element.

        Return the events that reached the right one. None where the document does not answer: input replaced
        it, or a dialog is open.
        """
        frames = [located.frame, *(each for each in self._frames.all() if each.frame_id != located.frame.frame_id)]
        try:
            reports = await self._unless_dialog(self._disarm(frames))
        except DialogOpen:
            return None
        self._armed = False
        main = self._frames.main.frame_id
        self._answered = any(
            each is not None and frame.frame_id == main for frame, each in zip(frames, reports, strict=True)
        )
        seen: list[str] | None = None
        for frame, each in zip(frames, reports, strict=True):
            if each is None:
                continue
            failed = each["failed"]
            if failed is not None:
                await self._strayed(located, frame, failed)
            if frame.frame_id == located.frame.frame_id:
                seen = each["seen"]
        return seen

    async def _strayed(self, located: Located, frame: FrameView, failed: dict[str, Any]) -> NoReturn:
        if failed["change"] != "elsewhere":
            await self._finder.stale(located, failed)
        over = failed.get("over")
        where = self._finder.name(self._finder.locate(frame, over)) if over else "something else"
        raise InputStrayed(
            f"{self._finder.name(located)} was not where it had been: {where} would have got the {failed['at']}",
            ref=located.ref,
        )

    def has_answered(self) -> bool:
        """Whether the main document answered after the last input, and so reported everything that it began."""
        return self._answered

    # Sending.

    async def send(self, *events: tuple[str, dict[str, Any]], deadline: float) -> bool:
        """Send input events in order. Return whether all were handled: an open dialog ends the wait for them."""
        seconds = max(deadline - asyncio.get_running_loop().time(), MIN_INPUT_SECONDS)
        self._answered = False
        sends = [self._page.cdp.ask(method, params, self._page.session_id, seconds) for method, params in events]
        try:
            await self._unless_dialog(asyncio.gather(*sends))
        except DialogOpen:
            return False
        return True

    async def _unless_dialog(self, work: Awaitable[Any]) -> Any:
        """Stop waiting when a dialog is open: until it is answered the page does not answer."""
        doing = asyncio.ensure_future(work)
        opened = asyncio.ensure_future(self._page.dialog_opened())
        try:
            if self._page.dialog() is None:
                await asyncio.wait((doing, opened), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            raise DialogOpen("a dialog of the page is open")
        finally:
            opened.cancel()
            if not doing.done():
                doing.cancel()
                with suppress(asyncio.CancelledError, PalyraError):
                    await doing


def mouse(kind: str, at: Point, **more: Any) -> tuple[str, dict[str, Any]]:
    return "Input.dispatchMouseEvent", {"type": kind, "x": at.x, "y": at.y, **more}
