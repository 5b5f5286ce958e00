"""Our script in a page: read from the package, put into an isolated world of each document, and called.

The page cannot see that world. A small part runs at the start of every document, before the page's own scripts. The
rest comes with the first call. It is kept under a secret name: if a context's number is reused, the other context
cannot answer.
"""

import secrets
from collections.abc import Awaitable
from functools import cache
from importlib import resources
from typing import Any, Final, Protocol

from palyra.browser.domain.action import Dialog
from palyra.browser.domain.cdp_messages import CommandRefused
from palyra.browser.domain.document_state import FrameView
from palyra.browser.domain.limits import ANSWER_SECONDS, MAX_FRAMES
from palyra.browser.domain.page_address import Redact
from palyra.browser.domain.page_errors import DocumentGone, PageScriptFailed
from palyra.browser.engine.cdp_connection import CdpPipe, TargetGone


class PageView(Protocol):
    """One tab, as observation and input use it."""

    @property
    def cdp(self) -> CdpPipe: ...

    @property
    def tab(self) -> str: ...

    @property
    def session_id(self) -> str: ...

    def frames(self) -> tuple[FrameView, ...]: ...

    async def world(self, frame: FrameView) -> int: ...

    def dialog(self) -> Dialog | None:
        """Return the open dialog. Until it is answered the page runs nothing, and no wait in it ends."""
        ...

    def dialog_opened(self) -> Awaitable[Any]: ...

    async def settle(self, timeout: float, *, answered: bool = False) -> None:  # noqa: ASYNC109  one deadline for all
        """Wait for a navigation that an input event began, until it committed and its content is loaded.

        ``answered``: the page has answered since that event, so it has reported everything that the event
        began.
        """
        ...


# The name of the isolated world: one for all that we do in a page.
WORLD_NAME: Final = "palyra"
_EARLY: Final = ("early",)
_PARTS: Final = ("dom", "roles", "names", "walk", "find", "guard", "act", "watch")
_CALLED: Final = {
    **{
        name: name
        for name in (
            *("snapshot", "visibleText", "markup", "find", "candidates", "tell", "textShown", "changed", "numberOf"),
            *("ready", "arm", "disarm", "frameHit", "showFrame", "setValue", "giveFocus", "choose"),
            *("fileField", "showElement", "pageSize", "watch", "changeAfter", "unwatch", "loaded", "placeIn"),
            *("elementOf", "boxNow", "dragging", "aim", "nextFrame", "originNow"),
        )
    },
    "scrollBy": "scrollBy_",
}
_GONE: Final = (
    *("context", "navigated", "Promise was collected", "detached", "frame with given id", "Session with given id"),
    "not attached",
)
_NOT_INSTALLED: Final = "palyra: not installed"


@cache
def _body(parts: tuple[str, ...]) -> str:
    folder = resources.files("palyra.browser.page") / "in_page"
    return "\n".join((folder / f"{part}.js").read_text(encoding="utf-8") for part in parts)


