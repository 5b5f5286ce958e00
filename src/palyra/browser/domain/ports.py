"""Values and callables that connect the page layer, the tabs and the sessions."""

from collections.abc import Callable
from typing import Protocol

import msgspec


class FrameView(msgspec.Struct, frozen=True, kw_only=True):
    """One frame of a tab. Another document in the same frame has another ``loader_id``.

    ``session_id`` is the frame's CDP session: a frame of another site may live in a process, and a session, of
    its own.
    """

    frame_id: str
    loader_id: str
    session_id: str
    url: str
    parent_id: str = ""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """The picture, document or JSON text that an action produced."""

    content: bytes = b""
    media_type: str = ""
    value_json: str = ""


class RequestJudge(Protocol):
    """Decides whether a session may go somewhere. The guard judges each connection again, with the addresses."""

    async def judge_document(self, url: str) -> None:
        """Judge a navigation, redirect, popup or frame. Raise the refusal."""
        ...

    def judge_request(self, url: str) -> None:
        """Judge anything that a page loads."""
        ...


# Removes every known secret from a text. Every text of a page passes through it.
Redact = Callable[[str], str]
