"""Finds elements by ref or selector, and the place of a frame's points in the tab's window."""

import asyncio
from collections.abc import Iterable
from typing import Any, NoReturn

import msgspec

from palyra.browser.domain.action import ElementTarget
from palyra.browser.domain.document_state import FrameView
from palyra.browser.domain.limits import MAX_FRAMES, MAX_NAMED
from palyra.browser.domain.page_address import Redact
from palyra.browser.domain.page_errors import BadSelector, DocumentGone, NoMatch, SeveralMatch, StaleRef
from palyra.browser.domain.page_tree import Bound, Candidate, RefRegistry, join_candidates, rank, render_element
from palyra.browser.page.in_page_script import PageScript, PageView, PageWorlds
from palyra.errors import PalyraError


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float


class FrameHidden(msgspec.Struct, frozen=True):
    """A frame around the element would not be hit at the point. ``by`` is the element that would be."""

    frame: FrameView
    by: dict[str, Any] | None


class PageFrames:
    def __init__(self, page: PageView, worlds: PageWorlds) -> None:
        self._page = page
        self._worlds = worlds
        # The number of the element that holds a frame, by the documents of both.
        self._owners: dict[tuple[str, str, str], int] = {}

    def all(self) -> tuple[FrameView, ...]:
        return self._page.frames()[:MAX_FRAMES]

    @property
    def main(self) -> FrameView:
        return self._page.frames()[0]

    def by_id(self, frame_id: str) -> FrameView | None:
        return next((each for each in self._page.frames() if each.frame_id == frame_id), None)

    def parent(self, frame: FrameView) -> FrameView | None:
        return self.by_id(frame.parent_id) if frame.parent_id else None

    async def owner(self, frame: FrameView) -> tuple[FrameView, int] | None:
        parent = self.parent(frame)
        if parent is None:
            return None
        key = (frame.frame_id, parent.frame_id, parent.loader_id)
        number = self._owners.get(key)
        if number is None:
            number = await self._worlds.number_of_owner(parent, frame)
            if len(self._owners) > MAX_FRAMES * 4:
                self._owners.clear()
            self._owners[key] = number
        return parent, number

    async def owners(self) -> dict[str, tuple[FrameView, int]]:
        frames = self.all()[1:]
        found = await asyncio.gather(*(self.owner(each) for each in frames), return_exceptions=True)
        held: dict[str, tuple[FrameView, int]] = {}
        for frame, owner in zip(frames, found, strict=True):
            if isinstance(owner, BaseException):
                if not isinstance(owner, PalyraError):
                    raise owner
            elif owner is not None:
                held[frame.frame_id] = owner
        return held

    async def in_window(self, frame: FrameView, x: float, y: float) -> Point | FrameHidden:
        """Return a frame's point in the tab's window, if every frame around it would be hit there."""
        at = frame
        for _ in range(MAX_FRAMES):
            owner = await self.owner(at)
            if owner is None:
                return Point(x, y)
            parent, number = owner
            hit = await self._worlds.call(parent, "frameHit", number, x, y)
            if "problem" in hit:
                if hit["problem"] == "removed":
                    raise DocumentGone("a frame around the element went away meanwhile")
                return FrameHidden(parent, hit.get("by"))
            x, y, at = hit["x"], hit["y"], parent
        raise DocumentGone("frames are nested too deeply")

    async def place(self, frame: FrameView, point: Point) -> Point:
        x, y, at = point.x, point.y, frame
        for _ in range(MAX_FRAMES):
            owner = await self.owner(at)
            if owner is None:
                break
            parent, number = owner
            lies = await self._worlds.call(parent, "frameHit", number, x, y)
            x, y, at = lies.get("x", x), lies.get("y", y), parent
        return Point(x, y)

    async def show(self, frame: FrameView, *, if_unseen: bool = False) -> None:
        around: list[tuple[FrameView, int]] = []
        at = frame
        while (owner := await self.owner(at)) is not None and len(around) < MAX_FRAMES:
            around.append(owner)
            at = owner[0]
        for parent, number in reversed(around):
            await self._worlds.call(parent, "showFrame", number, if_unseen)


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """An element that was found, in a document that was present then."""

    ref: str
    bound: Bound
    frame: FrameView
    # A point for the mouse while the script checks that the element is at rest.
    aim: Point | None = None

    def __str__(self) -> str:
        return f"{self.ref} ({self.bound})"


