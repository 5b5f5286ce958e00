"""Bounds that depend on one another."""

from palyra.browser.domain import limits
from palyra.browser.engine.launch_plan import FLAGS


def test_one_command_fits_into_what_may_wait() -> None:
    assert limits.MAX_COMMAND_BYTES < limits.MAX_UNSENT_BYTES


def test_the_cache_fits_into_its_folder() -> None:
    (flag,) = (flag for flag in FLAGS if flag.name == "disk-cache-size")
    assert int(flag.value) < limits.FolderSizes().cache


def test_a_daemon_that_was_killed_is_cleaned_up_within_its_bar() -> None:
    assert limits.END_SECONDS <= 5
    assert limits.READY_PROCESSES <= limits.MAX_READY_PROCESSES
