"""The zygote and its keepers. Standard library only, so that starting it takes milliseconds and forking it less.

The zygote is started once by the daemon, holds nothing, and forks keepers ahead of need. A keeper serves one program:
it has already forked the process that will become it (``exec_child``), and watches it. It ends the program's whole
tree when the program exits, when told to, or when the daemon or the zygote goes away, and says ``done`` only when no
descendant is left. Both are child subreapers: what escapes a keeper that was killed falls to the zygote, which ends
it. Neither holds secrets, and neither can be traced or read through /proc by a program of the same user.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

from palyra.sandbox import descendants, exec_child, launch_wire, linux_calls

_KILL_FILES = (("pids.max", b"0"), ("cgroup.kill", b"1"))
_GONE = select.POLLIN | select.POLLHUP | select.POLLERR
# A keeper that cannot be made for want of processes or memory is tried again by the daemon's next order.
_FAILED_KEEPER = 1


def _reset_signals() -> None:
    """Nothing the daemon ignored or blocked reaches a program. Python's own ignored signals go back to default too."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _wake_on_child_exit() -> int:
    """A descriptor that becomes readable when a child dies."""
    readable, writable = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return readable


def _drain(descriptor: int) -> None:
    try:
        while len(os.read(descriptor, 4096)) == 4096:
            continue
    except BlockingIOError:
        return


