"""Attempts to use more than was given, and to stay when the call is over. Each is bounded by itself too."""

import mmap
import os
import resource
import signal
import sys
import time
from collections.abc import Callable

from .calls import Blocked, Order

# What is left behind ends by itself after this long, should nothing end it before.
LINGER_SECONDS = 20
MAP_NORESERVE = 0x4000
CHUNK = 1 << 20


def forks(order: Order) -> str:
    """Start more children than allowed. They end when their parent does, and by themselves soon after."""
    most = order["most"]
    children: list[int] = []
    try:
        while len(children) < most:
            child = os.fork()
            if child == 0:
                _linger(5)
            children.append(child)
    except OSError as error:
        raise Blocked(f"{len(children)} children, then {error.strerror}") from None
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
    return f"{len(children)} children at once"


def memory(order: Order) -> str:
    """Touch pages one after the other, of memory that was reserved or of memory that was not."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (MAP_NORESERVE if order["reserve"] is False else 0)
    if order["reserve"] == "shared":
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
    most = order["most"]
    find_touch = 0
    kept = []
    while find_touch < most:
        try:
            area = mmap.mmap(-1, 16 * CHUNK, flags=flags)
        except (OSError, ValueError) as error:
            raise Blocked(f"{find_touch >> 20} MiB, then {error}") from None
        for page in range(0, len(area), mmap.PAGESIZE):
            area[page] = 1
        find_touch += len(area)
        kept.append(area)
    return f"{find_touch >> 20} MiB in one process"


def memory_in_sum(order: Order) -> str:
    """Use memory in several processes, each within the limit that binds a single one."""
    each, count = order["each"], order["count"]
    reading, writing = os.pipe()
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            area = mmap.mmap(-1, each)
            for page in range(0, each, mmap.PAGESIZE):
                area[page] = 1
            os.write(writing, b"x")
            _linger(5)
        children.append(child)
    os.close(writing)
    ready = 0
    deadline = time.monotonic() + 4
    os.set_blocking(reading, False)
    while ready < count and time.monotonic() < deadline:
        try:
            got = os.read(reading, count)
            if not got:
                break
            ready += len(got)
        except BlockingIOError:
            time.sleep(0.01)
            alive = sum(1 for child in children if _alive(child))
            if alive < count:
                break
    for child in children:
        _end(child)
    if ready == count:
        return f"{count} processes hold {ready * each >> 20} MiB together"
    raise Blocked(f"{ready} of {count} processes got their memory")


def _alive(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _end(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        return


def big_file(order: Order) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    path, most = order["path"], order["most"]
    with open(path, "wb", buffering=0) as file:
        written = 0
        while written < most:
            written += file.write(bytes(CHUNK))
    return f"wrote {written >> 20} MiB to {path}"


def sparse_file(order: Order) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("sparse", "wb") as file:
        if order["way"] == "fallocate":
            os.posix_fallocate(file.fileno(), order["most"], CHUNK)
        else:
            os.ftruncate(file.fileno(), order["most"])
    return f"a file of {os.stat('sparse').st_size >> 20} MiB"


def descriptors(order: Order) -> str:
    descriptor: list[int] = []
    while len(descriptor) < order["most"]:
        try:
            descriptor.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            raise Blocked(f"{len(descriptor)} descriptors, then {error.strerror}") from None
    return f"{len(descriptor)} descriptors"


def flood(order: Order) -> str:
    stream = sys.stderr.buffer if order["stream"] == "stderr" else sys.stdout.buffer
    for _ in range(order["most"] // CHUNK):
        stream.write(b"x" * CHUNK)
    stream.flush()
    return f"printed {order['most'] >> 20} MiB"


def sleeper(order: Order) -> str:
    """Stay past the deadline, deaf to every signal that can be ignored."""
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                continue
    time.sleep(order["seconds"])
    return f"slept for {order['seconds']} s"


def spinner(order: Order) -> str:
    """Use processor time, deaf to the warning."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while time.process_time() < order["seconds"]:
        pass
    return f"used {order['seconds']} s of processor time"


def linger(order: Order) -> str:
    """Leave a process behind. Whether it outlives the call is seen outside."""
    way = order["way"]
    if way == "zombie":
        for _ in range(5):
            if os.fork() == 0:
                os._exit(0)
        raise Blocked("left five children unreaped")
    child = os.fork()
    if child == 0:
        if way != "stopped":
            os.setsid()
        if way == "double" and os.fork() != 0:
            os._exit(0)
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if way == "silent":
            quiet = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(quiet, standard)
        if way == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        _linger(LINGER_SECONDS)
    if way == "double":
        os.waitpid(child, 0)
    elif way == "stopped":
        os.waitpid(child, os.WUNTRACED)
    raise Blocked("left a process behind")


def relay(order: Order) -> str:
    """Flee from being killed: each child makes the next and ends, a bounded number of times."""
    if os.fork() == 0:
        os.setsid()
        deadline = time.monotonic() + LINGER_SECONDS
        for _ in range(20_000):
            if os.fork() != 0:
                os._exit(0)
            if time.monotonic() > deadline:
                os._exit(0)
        os._exit(0)
    raise Blocked("left a process behind that is always a new one")


def _linger(seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    time.sleep(seconds)
    os._exit(0)


PROBES: dict[str, Callable[[Order], str]] = {
    each.__name__: each
    for each in (
        *(forks, memory, memory_in_sum, big_file, sparse_file, descriptors, flood, sleeper, spinner, linger, relay),
    )
}
