"""Profiles as they are asked for: the asker's own, and none that a session uses is taken away from under it."""

from pathlib import Path

import pytest

from fakes.session_scene import SessionScene
from palyra.browser.profile_desk import ProfileDesk
from palyra.browser.profile_errors import NoSuchProfile, ProfileExists
from palyra.browser.session_manager import ProfileInUse
from palyra.browser.session_view import Caller

ANNA, BEN = Caller(principal="agent:anna"), Caller(principal="user:ben")


async def test_profiles_are_made_renamed_and_deleted_by_their_owner_only(tmp_path: Path) -> None:
    used: dict[str, str] = {}
    desk = ProfileDesk(SessionScene(tmp_path).store, lambda profile_id: used.get(profile_id, ""))
    made = await desk.create(ANNA, "work", "", private=False)
    assert (made.persistence, made.private, made.colour) == (True, False, "#5f6368")
    private = await desk.create(ANNA, "once", "#ff0000", private=True)
    assert (private.persistence, private.private) == (False, True)
    with pytest.raises(ProfileExists):
        await desk.create(ANNA, "work", "", private=False)
    renamed = await desk.rename(ANNA, made.profile_id, "home", "")
    assert (renamed.name, renamed.colour) == ("home", made.colour)
    for ask in (desk.delete, desk.reset):
        with pytest.raises(NoSuchProfile):
            await ask(BEN, made.profile_id)
    with pytest.raises(NoSuchProfile):
        await desk.rename(BEN, made.profile_id, "mine", "")
    used[made.profile_id] = "S1"
    for ask in (desk.delete, desk.reset):
        with pytest.raises(ProfileInUse) as in_use:
            await ask(ANNA, made.profile_id)
        assert in_use.value.details["session_id"] == "S1"
        # Whether another's is in use is nobody's business.
        with pytest.raises(NoSuchProfile):
            await ask(BEN, made.profile_id)
    assert [each.session_id for each in await desk.profiles(ANNA)] == ["S1", ""]
    used.clear()
    await desk.delete(ANNA, made.profile_id)
    assert [each.name for each in await desk.profiles(ANNA)] == ["once"]
