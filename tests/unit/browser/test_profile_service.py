"""Profiles as they are asked for: the asker's own, and none that a session uses is taken away from under it."""

from pathlib import Path

import pytest

from fakes.session_harness import SessionHarness
from palyra.browser.domain.profile import NoSuchProfile, ProfileExists, ProfilesFolderRolledBack
from palyra.browser.domain.session_api import Caller, ProfilesHead
from palyra.browser.service.profile_service import ProfileService
from palyra.browser.service.session_manager import ProfileInUse

ANNA, BEN = Caller(principal="agent:anna"), Caller(principal="user:ben")


async def test_profiles_are_made_renamed_and_deleted_by_their_owner_only(tmp_path: Path) -> None:
    used: dict[str, str] = {}
    service = ProfileService(SessionHarness(tmp_path).store, lambda profile_id: used.get(profile_id, ""))
    made = await service.create(ANNA, "work", "", private=False)
    assert (made.persistence, made.private, made.colour) == (True, False, "#5f6368")
    private = await service.create(ANNA, "once", "#ff0000", private=True)
    assert (private.persistence, private.private) == (False, True)
    with pytest.raises(ProfileExists):
        await service.create(ANNA, "work", "", private=False)
    renamed = await service.rename(ANNA, made.profile_id, "home", "")
    assert (renamed.name, renamed.colour) == ("home", made.colour)
    for ask in (service.delete, service.reset):
        with pytest.raises(NoSuchProfile):
            await ask(BEN, made.profile_id)
    with pytest.raises(NoSuchProfile):
        await service.rename(BEN, made.profile_id, "mine", "")
    used[made.profile_id] = "S1"
    for ask in (service.delete, service.reset):
        with pytest.raises(ProfileInUse) as in_use:
            await ask(ANNA, made.profile_id)
        assert in_use.value.details["session_id"] == "S1"
        # Whether another's is in use is nobody's business.
        with pytest.raises(NoSuchProfile):
            await ask(BEN, made.profile_id)
    assert [each.session_id for each in await service.profiles(ANNA)] == ["S1", ""]
    used.clear()
    await service.delete(ANNA, made.profile_id)
    assert [each.name for each in await service.profiles(ANNA)] == ["once"]


async def test_who_follows_hears_of_each_change_and_of_the_last(tmp_path: Path) -> None:
    store = SessionHarness(tmp_path).store
    service = ProfileService(store, lambda _: "")
    heads = service.follow(ProfilesHead())
    first = await anext(heads)
    made = await service.create(ANNA, "work", "", private=False)
    assert await anext(heads) == store.head != first
    # Two at once are told as the later one.
    await service.rename(ANNA, made.profile_id, "home", "")
    await service.rename(ANNA, made.profile_id, "office", "")
    assert (await anext(heads)).generation == first.generation + 3
    await service.delete(ANNA, made.profile_id)
    service.end_following()
    assert [each async for each in heads] == [store.head]


async def test_an_older_copy_is_listed_for_operators_as_what_it_is(tmp_path: Path) -> None:
    store = SessionHarness(tmp_path).store
    service = ProfileService(store, lambda _: "")
    await service.create(ANNA, "work", "", private=False)
    heads = service.follow(ProfilesHead(generation=9, mark="later"))
    assert (await anext(heads)).rolled_back
    with pytest.raises(ProfilesFolderRolledBack):
        await service.profiles(ANNA)
    (seen,) = await service.profiles(Caller(operator="user:boss"))
    assert (seen.name, seen.damaged) == ("work", ProfilesFolderRolledBack.code)
    accepted = await service.accept()
    head = await anext(heads)
    assert not accepted.rolled_back and head.mark == accepted.mark
    assert [each.damaged for each in await service.profiles(ANNA)] == [""]
    await heads.aclose()
