import pytest

from palyra.sandbox.domain.launch_spec import (
    CPU_GRACE_SECONDS,
    FIRST_EXTRA_DESCRIPTOR,
    LAST_EXTRA_DESCRIPTOR,
    MAX_EXTRA_DESCRIPTORS,
    BadLaunch,
    LaunchSpec,
    build_tier_b_rlimits,
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


def test_every_limit_is_there_and_the_processor_warns_first() -> None:
    made = build_tier_b_rlimits(
        cpu_seconds=3, memory_bytes=1000, pids=5, open_files=40, file_bytes=7, tasks_of_user=100
    )
    found = {limit.name: (limit.soft, limit.hard) for limit in made}
    assert found["CPU"] == (3, 3 + CPU_GRACE_SECONDS)
    assert found["NPROC"] == (105, 105) and found["AS"] == (1000, 1000)
    assert found["CORE"] == (1, 1) and found["NOFILE"] == (40, 40) and found["FSIZE"] == (7, 7)


def test_memory_is_left_to_a_control_group_where_there_is_one() -> None:
    made = build_tier_b_rlimits(cpu_seconds=3, memory_bytes=None, pids=5, open_files=40, file_bytes=7, tasks_of_user=0)
    assert "AS" not in {limit.name for limit in made}