class Keeper:
    """One program's guardian, in its own process and its own session."""

    def __init__(self, daemon: socket.socket, zygote_lives: int, program: int, child_died: int) -> None:
        self._daemon = daemon
        self._program = program
        self._child_died = child_died
        self._groups: list[bytes] = []
        self._status: int | None = None
        self._usage: os.struct_rusage | None = None
        self._orphans = 0
        self._poll = select.poll()
        self._poll.register(daemon, select.POLLIN)
        self._poll.register(zygote_lives, select.POLLIN)
        self._poll.register(child_died, select.POLLIN)

    def watch(self) -> None:
        """Until the program has ended or must end. Orphans that die meanwhile are collected: they count as pids."""
        daemon = self._daemon.fileno()
        while self._status is None:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._child_died:
                    _drain(descriptor)
                    self._collect()
                elif descriptor == daemon:
                    if not self._obey():
                        return
                else:  # the zygote is gone
                    return

    def _collect(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._program:
                self._status, self._usage = status, usage

    def _obey(self) -> bool:
        """One message of the daemon. False when it wants the end, or is gone."""
        try:
            message = self._daemon.recv(65536)
        except OSError:
            return False
        tag = message[:1]
        if tag == launch_wire.SIGNAL_TAG:
            _, number = launch_wire.SIGNAL.unpack(message)
            try:
                os.kill(self._program, number)
            except OSError:
                return True
            return True
        if tag == launch_wire.GROUPS_TAG:
            self._groups = [os.path.dirname(path) for path in message[1:].split(b"\0")]
            return True
        return False

    def end_tree(self) -> int:
        """Ends everything. The control groups come first: they stop a tree that forks faster than it can be walked."""
        try:
            waiting = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return 0
        if waiting is None or self._groups:
            for group in self._groups:
                for name, content in _KILL_FILES:
                    _write_if_there(os.path.join(group, os.fsencode(name)), content)
        if self._status is None:
            self._kill_program()
        ended, survivors = descendants.end_all()
        self._orphans += ended
        return survivors

    def _kill_program(self) -> None:
        """The program first and by itself, so that its status and usage are kept apart from its descendants'."""
        try:
            os.kill(self._program, signal.SIGKILL)
        except PermissionError:
            return
        while self._status is None:
            _, self._status, self._usage = os.wait4(self._program, 0)

    def say_done(self, survivors: int) -> None:
        usage = self._usage
        counters = (
            (usage.ru_maxrss, usage.ru_minflt, usage.ru_majflt, usage.ru_inblock, usage.ru_oublock)
            + (usage.ru_nvcsw, usage.ru_nivcsw)
            if usage is not None
            else (0,) * len(launch_wire.RUSAGE_COUNTERS)
        )
        times = (usage.ru_utime, usage.ru_stime) if usage is not None else (0.0, 0.0)
        status = self._status if self._status is not None else int(signal.SIGKILL)
        message = launch_wire.DONE.pack(launch_wire.DONE_TAG, status, *times, *counters, self._orphans, survivors)
        try:
            self._daemon.send(message, socket.MSG_NOSIGNAL)
        except OSError:
            return


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


def _become_program_when_told(orders: socket.socket, keeper_pid: int) -> None:
    linux_calls.prctl(linux_calls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper_pid:
        os._exit(0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    exec_child.become(orders)


def _run_keeper(daemon: socket.socket, orders: socket.socket, zygote_lives: int) -> None:
    os.setsid()
    linux_calls.prctl(linux_calls.PR_SET_CHILD_SUBREAPER, 1)
    linux_calls.name_this_process(b"palyra-keeper")
    child_died = _wake_on_child_exit()
    keeper_pid = os.getpid()
    program = os.fork()
    if program == 0:
        _become_program_when_told(orders, keeper_pid)
    orders.close()
    daemon.send(launch_wire.HELLO.pack(launch_wire.HELLO_TAG, launch_wire.VERSION, program), socket.MSG_NOSIGNAL)
    keeper = Keeper(daemon, zygote_lives, program, child_died)
    try:
        keeper.watch()
    finally:
        keeper.say_done(keeper.end_tree())


class Zygote:
    """Forks keepers when asked, and ends what a killed keeper leaves behind."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._keepers: dict[int, float] = {}
        self._lost: set[int] = set()
        self._child_died = _wake_on_child_exit()
        # Keepers hold the other end: it closes when this process is gone, however it went.
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
                    self._outlive_keepers()
                    return

    def _obey(self) -> bool:
        try:
            message = self._control.recv(64)
        except OSError:
            return False
        if not message:
            return False
        _, count = launch_wire.WANT.unpack(message)
        for _ in range(count):
            try:
                self._make_keeper()
            except OSError as problem:
                self._tell(launch_wire.REFUSED.pack(launch_wire.REFUSED_TAG, problem.errno or 0))
        return True

    def _make_keeper(self) -> None:
        kind = socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC
        daemon, keeper_end = socket.socketpair(socket.AF_UNIX, kind)
        orders, program_end = socket.socketpair(socket.AF_UNIX, kind)
        try:
            pid = os.fork()
            if pid == 0:
                self._in_keeper((daemon, orders), keeper_end, program_end)
            self._keepers[pid] = time.monotonic()
            self._tell(launch_wire.MADE.pack(launch_wire.MADE_TAG, pid), (daemon.fileno(), orders.fileno()))
        finally:
            for end in (daemon, keeper_end, orders, program_end):
                end.close()

    def _in_keeper(
        self, others: tuple[socket.socket, socket.socket], daemon: socket.socket, orders: socket.socket
    ) -> None:
        status = _FAILED_KEEPER
        try:
            for end in others:
                end.close()
            self._control.close()
            signal.set_wakeup_fd(-1)
            os.close(self._lives_write)
            os.close(self._child_died)
            _run_keeper(daemon, orders, self._lives_read)
            status = 0
        finally:
            os._exit(status)

    def _tell(self, message: bytes, descriptors: tuple[int, ...] = ()) -> None:
        try:
            if descriptors:
                socket.send_fds(self._control, [message], descriptors, socket.MSG_NOSIGNAL)
            else:
                self._control.send(message, socket.MSG_NOSIGNAL)
        except OSError:  # the daemon is gone: the next read of the control socket says so
            return

    def _collect(self) -> None:
        """Reaps. After the violent death of a keeper, ends every child that is not a keeper: they were its."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if self._keepers.pop(pid, None) is not None and status != 0:
                self._lost.add(pid)
        if self._lost:
            met, refused = descendants.kill_children(frozenset(self._keepers))
            if met > refused:
                # Their deaths come back here as SIGCHLD; what they leave is then ours and is met in the next round.
                return
            for pid in self._lost:
                self._tell(launch_wire.SWEPT.pack(launch_wire.SWEPT_TAG, pid))
            self._lost.clear()

    def _outlive_keepers(self) -> None:
        """The daemon is gone. Each keeper has seen it too and ends its tree; whatever is left over is ended here."""
        self._control.close()
        while self._keepers:
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
    os.chdir("/")
    linux_calls.close_on_exec_from(0)
    # A collection would touch, and so copy, every page a fork shares.
    gc.disable()
    gc.freeze()
    Zygote(control).serve()
    exit_process(0)


if __name__ == "__main__":
    main(sys.argv[1:])
