"""What the browser daemon finds amiss in its profiles it says, and a new key takes over when it starts."""

import base64
import logging
from pathlib import Path

import pytest

from fakes.profile_harness import ANNA, NEW, OLD, ProfileHarness
from palyra.browser.profiles.encryption import VARIABLE, StateKey
from palyra.browser.profiles.store import ProfileStore, open_profiles


@pytest.fixture
def harness(tmp_path: Path) -> ProfileHarness:
    return ProfileHarness(tmp_path)


def opened(harness: ProfileHarness, *keys: StateKey) -> ProfileStore:
    given = ",".join(base64.b64encode(key.reveal()).decode() for key in keys)
    return open_profiles(harness.folder, harness.folder.parent / "key", {VARIABLE: given}, now_ms=lambda: 1_000)


def test_after_a_start_with_two_keys_the_older_one_can_go(
    harness: ProfileHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    record = harness.made("state")
    opened(harness, NEW, OLD).close()
    assert "1 states were put under the newest key" in caplog.text
    assert harness.content(ANNA, record.profile_id, NEW) == "state"


def test_a_state_that_does_not_verify_is_named(harness: ProfileHarness, caplog: pytest.LogCaptureFixture) -> None:
    record = harness.made("state")
    harness.state(record).write_bytes(b"x" * harness.state(record).stat().st_size)
    with opened(harness, NEW, OLD) as store:
        assert [one.profile_id for one in store.profiles(ANNA)] == [record.profile_id]
    assert record.profile_id in caplog.text


def test_what_was_set_aside_is_told(harness: ProfileHarness, caplog: pytest.LogCaptureFixture) -> None:
    harness.made("state")
    stray = harness.folder / "01K0000000000000000000000A.1.enc"
    stray.write_bytes(b"x")
    opened(harness, OLD).close()
    assert f"stray state set aside: {stray.name}" in caplog.text
