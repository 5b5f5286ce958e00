"""Messages of skills: each goes into the journal first, then to the listeners of its channel.

The journal keeps a shortened text; listeners get the whole. A listener that is too slow misses messages, and gets the
number of missed ones.
"""

import asyncio
from collections import deque
from typing import Final, Self

import msgspec

from palyra.store.event import NewEvent
from palyra.store.port import Store

# Messages that wait for one listener.
MAX_WAITING: Final = 256
MAX_LISTENERS: Final = 64


class ChannelMessage(msgspec.Struct, frozen=True, kw_only=True):
    """``seq`` is the number of the journal entry; ``missed`` how many messages this listener lost before it."""

    seq: int
    channel: str
    skill: str
    call: str
    text: str
    missed: int = 0


class ChannelHub:
    def __init__(self, store: Store, *, actor: str) -> None:
        self._store = store
        self._actor = actor
        self._listeners: set[Listening] = set()

    async def send(self, channel: str, text: str, *, skill: str, principal: str, run: str, call: str) -> None:
        event = NewEvent(
            kind="channel.message",
            actor=self._actor,
            principal=principal,
            run=run,
            call=call,
            payload={"channel": channel, "skill": skill, "text": text},
        )
        recorded = await self._store.transact(lambda tx: tx.append(event))
        message = ChannelMessage(seq=recorded.seq, channel=channel, skill=skill, call=call, text=text)
        for listener in self._listeners:
            if listener.channel == channel:
                listener.receive(message)

    def listen(self, channel: str) -> "Listening | None":
        """Add a listener, or return None at the limit of listeners."""
        return Listening(self._listeners, channel) if len(self._listeners) < MAX_LISTENERS else None


class Listening:
    """One listener: a context, and an iterator over messages until it is closed."""

    def __init__(self, listeners: "set[Listening]", channel: str) -> None:
        self.channel = channel
        self._listeners = listeners
        self._waiting: deque[ChannelMessage] = deque()
        self._missed = 0
        self._closed = False
        self._attention = asyncio.Event()

    def __enter__(self) -> Self:
        self._listeners.add(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listeners.discard(self)

    def close(self) -> None:
        self._closed = True
        self._attention.set()

    def receive(self, message: ChannelMessage) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._missed += 1
            return
        self._waiting.append(msgspec.structs.replace(message, missed=self._missed))
        self._missed = 0
        self._attention.set()

    async def __anext__(self) -> ChannelMessage:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._attention.clear()
            await self._attention.wait()
        return self._waiting.popleft()
