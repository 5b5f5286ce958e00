"""What palyrad remembers of the browser daemon's profiles, and what it does with one that knows less."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.journal_harness import JournalHarness
from palyra.browser.domain.session_api import Caller, ProfilesHead
from palyra.browser.profiles.tables import SCHEMA, put_last_head, read_last_head
from palyra.browser.service.profile_witness import ProfileWitness
from palyra.store.sqlite.store import SqliteStore

ITSELF = Caller(operator="user:palyrad")
ONE, TWO, THREE = (ProfilesHead(generation=number, mark=f"mark {number}") for number in (1, 2, 3))
OLDER = ProfilesHead(generation=1, mark="mark 1", rolled_back=True)


class Peer:
    """A browser daemon that tells these, and remembers what it was told."""

    def __init__(self, *heads: ProfilesHead) -> None:
        self.heads = heads
        self.received: list[ProfilesHead] = []
        self.accepted: list[str] = []

    async def follow_profiles(self, caller: Caller, received: ProfilesHead) -> AsyncGenerator[ProfilesHead, None]:
        assert caller == ITSELF
        self.received.append(received)
        for head in self.heads:
            yield head

    async def accept_profiles(self, caller: Caller) -> ProfilesHead:
        self.accepted.append(caller.operator)
        return ProfilesHead(generation=4, mark="mark 4")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = JournalHarness(tmp_path).open(schema=SCHEMA)
    yield store
    store.close()


def on_record(store: SqliteStore) -> list[tuple[str, str, Any]]:
    return [(each.kind, each.actor, msgspec.json.decode(each.payload)) for each in store.events_since(0, 100)]


def witness(store: SqliteStore) -> ProfileWitness:
    return ProfileWitness(store, ITSELF, "palyrad")


async def test_what_was_heard_is_told_to_the_next_browser_daemon(store: SqliteStore) -> None:
    first: Any = Peer(ONE, TWO)
    own = witness(store)
    heads = await own.meet(first)
    assert first.received == [ProfilesHead()] and read_last_head(store) == ONE
    await own.follow(heads)
    assert read_last_head(store) == TWO and not own.rolled_back
    # Also by the palyrad after this one.
    second: Any = Peer(THREE)
    await witness(store).catch_up(second)
    assert second.received == [TWO] and read_last_head(store) == THREE
    assert on_record(store) == []


async def test_what_is_heard_late_does_not_undo_what_is_known(store: SqliteStore) -> None:
    await asyncio.gather(*(store.transact(lambda tx, head=head: put_last_head(tx, head)) for head in (THREE, ONE, TWO)))
    assert read_last_head(store) == THREE


async def test_profiles_of_before_there_were_marks_are_not_remembered(store: SqliteStore) -> None:
    await witness(store).catch_up(Peer(ProfilesHead(generation=7)))  # type: ignore[arg-type]
    assert read_last_head(store) == ProfilesHead()


async def test_an_older_copy_is_on_record_once_and_forgets_nothing(store: SqliteStore) -> None:
    own = witness(store)
    await own.catch_up(Peer(THREE))  # type: ignore[arg-type]
    peer: Any = Peer(OLDER, OLDER)
    await own.follow(await own.meet(peer))
    assert own.rolled_back and read_last_head(store) == THREE
    seen = ("browser.profiles_folder_rolled_back", "palyrad", {"heard": 3, "found": 1})
    assert on_record(store) == [seen]
    payload = await own.accept(peer, "user:boss")
    assert payload == {"heard": 3, "found": 1, "generation": 4}
    assert peer.accepted == ["user:boss"] and not own.rolled_back and read_last_head(store).mark == "mark 4"
    assert on_record(store) == [seen, ("browser.profiles_accepted", "user:boss", payload)]


async def test_one_that_is_the_newest_again_is_used_again(store: SqliteStore) -> None:
    own = witness(store)
    await own.catch_up(Peer(THREE))  # type: ignore[arg-type]
    await own.catch_up(Peer(OLDER))  # type: ignore[arg-type]
    assert own.rolled_back
    await own.catch_up(Peer(THREE))  # type: ignore[arg-type]
    assert not own.rolled_back
