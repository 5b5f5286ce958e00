"""Our script in a page: read from the package, put into an isolated world once for each document, and called.

The page cannot see that world. The script is kept there under a name that nobody can guess, so that an answer from
anywhere else, should a context's number be given again, is no answer.
"""

import secrets
from functools import cache
from importlib import resources
from typing import Any, Final

from palyra.browser.cdp_codec import CommandRefused
from palyra.browser.cdp_pipe import TargetGone
from palyra.browser.element_errors import PageScriptFailed
from palyra.browser.page_errors import DocumentGone
from palyra.browser.page_limits import ANSWER_SECONDS
from palyra.browser.page_port import FrameView, PageView, Redact

# The name of the isolated world: one for all that we do in a page.
WORLD_NAME: Final = "palyra"
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
def _body() -> str:
    folder = resources.files("palyra.browser") / "in_page"
    return "\n".join((folder / f"{part}.js").read_text(encoding="utf-8") for part in _PARTS)


class PageScript:
    """The script of one session under its own secret name."""

    def __init__(self) -> None:
        self._name = secrets.token_hex(16)

    @property
    def source(self) -> str:
        """Does nothing where it is installed already, so it may also run at the start of every document."""
        exports = ", ".join(f"{name}: {inner}" for name, inner in _CALLED.items())
        begins = f'(() => {{ "use strict"; if (globalThis["{self._name}"]) return;'
        ends = f'Object.defineProperty(globalThis, "{self._name}", {{ value: Object.freeze({{ {exports} }}) }}); }})()'
        return f"{begins}\n{_body()}\n{ends}"

    @property
    def call(self) -> str:
        return (
            "function(called, given) {"
            f' const ours = globalThis["{self._name}"];'
            f' if (ours === undefined) throw new Error("{_NOT_INSTALLED}");'
            " return ours[called](...given); }"
        )


class PageWorlds:
    """Calls into the documents of one tab."""

    def __init__(self, page: PageView, script: PageScript, redact: Redact) -> None:
        self._page = page
        self._script = script
        self._redact = redact
        # Sessions in which it is there from the start of every further document, before the page's own scripts.
        self._from_the_start: set[str] = set()

    async def call(self, frame: FrameView, name: str, *given: Any, seconds: float = 0.0) -> Any:
        """``seconds`` is how long the script itself may wait. `DocumentGone`: the document went meanwhile."""
        answer = await self._call(frame, name, given, by_value=True, seconds=seconds)
        return answer.get("value")

    async def handle(self, frame: FrameView, name: str, *given: Any) -> str:
        """The object that a function returned, as Chromium names it; empty for none."""
        answer = await self._call(frame, name, given, by_value=False, seconds=0.0)
        return str(answer.get("objectId", ""))

    async def number_of_owner(self, parent: FrameView, child: FrameView) -> int:
        """The number of the element that holds a frame, in its parent's document."""
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
                "arguments": [{"value": name}, {"value": list(given)}],
                "returnByValue": by_value,
                "awaitPromise": True,
            }
            answer = await self._send("Runtime.callFunctionOn", params, frame, seconds)
            problem = answer.get("exceptionDetails")
            if problem is None:
                return dict(answer["result"])
            said = str(problem.get("exception", {}).get("description") or problem.get("text", ""))
            if _NOT_INSTALLED not in said or attempt:
                raise PageScriptFailed(f"the page's script failed in {name}: {self._redact(said)[:300]}", called=name)
            await self._send("Runtime.evaluate", {"expression": self._script.source, "contextId": context}, frame, 0.0)
            if frame.session_id not in self._from_the_start:
                self._from_the_start.add(frame.session_id)
                early = {"source": self._script.source, "worldName": WORLD_NAME}
                await self._send("Page.addScriptToEvaluateOnNewDocument", early, frame, 0.0)
        raise PageScriptFailed(f"the page's script is not there for {name}", called=name)

    async def _send(self, method: str, params: dict[str, Any], frame: FrameView, seconds: float) -> dict[str, Any]:
        try:
            return await self._page.cdp.send(method, params, frame.session_id, seconds + ANSWER_SECONDS)
        except TargetGone as gone:
            raise DocumentGone("the tab or frame went away meanwhile") from gone
        except CommandRefused as refused:
            if any(word in refused.message for word in _GONE):
                raise DocumentGone("the page was replaced by another meanwhile") from refused
            raise
