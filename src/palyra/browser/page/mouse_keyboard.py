"""Clicking, hovering, dragging, scrolling and typing with real input events."""

import asyncio
from typing import Any, Final

from palyra.browser.domain.action import Click, DoubleClick, MouseButton, Press, Scroll, Type
from palyra.browser.domain.cdp_messages import CdpEvent
from palyra.browser.domain.keys import Stroke, chord, modifier_mask
from palyra.browser.domain.limits import DRAG_STEPS
from palyra.browser.domain.page_errors import InputStrayed, NotEditable, SecretWrongOrigin
from palyra.browser.page.guarded_input import ElementInput, Needs, mouse
from palyra.browser.page.locator import Located, PageTools, Point

_HELD: Final = {MouseButton.LEFT: 1, MouseButton.RIGHT: 2, MouseButton.MIDDLE: 4}
_LAST_EVENT: Final = {MouseButton.LEFT: "click", MouseButton.MIDDLE: "auxclick", MouseButton.RIGHT: "auxclick"}
# A drag ends with a drop, or where the page drags by itself, with the release of the button.
_DRAG_ENDS: Final = ("drop", "mouseup")


class MouseActions:
    def __init__(self, tools: PageTools, gate: ElementInput) -> None:
        self._page, self._frames, self._worlds, self._finder = tools.page, tools.frames, tools.worlds, tools.finder
        self._gate = gate

    async def click(self, action: Click | DoubleClick, located: Located, deadline: float) -> None:
        button = action.button if isinstance(action, Click) else MouseButton.LEFT
        times = 1 if isinstance(action, Click) else 2
        modifiers = modifier_mask(action.modifiers)
        guard = {"kind": "mouse", "last": [_LAST_EVENT[button] if times == 1 else "dblclick"]}
        at = await self._gate.approach(located, Needs(), deadline, guard, modifiers)
        events = []
        for count in range(1, times + 1):
            held = {"button": button.value, "clickCount": count, "modifiers": modifiers}
            events.append(mouse("mousePressed", at, buttons=_HELD[button], **held))
            events.append(mouse("mouseReleased", at, buttons=0, **held))
        if await self._gate.send(*events, deadline=deadline):
            await self._gate.judge(located)

    async def hover(self, located: Located, deadline: float) -> None:
        at = await self._gate.point(located, Needs(enabled=False), deadline, {"kind": "hover"})
        if not await self._gate.send(mouse("mouseMoved", at), deadline=deadline):
            return
        seen = await self._gate.judge(located)
        if seen is not None and not seen:
            raise InputStrayed(f"{self._finder.name(located)} moved away from the mouse", ref=located.ref)

    async def drag(self, source: Located, to: Located, deadline: float) -> None:
        """Press on one element, move, and release over the other, as a person would.

        A page's own kind of dragging sees the mouse. The browser's kind is intercepted where Chromium would
        hand it to a desktop, and dropped by commands.
        """
        await self._gate.point(to, Needs(enabled=False), deadline)
        same = source.frame.frame_id == to.frame.frame_id
        bound = {"number": to.bound.number, "role": to.bound.role, "name": to.bound.name}
        guard = {"kind": "mouse", "last": _DRAG_ENDS, **({"to": bound} if same else {"leaves": True})}
        begin = await self._gate.point(source, Needs(), deadline, guard)
        # The first may have been scrolled away to show the second.
        end = await self._gate.point(to, Needs(enabled=False, still=False), deadline)
        if not same:
            await self._worlds.call(to.frame, "arm", {"kind": "mouse", "last": _DRAG_ENDS, **bound})
        taken: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def on_event(event: CdpEvent) -> None:
            if event.method == "Input.dragIntercepted" and not taken.done():
                taken.set_result(event.params["data"])

        stop = self._page.cdp.subscribe(self._page.session_id, on_event)
        try:
            await self._intercept(True)
            held = {"button": "left", "buttons": 1}
            await self._gate.send(
                mouse("mouseMoved", begin), mouse("mousePressed", begin, clickCount=1, **held), deadline=deadline
            )
            for step in range(1, DRAG_STEPS + 1):
                await self._gate.send(mouse("mouseMoved", _between(begin, end, step), **held), deadline=deadline)
                if taken.done():
                    break
            if taken.done() or await self._worlds.call(source.frame, "dragging"):
                async with asyncio.timeout_at(deadline):
                    await self._drop(await taken, end, deadline)
            else:
                released = mouse("mouseReleased", end, button="left", buttons=0, clickCount=1)
                await self._gate.send(released, deadline=deadline)
        finally:
            stop()
            await self._intercept(False)
        await self._gate.judge(source)

    async def _drop(self, data: dict[str, Any], end: Point, deadline: float) -> None:
        for kind in ("dragEnter", "dragOver", "drop"):
            params = {"type": kind, "x": end.x, "y": end.y, "data": data}
            await self._gate.send(("Input.dispatchDragEvent", params), deadline=deadline)

    async def _intercept(self, enabled: bool) -> None:
        await self._page.cdp.send("Input.setInterceptDrags", {"enabled": enabled}, self._page.session_id)

    async def scroll(self, action: Scroll, located: Located | None, deadline: float) -> None:
        """Scroll at once whatever can be scrolled. Elsewhere, as in a map, turn a real wheel."""
        if located is not None and not action.dx and not action.dy:
            await self._gate.ready(located, Needs(seen=False, enabled=False, still=False), deadline)
            await self._frames.show(located.frame)
            await self._worlds.call(located.frame, "showElement", located.bound.number)
            return
        frame = located.frame if located is not None else self._frames.main
        number = located.bound.number if located is not None else 0
        if located is not None:
            await self._gate.ready(located, Needs(enabled=False, still=False), deadline)
        if await self._worlds.call(frame, "scrollBy", number, action.dx, action.dy):
            return
        at = await self._middle(located, deadline)
        await self._gate.send(mouse("mouseWheel", at, deltaX=action.dx, deltaY=action.dy), deadline=deadline)

    async def _middle(self, located: Located | None, deadline: float) -> Point:
        if located is not None:
            return await self._gate.point(located, Needs(enabled=False, still=False), deadline)
        size = await self._worlds.call(self._frames.main, "pageSize")
        width, height = size["view"]
        return Point(width / 2, height / 2)


