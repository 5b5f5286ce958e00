import os
import socket

import pytest

from palyra.sandbox.domain.launch_spec import LaunchStage
from palyra.sandbox.launch.launcher import exit_of
from palyra.sandbox.launch.plan_segment import Step
from palyra.sandbox.launch.start_plan import StartPlan
from palyra.sandbox.launch.supervisor import wire
from palyra.sandbox.launch.supervisor_pool import SupervisorLink


@pytest.fixture
def ends() -> "tuple[SupervisorLink, socket.socket, socket.socket]":
    control, supervisor = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    orders, program = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.setblocking(False)
    orders.setblocking(False)
    end = SupervisorLink(1, control, orders)
    yield end, supervisor, program  # type: ignore[misc]
    end.close()
    supervisor.close()
    program.close()


def test_a_greeting_of_another_release_is_not_accepted(
    ends: tuple[SupervisorLink, socket.socket, socket.socket],
) -> None:
    end, supervisor, _ = ends
    supervisor.send(wire.HELLO.pack(wire.HELLO_TAG, wire.VERSION + 1, 1, 77))
    assert not end.greet()
    supervisor.send(b"rubbish")
    assert not end.greet()
    supervisor.send(wire.HELLO.pack(wire.HELLO_TAG, wire.VERSION, 1, 77))
    assert end.greet()
    assert (end.program, end.native) == (77, True)


def test_an_unused_supervisor_is_there_until_it_speaks_or_ends(
    ends: tuple[SupervisorLink, socket.socket, socket.socket],
) -> None:
    end, supervisor, _ = ends
    assert end.waits()
    supervisor.close()
    assert not end.waits()
    end.send(b"nobody hears this")


def test_a_failed_step_is_named_and_a_wrong_index_is_not_believed(
    ends: tuple[SupervisorLink, socket.socket, socket.socket],
) -> None:
    end, _, program = ends
    end.plan = StartPlan(encoded=b"", steps=(Step(LaunchStage.EXEC, "execve", "/x"),))
    assert not end.read_failure()
    program.send(wire.FAILED.pack(5, 2))
    program.send(wire.FAILED.pack(-2, 2))
    assert not end.read_failure()
    assert end.failure is None
    program.send(wire.FAILED.pack(0, 2))
    program.close()
    assert end.read_failure()
    assert end.failure is not None
    assert end.failure.details == {"stage": "exec", "errno": 2, "call": "execve", "subject": "/x"}


def test_an_exit_is_read_from_its_packet() -> None:
    ended = exit_of(wire.DONE.pack(wire.DONE_TAG, 3 << 8, 8, 9))
    assert (ended.exit_code, ended.signal, ended.orphans_killed, ended.survivors) == (3, None, 8, 9)
    real_time_signal = exit_of(wire.DONE.pack(wire.DONE_TAG, 40, 0, 0))
    assert (real_time_signal.exit_code, real_time_signal.signal) == (None, 40)
    assert os.WTERMSIG(40) == 40
