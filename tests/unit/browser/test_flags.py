"""Flags as data."""

import pytest

from palyra.browser.engine.launch_plan import FEATURES_OFF, FLAGS, NO_SANDBOX, flags, missing_guard_flags

WORDS = ("chromium", *(flag.word for flag in FLAGS))


def test_each_flag_has_a_reason_and_stands_once() -> None:
    names = [flag.name for flag in FLAGS]
    assert len(set(names)) == len(names)
    assert all(flag.reason for flag in FLAGS)
    assert all(FEATURES_OFF.values())


def test_the_sandbox_is_on_unless_told_otherwise() -> None:
    assert NO_SANDBOX not in {flag.name for flag in flags()}
    assert NO_SANDBOX in {flag.name for flag in flags(own_sandbox=False)}


def test_no_flag_opens_a_port() -> None:
    assert not any("debugging-port" in word or "debugging-address" in word for word in WORDS)


def test_a_process_with_all_flags_misses_none() -> None:
    assert missing_guard_flags(WORDS) == []


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.guards], ids=lambda flag: flag.name)
def test_a_missing_fence_is_named(flag: object) -> None:
    word = flag.word  # type: ignore[attr-defined]
    assert missing_guard_flags(tuple(each for each in WORDS if each != word)) == [flag.name]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("added", "named"),
    [
        ("--no-proxy-server", "no-proxy-server"),
        ("--remote-debugging-port=0", "remote-debugging-port"),
        # Chromium takes the last of two.
        ("--proxy-server=direct://", "proxy-server"),
        ("--proxy-bypass-list=*", "proxy-bypass-list"),
    ],
)
def test_a_flag_that_undoes_a_fence_is_named(added: str, named: str) -> None:
    assert missing_guard_flags((*WORDS, added)) == [named]