class PageScript:
    """The script of one session under its own secret names."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(16)
        # Reports the page's title: a function of our world only, whose calls are events.
        self.binding = f"tell_{secrets.token_hex(16)}"
        self._held = f'globalThis["{self._name}"]'
        self.early = (
            f'(() => {{ "use strict"; if ({self._held}) return;'
            f' const tell = globalThis["{self.binding}"];\n{_body(_EARLY)}\n'
            f'Object.defineProperty(globalThis, "{self._name}", {{ value: hold }}); }})()'
        )
        self.call = (
            f"function(called, given) {{ const ours = {self._held}?.ours;"
            f' if (!ours) throw new Error("{_NOT_INSTALLED}");'
            " return ours[called](...given); }"
        )

    @property
    def source(self) -> str:
        """The whole script. It is large and rarely sent, so it is not cached."""
        exports = ", ".join(f"{name}: {inner}" for name, inner in _CALLED.items())
        return (
            f'{self.early};\n(() => {{ "use strict"; const hold = {self._held}; if (hold.ours) return;\n'
            f"{_body(_PARTS)}\nhold.ours = Object.freeze({{ {exports} }}); }})()"
        )

    @property
    def setup(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        early = {"source": self.early, "worldName": WORLD_NAME, "runImmediately": True}
        return (
            ("Runtime.addBinding", {"name": self.binding, "executionContextName": WORLD_NAME}),
            ("Page.addScriptToEvaluateOnNewDocument", early),
        )


class PageWorlds:
    """Calls into the documents of one tab."""

    def __init__(self, page: PageView, script: PageScript, redact: Redact) -> None:
        self._page = page
        self._script = script
        self._redact = redact
        # Sessions and contexts in which the whole script is installed.
        self._installed: set[tuple[str, int]] = set()

    async def call(self, frame: FrameView, name: str, *given: Any, seconds: float = 0.0) -> Any:
        """Call a function of the script. It may wait ``seconds``. Raise `DocumentGone` when the document is gone."""
        answer = await self._call(frame, name, given, by_value=True, seconds=seconds)
        return answer.get("value")

    async def try_call(self, frame: FrameView, name: str, *given: Any, seconds: float = 0.0) -> Any:
        try:
            return await self.call(frame, name, *given, seconds=seconds)
        except DocumentGone:
            return None

    async def handle(self, frame: FrameView, name: str, *given: Any) -> str:
        answer = await self._call(frame, name, given, by_value=False, seconds=0.0)
        return str(answer.get("objectId", ""))

    async def number_of_owner(self, parent: FrameView, child: FrameView) -> int:
        try:
            owner = await self._page.cdp.send("DOM.getFrameOwner", {"frameId": child.frame_id}, parent.session_id)
            context = await self._page.world(parent)
            resolve = {"backendNodeId": owner["backendNodeId"], "executionContextId": context}
            resolved = await self._page.cdp.send("DOM.resolveNode", resolve, parent.session_id)
            await self.call(parent, "originNow")  # so that the script is there
            params = {
                "functionDeclaration": f"function() {{ return ({self._script.call})('numberOf', [this]); }}",
                "objectId": resolved["object"]["objectId"],
                "returnByValue": True,
            }
            answer = await self._page.cdp.send("Runtime.callFunctionOn", params, parent.session_id)
        except CommandRefused as refused:
            raise DocumentGone("a frame went away while it was looked at") from refused
        return int(answer["result"].get("value") or 0)

    async def _call(
        self, frame: FrameView, name: str, given: tuple[Any, ...], *, by_value: bool, seconds: float
    ) -> dict[str, Any]:
        for attempt in range(2):
            context = await self._page.world(frame)
            params = {
                "functionDeclaration": self._script.call,
                "executionContextId": context,
                "arguments": [{"value": name}, {"value": given}],
                "returnByValue": by_value,
                "awaitPromise": True,
            }
            key = (frame.session_id, context)
            if key not in self._installed:
                self._install(key)
            answer = await self._send("Runtime.callFunctionOn", params, frame, seconds)
            problem = answer.get("exceptionDetails")
            if problem is None:
                result: dict[str, Any] = answer["result"]
                return result
            said = str(problem.get("exception", {}).get("description") or problem.get("text", ""))
            if _NOT_INSTALLED not in said or attempt:
                raise PageScriptFailed(f"the page's script failed in {name}: {self._redact(said)[:300]}", called=name)
            # The context's number was reused for another document.
            self._installed.discard(key)
        raise PageScriptFailed(f"the page's script is not there for {name}", called=name)

    def _install(self, key: tuple[str, int]) -> None:
        """Send the script before the call, in one write. If it fails, the call reports it."""
        self._page.cdp.post("Runtime.evaluate", {"expression": self._script.source, "contextId": key[1]}, key[0])
        if len(self._installed) >= MAX_FRAMES * 4:
            self._installed.clear()
        self._installed.add(key)

    async def _send(self, method: str, params: dict[str, Any], frame: FrameView, seconds: float) -> dict[str, Any]:
        try:
            return await self._page.cdp.send(method, params, frame.session_id, seconds + ANSWER_SECONDS)
        except TargetGone as gone:
            raise DocumentGone("the tab or frame went away meanwhile") from gone
        except CommandRefused as refused:
            if any(word in refused.message for word in _GONE):
                raise DocumentGone("the page was replaced by another meanwhile") from refused
            raise