def _between(begin: Point, end: Point, step: int) -> Point:
    part = step / DRAG_STEPS
    return Point(begin.x + (end.x - begin.x) * part, begin.y + (end.y - begin.y) * part)


_KEY = "Input.dispatchKeyEvent"
# Input methods press keys this way: pages that listen to keys get a key press, and take the text from the field.
_COMPOSED_KEY = {"key": "Unidentified", "code": "", "windowsVirtualKeyCode": 229}


class TextInput:
    def __init__(self, tools: PageTools, gate: ElementInput) -> None:
        self._worlds, self._finder, self._gate = tools.worlds, tools.finder, gate

    async def type(self, action: Type, located: Located, deadline: float) -> None:
        name = self._finder.name(located)
        secret = action.secret is not None
        if secret:
            await self._check_origin(action, located)
        guard = {"kind": "keys"}
        typing = {"clear": action.clear, "secret": secret}
        outcome = await self._gate.ready(located, Needs(editable=True, still=False), deadline, guard, typing)
        began = outcome["typing"]
        if began.get("set"):
            await self._gate.judge(located)
            await self._set(action, located, name)
            return
        if "problem" in began:
            await self._gate.judge(located)
            raise NotEditable(f"{name} does not take the focus", ref=located.ref)
        if not await self._give(action, deadline, clears=action.clear and began["holds"]):
            return
        seen = await self._gate.judge(located)
        if _text(action) and seen is not None and "beforeinput" not in seen:
            raise InputStrayed(f"{name} did not get the text", ref=located.ref)
        if action.submit:
            await self._strike(chord("Enter"), located, deadline)

    async def _give(self, action: Type, deadline: float, *, clears: bool) -> bool:
        text = _text(action)
        events: list[tuple[str, dict[str, Any]]] = []
        if text:
            events = [
                (_KEY, {"type": "rawKeyDown", **_COMPOSED_KEY}),
                ("Input.insertText", {"text": text}),
                (_KEY, {"type": "keyUp", **_COMPOSED_KEY}),
            ]
        elif clears:
            events = [(_KEY, event) for event in chord("Delete")[0].events()]
        return await self._gate.send(*events, deadline=deadline)

    async def _set(self, action: Type, located: Located, name: str) -> None:
        outcome = await self._worlds.call(located.frame, "setValue", located.bound.number, _text(action))
        if "problem" in outcome:
            raise NotEditable(f"{name} takes a {outcome['problem']}, written as HTML does", ref=located.ref)

    async def _check_origin(self, action: Type, located: Located) -> None:
        """Check the origin of the element's own document: the text goes to that document or to none."""
        origin = str(await self._worlds.call(located.frame, "originNow"))
        if origin == "null" or origin not in {each.rstrip("/") for each in action.origins}:
            raise SecretWrongOrigin(
                f"the field is on {origin}, and the secret is not for it", origin=origin, origins=list(action.origins)
            )

    async def press(self, action: Press, located: Located | None, deadline: float) -> None:
        strokes = chord(action.key)
        if located is None:
            await self._gate.send(*_both_ways(strokes), deadline=deadline)
            return
        await self._strike(strokes, located, deadline)

    async def _strike(self, strokes: tuple[Stroke, ...], located: Located, deadline: float) -> None:
        guard = {"kind": "keys", "last": [] if len(strokes) > 1 else ["keydown"]}
        await self._gate.ready(located, Needs(still=False), deadline, guard)
        if not await self._worlds.call(located.frame, "giveFocus", located.bound.number):
            await self._gate.judge(located)
            raise NotEditable(f"{self._finder.name(located)} does not take the focus", ref=located.ref)
        if await self._gate.send(*_both_ways(strokes), deadline=deadline):
            await self._gate.judge(located)


def _text(action: Type) -> str:
    return action.text if action.secret is None else action.secret.reveal()


def _both_ways(strokes: tuple[Stroke, ...]) -> list[tuple[str, dict[str, Any]]]:
    down = [stroke.events()[0] for stroke in strokes]
    up = [stroke.events()[1] for stroke in reversed(strokes)]
    return [(_KEY, event) for event in (*down, *up)]
