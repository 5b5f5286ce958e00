"""Typing text and secrets into one field, and pressing keys."""

from typing import Any

from palyra.browser.action import Press, Type
from palyra.browser.element_errors import InputStrayed, NotEditable, SecretWrongOrigin
from palyra.browser.element_finder import ElementFinder, Located
from palyra.browser.element_input import ElementInput, Needs
from palyra.browser.keys import Stroke, chord
from palyra.browser.page_script import PageWorlds

_KEY = "Input.dispatchKeyEvent"
# How input methods press keys: pages that listen to keys hear that one was pressed, and take the text from the field.
_COMPOSED_KEY = {"key": "Unidentified", "code": "", "windowsVirtualKeyCode": 229}


class TextInput:
    def __init__(self, worlds: PageWorlds, finder: ElementFinder, gate: ElementInput) -> None:
        self._worlds = worlds
        self._finder = finder
        self._gate = gate

    async def type(self, action: Type, located: Located, deadline: float) -> None:
        """The text is given to the field that has the focus, and the guard keeps it from any other."""
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
        """Of the very document that the element is in: what is typed later goes to that document or to none."""
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
