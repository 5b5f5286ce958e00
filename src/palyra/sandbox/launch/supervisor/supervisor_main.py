"""The zygote and its supervisors. Standard library only: starting it takes milliseconds, and forking it less.

The daemon starts the zygote once. The zygote holds nothing, and forks supervisors before they are needed. A supervisor
serves one program: it has started the process that will become it (``exec_child``), and watches it. It ends the
program's whole tree when the program exits, on an order, or when the daemon or the zygote ends. It sends ``done`` only
when no descendant is left. Both are child subreapers: the descendants of a killed supervisor fall to the zygote, which
ends them. Neither holds secrets, and no program of the same user can trace it or read it through /proc.
"""

import gc
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from palyra.sandbox.launch.supervisor import descendants, exec_child, native_code, wire
from palyra.sandbox.layers import linux_calls

_KILL_FILES = ((b"pids.max", b"0"), (b"cgroup.kill", b"1"))
_SIGNAL_INFO_BYTES = 128
_NO_CORE_BYTES = 1
_AFTER_YOU_SECONDS = 0.002
# How long the processes that a program left may take to end by themselves.
_REST_SECONDS = 0.003
# The daemon's next order tries again to make a supervisor that failed for want of processes or memory.
_FAILED_SUPERVISOR = 1


def _reset_signals() -> None:
    """Ignore and block no signal of the daemon or of Python in a program."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _leave_no_core() -> None:
    """Limit core files now: a waiting process may be under a filter that lets it not change this limit later."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    most = _NO_CORE_BYTES if hard == resource.RLIM_INFINITY else min(hard, _NO_CORE_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def _wake_on_child_exit() -> int:
    """Return a descriptor that becomes readable when a child dies."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    return linux_calls.signal_descriptor(signal.SIGCHLD)


def _drain(descriptor: int) -> None:
    try:
        os.read(descriptor, _SIGNAL_INFO_BYTES)
    except BlockingIOError:
        return


class Supervisor:
    """Watches one program, in its own process and its own session."""

    def __init__(
        self, daemon: socket.socket, orders: socket.socket, image: int | None, zygote_lives: int, child_died: int
    ) -> None:
        self._daemon = daemon
        self._orders = orders
        self._image = image
        self._program = 0
        self._child_died = child_died
        self._groups: list[bytes] = []
        self._status: int | None = None
        self._orphans = 0
        self._childless = False
        self._poll = select.poll()
        self._poll.register(daemon, select.POLLIN)
        self._poll.register(zygote_lives, select.POLLIN)
        self._poll.register(child_died, select.POLLIN)

    def rehearse(self) -> None:
        """Run once the code that runs when the program ends.

        A forked process shares its memory with its parent until it writes to it, and Python writes wherever it reads.
        This takes those page faults before a program waits for them.
        """
        os.kill(os.getpid(), signal.SIGCHLD)
        for _ in self._poll.poll(0):
            _drain(self._child_died)
            self._collect()
        self._wait_for_rest(0)
        # The program starts later.
        self._childless = False
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with here, there:
            here.send(self._done_message(0), socket.MSG_NOSIGNAL)

    def greet(self) -> bool:
        hello = wire.HELLO.pack(wire.HELLO_TAG, wire.VERSION, self._image is not None, self._program)
        self._daemon.send(hello, socket.MSG_NOSIGNAL)
        return True

    def start_waiting(self, group: bytes = b"") -> bool:
        """Start the process that becomes the program. Return False if it could not be created in its group."""
        try:
            self._program = exec_child.start_waiting(self._orders, self._image, group)
        except OSError as problem:
            if not group:
                raise
            self._orders.send(wire.FAILED.pack(wire.NOT_IN_GROUP, problem.errno or 0), socket.MSG_NOSIGNAL)
            return False
        finally:
            self._orders.close()
        return True

    def watch(self) -> None:
        """Wait until the program has ended or must end. Collect orphans that die meanwhile: they count as pids."""
        daemon = self._daemon.fileno()
        while self._status is None:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._child_died:
                    self._collect()
                    if self._status is None:
                        # No signal is lost: the next one makes the descriptor readable again.
                        _drain(descriptor)
                        self._collect()
                elif descriptor == daemon:
                    if not self._obey():
                        return
                else:  # the zygote has ended
                    return

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                return
            if pid == self._program:
                self._status = status

    def _obey(self) -> bool:
        """Handle one message of the daemon. Return False if it wants the end, or has ended."""
        try:
            message = self._daemon.recv(65536)
        except OSError:
            return False
        tag = message[:1]
        if tag == wire.GROUPS_TAG:
            self._groups = message[1:].split(b"\0")
            return True
        if tag == wire.START_TAG and not self._program:
            return self.start_waiting(message[1:]) and self.greet()
        return False

    def end_tree(self) -> int:
        """End everything. The control groups come first: they stop a tree that forks faster than it can be walked."""
        if self._status is not None and not self._childless:
            self._wait_for_rest(_REST_SECONDS)
        if self._childless:
            return 0
        for group in self._groups:
            for name, content in _KILL_FILES:
                _write_if_there(os.path.join(group, name), content)
        if self._status is None and self._program:
            self._kill_program()
        ended, survivors = descendants.end_all()
        self._orphans += ended
        return survivors

    def _wait_for_rest(self, seconds: float) -> None:
        """Wait for a sandbox's first process, which ends right after its last: that is cheaper than to end it."""
        until = time.monotonic() + seconds
        self._collect()
        while not self._childless and (left := until - time.monotonic()) > 0:
            signal.sigtimedwait({signal.SIGCHLD}, left)
            self._collect()

    def _kill_program(self) -> None:
        """Kill the program first and alone, so that its own status is collected."""
        try:
            os.kill(self._program, signal.SIGKILL)
        except PermissionError:
            return
        while self._status is None:
            _, self._status = os.waitpid(self._program, 0)

    def say_done(self, survivors: int) -> None:
        try:
            self._daemon.send(self._done_message(survivors), socket.MSG_NOSIGNAL)
        except OSError:
            return

    def _done_message(self, survivors: int) -> bytes:
        status = self._status if self._status is not None else int(signal.SIGKILL)
        return wire.DONE.pack(wire.DONE_TAG, status, self._orphans, survivors)


