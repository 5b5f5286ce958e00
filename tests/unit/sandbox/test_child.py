import os
import socket

import pytest

from palyra.sandbox.domain.launch_spec import LaunchSpec, LaunchStage, RLimit
from palyra.sandbox.launch.child import KeeperEnd, applied_by, exit_of
from palyra.sandbox.launch.plan_encoding import Step
from palyra.sandbox.launch.start_plan import StartPlan
from palyra.sandbox.launch.supervisor import wire


@pytest.fixture
def ends() -> "tuple[KeeperEnd, socket.socket, socket.socket]":
    control, keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    orders, program = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.setblocking(False)
    orders.setblocking(False)
    end = KeeperEnd(1, control, orders)
    yield end, keeper, program  # type: ignore[misc]
    end.close()
    keeper.close()
    program.close()


def test_a_greeting_of_another_release_is_not_accepted(ends: tuple[KeeperEnd, socket.socket, socket.socket]) -> None:
    end, keeper, _ = ends
    keeper.send(wire.HELLO.pack(wire.HELLO_TAG, wire.VERSION + 1, 1, 77))
    assert not end.greeted()
    keeper.send(b"rubbish")
    assert not end.greeted()
    keeper.send(wire.HELLO.pack(wire.HELLO_TAG, wire.VERSION, 1, 77))
    assert end.greeted()
    assert (end.program, end.native) == (77, True)


def test_an_unused_keeper_is_there_until_it_speaks_or_ends(
    ends: tuple[KeeperEnd, socket.socket, socket.socket],
) -> None:
    end, keeper, _ = ends
    assert end.waits()
    keeper.close()
    assert not end.waits()
    end.tell(b"nobody hears this")


def test_a_failed_step_is_named_and_a_wrong_index_is_not_believed(
    ends: tuple[KeeperEnd, socket.socket, socket.socket],
) -> None:
    end, _, program = ends
    end.plan = StartPlan(encoded=b"", steps=(Step(LaunchStage.EXEC, "execve", "/x"),))
    assert not end.hear_start()
    program.send(wire.FAILED.pack(5, 2))
    program.send(wire.FAILED.pack(-2, 2))
    assert not end.hear_start()
    assert end.failure is None
    program.send(wire.FAILED.pack(0, 2))
    program.close()
    assert end.hear_start()
    assert end.failure is not None
    assert end.failure.details == {"stage": "exec", "errno": 2, "call": "execve", "subject": "/x"}


def test_an_exit_is_read_from_its_packet() -> None:
    usage = (1, 500_000, 0, 500_000, 10, 0, 0, 0, 2, 3, 0, 4, 5, 0, 0, 0, 6, 7)
    packet = wire.DONE.pack(wire.DONE_TAG, 3 << 8, *usage, 8, 9)
    ended = exit_of(packet)
    assert (ended.exit_code, ended.signal, ended.orphans_killed, ended.survivors) == (3, None, 8, 9)
    assert ended.rusage["maxrss_kib"] == 10
    assert ended.rusage["preemptions"] == 7
    real_time_signal = wire.DONE.pack(wire.DONE_TAG, 40, *[0] * 20)
    assert (exit_of(real_time_signal).exit_code, exit_of(real_time_signal).signal) == (None, 40)
    assert os.WTERMSIG(40) == 40


def test_what_was_applied_follows_from_the_order() -> None:
    spec = LaunchSpec(argv=(b"/bin/true",), rlimits=(RLimit("CPU", 1, 1),), seccomp=b"x" * 8)
    applied = applied_by(spec, 7)
    assert (applied.rlimits, applied.seccomp, applied.landlock_abi, applied.cgroups) == (1, True, 7, 0)