class ElementFinder:
    def __init__(self, frames: PageFrames, worlds: PageWorlds, refs: RefRegistry, redact: Redact) -> None:
        self._frames = frames
        self._worlds = worlds
        self._refs = refs
        self._redact = redact

    async def find(self, target: ElementTarget) -> Located:
        """Find the one element. `NoMatch`, `SeveralMatch` and `StaleRef` name the candidates."""
        if target.ref is not None:
            located = self.by_ref(target.ref)
            bound = located.bound
            changed = await self._worlds.call(located.frame, "changed", bound.number, bound.role, bound.name)
            if changed is not None:
                await self.stale(located, changed)
            return located
        return await self.require_one(target, await self.find_all(target))

    async def require_one(self, target: ElementTarget, matched: list[Located]) -> Located:
        if len(matched) == 1:
            return matched[0]
        if matched:
            named = [self._candidate(each.ref, each.bound) for each in matched[:MAX_NAMED]]
            raise SeveralMatch(
                f"{self._describe_target(target)} matches {len(matched)} elements: {join_candidates(named)}",
                candidates=msgspec.to_builtins(named),
                count=len(matched),
            )
        return await self._refuse_missing(target)

    def by_ref(self, ref: str) -> Located:
        """Require that the ref's document is still there. The action itself checks the element."""
        bound = self._refs.get(ref)
        frame = self._frames.by_id(bound.frame_id)
        if frame is None:
            raise StaleRef(f"{self._named(ref, bound)} is gone with its frame", ref=ref, changed="frame")
        if frame.loader_id != bound.loader_id:
            raise StaleRef(
                f"{self._named(ref, bound)} is gone: another page was loaded in its place", ref=ref, changed="document"
            )
        return Located(ref=ref, bound=bound, frame=frame)

    async def find_all(self, target: ElementTarget) -> list[Located]:
        """Find the best matches over all frames: visible before hidden, then exact before partial."""
        selector = {"css": target.css, "text": target.text, "role": target.role, "name": target.name}
        frames = self._frames.all()
        answers = await asyncio.gather(*(self._worlds.try_call(each, "find", selector) for each in frames))
        best: dict[int, list[Located]] = {}
        for frame, answer in zip(frames, answers, strict=True):
            if answer is None:
                continue
            if "problem" in answer:
                raise BadSelector(
                    f"{self._describe_target(target)} is no selector: {self._redact(answer['problem'])[:200]}"
                )
            described = [self.locate(frame, each) for each in answer["elements"]]
            aim = answer.get("aim")
            if len(described) == 1 and aim is not None:
                described = [msgspec.structs.replace(described[0], aim=Point(aim["x"], aim["y"]))]
            if described:
                best.setdefault(int(answer["rank"]), []).extend(described)
        return best[min(best)] if best else []

    def locate(self, frame: FrameView, described: dict[str, Any]) -> Located:
        bound = _bound(frame, described)
        return Located(ref=self._refs.bind(bound), bound=bound, frame=frame)

    async def stale(self, located: Located, changed: dict[str, Any]) -> NoReturn:
        was, what = self._named(located.ref, located.bound), str(changed["change"])
        if what in ("role", "name") and changed.get("number"):
            described = await self._worlds.try_call(located.frame, "tell", int(changed["number"]))
            if described is not None:
                same = self.locate(located.frame, described)
                candidate = self._candidate(same.ref, same.bound)
                raise StaleRef(
                    f"{was} has another {what} now: it is {candidate}",
                    ref=located.ref,
                    changed=what,
                    candidates=msgspec.to_builtins([candidate]),
                )
        near = await self._find_near([located.frame], located.bound.role, located.bound.name)
        happened = {
            "removed": "was taken from the page",
            "role": "has another role now",
            "name": "has another name now",
        }.get(what, "is not what would be hit")
        nearest = f"; nearest is {near[0]}" if near else ""
        raise StaleRef(
            f"{was} {happened}{nearest}", ref=located.ref, changed=what, candidates=msgspec.to_builtins(near)
        )

    async def _refuse_missing(self, target: ElementTarget) -> NoReturn:
        wanted = target.name or target.text or ""
        near = await self._find_near(self._frames.all(), target.role or "", wanted) if wanted or target.role else []
        text = f"; nearest: {join_candidates(near)}" if near else ""
        raise NoMatch(
            f"{self._describe_target(target)} matches nothing on the page{text}", candidates=msgspec.to_builtins(near)
        )

    async def _find_near(self, frames: Iterable[FrameView], role: str, wanted: str) -> list[Candidate]:
        found: list[Bound] = []
        for frame in frames:
            described = await self._worlds.try_call(frame, "candidates", role)
            found += [_bound(frame, each) for each in described or ()]
        best = rank(wanted, found) if wanted else found[:MAX_NAMED]
        return [self._candidate(self._refs.bind(bound), bound) for bound in best]

    def _candidate(self, ref: str, bound: Bound) -> Candidate:
        return Candidate(ref=ref, role=bound.role, name=self._redact(bound.name)[:200])

    def _named(self, ref: str, bound: Bound) -> str:
        return f"{ref} ({render_element(bound.role, self._redact(bound.name))})"

    def name(self, located: Located) -> str:
        return self._named(located.ref, located.bound)

    def _describe_target(self, target: ElementTarget) -> str:
        if target.role is not None:
            return self._redact(render_element(target.role, target.name or ""))
        form = "css" if target.css is not None else "text"
        return self._redact(f"{form} {(target.css or target.text or '')[:200]!r}")


def _bound(frame: FrameView, described: dict[str, Any]) -> Bound:
    return Bound(
        frame_id=frame.frame_id,
        loader_id=frame.loader_id,
        number=described["number"],
        role=described["role"],
        name=described["name"],
    )


class PageTools:
    """The tab, its frames, its script and its elements, for the classes that observe it and act in it."""

    def __init__(self, page: PageView, refs: RefRegistry, script: PageScript, redact: Redact) -> None:
        self.page = page
        self.refs = refs
        self.redact = redact
        self.worlds = PageWorlds(page, script, redact)
        self.frames = PageFrames(page, self.worlds)
        self.finder = ElementFinder(self.frames, self.worlds, refs, redact)