def _write_if_there(path: bytes, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(descriptor, content)
    except OSError:
        return
    finally:
        os.close(descriptor)


def _run_supervisor(
    daemon: socket.socket, orders: socket.socket, zygote_lives: int, image: int | None, *, late: bool
) -> None:
    os.setsid()
    linux_calls.prctl(linux_calls.PR_SET_CHILD_SUBREAPER, 1)
    linux_calls.name_this_process(b"palyra-superv")
    supervisor = Supervisor(daemon, orders, image, zygote_lives, _wake_on_child_exit())
    supervisor.rehearse()
    if not late:
        supervisor.start_waiting()
    try:
        supervisor.greet()
        supervisor.watch()
    finally:
        supervisor.say_done(supervisor.end_tree())
    # Giving back this process's memory takes longer than its work. The daemon that was just woken goes first.
    time.sleep(_AFTER_YOU_SECONDS)


class Zygote:
    """Forks supervisors on request, and ends the descendants of a killed one."""

    def __init__(self, control: socket.socket, *, late: bool) -> None:
        self._control = control
        # Whether a program must be created in its control group, which is known only when it starts.
        self._late = late
        self._supervisors: dict[int, float] = {}
        self._lost: set[int] = set()
        self._child_died = _wake_on_child_exit()
        self._image = native_code.open_image()
        # Supervisors hold the other end. It closes when this process ends, however it ends.
        self._lives_read, self._lives_write = os.pipe2(os.O_CLOEXEC)

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._child_died, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self._child_died:
                    _drain(descriptor)
                    self._collect()
                elif not self._obey():
                    self._outlive_supervisors()
                    return

    def _obey(self) -> bool:
        try:
            message = self._control.recv(64)
        except OSError:
            return False
        if not message:
            return False
        _, count = wire.WANT.unpack(message)
        for _ in range(count):
            try:
                self._make_supervisor()
            except OSError as problem:
                self._tell(wire.REFUSED.pack(wire.REFUSED_TAG, problem.errno or 0))
        return True

    def _make_supervisor(self) -> None:
        kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
        daemon, supervisor_end = socket.socketpair(socket.AF_UNIX, kind)
        orders, program_end = socket.socketpair(socket.AF_UNIX, kind)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_supervisor((daemon, orders), supervisor_end, program_end)
            self._supervisors[pid] = time.monotonic()
            self._tell(wire.MADE.pack(wire.MADE_TAG, pid), (daemon.fileno(), orders.fileno()))
        finally:
            for end in (daemon, supervisor_end, orders, program_end):
                end.close()

    def _become_supervisor(
        self, others: tuple[socket.socket, socket.socket], daemon: socket.socket, orders: socket.socket
    ) -> None:
        status = _FAILED_SUPERVISOR
        try:
            for end in others:
                end.close()
            self._control.close()
            os.close(self._lives_write)
            os.close(self._child_died)
            _run_supervisor(daemon, orders, self._lives_read, self._image, late=self._late)
            status = 0
        finally:
            os._exit(status)

    def _tell(self, message: bytes, descriptors: tuple[int, ...] = ()) -> None:
        try:
            if descriptors:
                socket.send_fds(self._control, [message], descriptors, socket.MSG_NOSIGNAL)
            else:
                self._control.send(message, socket.MSG_NOSIGNAL)
        except OSError:  # the daemon has ended: the next read of the control socket shows it
            return

    def _collect(self) -> None:
        """Reap. After a supervisor was killed, end every child that is not a supervisor: they were its."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if self._supervisors.pop(pid, None) is not None and status != 0:
                self._lost.add(pid)
        if self._lost:
            met, refused = descendants.kill_children(frozenset(self._supervisors))
            if met > refused:
                # Their deaths come back here as SIGCHLD. The next round ends the children that they leave.
                return
            for pid in self._lost:
                self._tell(wire.SWEPT.pack(wire.SWEPT_TAG, pid))
            self._lost.clear()

    def _outlive_supervisors(self) -> None:
        """End the rest: the daemon has ended, and each supervisor has seen that and ends its tree."""
        self._control.close()
        while self._supervisors:
            select.select([self._child_died], [], [], 1.0)
            _drain(self._child_died)
            self._collect()
        descendants.end_all()


def main(arguments: list[str], exit_process: Callable[[int], object] = os._exit) -> None:
    control = socket.socket(fileno=int(arguments[0]))
    _reset_signals()
    linux_calls.prctl(linux_calls.PR_SET_CHILD_SUBREAPER, 1)
    linux_calls.prctl(linux_calls.PR_SET_DUMPABLE, 0)
    linux_calls.name_this_process(b"palyra-zygote")
    _leave_no_core()
    os.chdir("/")
    # A collection would touch, and so copy, every page a fork shares.
    gc.disable()
    gc.freeze()
    Zygote(control, late=arguments[1] == "1").serve()
    exit_process(0)


if __name__ == "__main__":
    main(sys.argv[1:])
