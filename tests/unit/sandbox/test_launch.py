import pytest

from palyra.sandbox.domain.launch_spec import (
    FIRST_EXTRA_DESCRIPTOR,
    LAST_EXTRA_DESCRIPTOR,
    MAX_EXTRA_DESCRIPTORS,
    BadLaunch,
    LaunchSpec,
)
from palyra.sandbox.launch.supervisor.exec_child import NOT_STARTED
from palyra.sandbox.launch.supervisor.native_code import MAX_RECEIVED, ORDERS_DESCRIPTOR


def test_the_executable_may_differ_from_the_name_the_program_is_told() -> None:
    assert LaunchSpec(argv=(b"ls",), executable=b"/bin/busybox").program == b"/bin/busybox"
    assert LaunchSpec(argv=(b"/bin/ls",)).program == b"/bin/ls"
    with pytest.raises(BadLaunch):
        LaunchSpec(argv=(b"/bin/ls",), executable=b"busybox")


def test_the_numbers_leave_room_for_each_other() -> None:
    """Targets, then the places received descriptors are moved to, then the descriptor of the orders."""
    assert FIRST_EXTRA_DESCRIPTOR == 3
    assert LAST_EXTRA_DESCRIPTOR < 64
    assert 64 + 3 + MAX_EXTRA_DESCRIPTORS < ORDERS_DESCRIPTOR
    assert 1 + 3 + MAX_EXTRA_DESCRIPTORS <= MAX_RECEIVED
    assert NOT_STARTED == 127


def test_too_many_descriptors_are_refused() -> None:
    with pytest.raises(BadLaunch):
        LaunchSpec(argv=(b"/bin/true",), pass_fds=tuple(range(3, 3 + MAX_EXTRA_DESCRIPTORS + 1)))


def test_a_safe_launch_is_what_one_gets_without_asking() -> None:
    spec = LaunchSpec(argv=(b"/bin/true",))
    assert spec.no_new_privs
    assert spec.new_session
    assert spec.env == ()
