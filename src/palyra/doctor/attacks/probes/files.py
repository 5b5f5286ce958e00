"""Attempts on files: out of the workspace, and against the protected names in it."""

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Callable

from .calls import Blocked, NotApplicable, Order, call, fail, libc, number_of

SIGNATURE = b"escaped\n"
RENAME_EXCHANGE = 2
AT_FDCWD = -100


def read(order: Order) -> str:
    return first_of(order["paths"], lambda path: open(path, "rb").read(200).decode("utf-8", "replace"))


def first_of(paths: list[str], action: Callable[[str], str]) -> str:
    """Try each path and return the first success, or raise the first refusal other than that the path is missing."""
    refusal = OSError(errno.ENOENT, "there was no such path")
    for path in paths:
        try:
            return f"{path}: {action(path)}"
        except OSError as error:
            if refusal.errno == errno.ENOENT:
                refusal = error
    raise refusal


def open_for_writing(order: Order) -> str:
    """Open and write nothing: no file of the system is ever changed."""

    def opened(path: str) -> str:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return "opened for writing"

    return first_of(order["paths"], opened)


def open_for_reading(order: Order) -> str:
    def opened(path: str) -> str:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return "opened for reading"

    return first_of(order["paths"], opened)


def write(order: Order) -> str:
    with open(order["path"], "r+b") as file:
        file.write(SIGNATURE)
    return f"wrote to {order['path']}"


def create(order: Order) -> str:
    os.makedirs(os.path.dirname(order["path"]), exist_ok=True)
    with open(order["path"], "xb") as file:
        file.write(SIGNATURE)
    return f"made {order['path']}"


def truncate(order: Order) -> str:
    os.truncate(order["path"], 0)
    return f"emptied {order['path']}"


def chmod(order: Order) -> str:
    os.chmod(order["path"], 0o777)  # noqa: S103  bait
    return f"changed the mode of {order['path']}"


def utime(order: Order) -> str:
    os.utime(order["path"], (0, 0))
    return f"changed the times of {order['path']}"


def rename(order: Order) -> str:
    os.rename(order["path"], order["to"])
    return f"renamed {order['path']} to {order['to']}"


def exchange(order: Order) -> str:
    os.mkdir("other")
    old, new = (ctypes.c_char_p(name.encode()) for name in (order["path"], "other"))
    if libc.renameat2(AT_FDCWD, old, AT_FDCWD, new, RENAME_EXCHANGE) != 0:
        raise fail("renameat2")
    return f"{order['path']} and another directory changed places"


def replace_parent(order: Order) -> str:
    """Make a directory with a config of its own and move it over the real one."""
    os.makedirs("fresh/hooks")
    with open("fresh/config", "wb") as file:
        file.write(SIGNATURE)
    try:
        os.rename(order["path"], order["path"] + ".old")
    except OSError:
        shutil.rmtree(order["path"])
    os.rename("fresh", order["path"])
    return f"{order['path']} was replaced"


def unlink(order: Order) -> str:
    os.unlink(order["path"])
    return f"removed {order['path']}"


def hard_link(order: Order) -> str:
    """Make a second name in the workspace for a file that may not be read, or not be written."""
    os.link(order["path"], "alias")
    with open("alias", "r+b") as file:
        content = file.read(200)
        file.write(SIGNATURE)
    return f"linked and opened: {content.decode('utf-8', 'replace')}"


def new_symlink(order: Order) -> str:
    os.symlink(order["path"], "fresh-link")
    with open("fresh-link", "r+b") as file:
        content = file.read(200)
        file.write(SIGNATURE)
    return f"through a new link: {content.decode('utf-8', 'replace')}"


def reopen(order: Order) -> str:
    """Hold the file without the right to write and request that right through /proc."""
    descriptor = os.open(order["path"], os.O_PATH)
    writing = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY)
    os.write(writing, SIGNATURE)
    return f"reopened {order['path']} for writing"


def inherited(order: Order) -> str:
    """Read every descriptor that came with the process beside the three standard ones."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number <= 2:
            continue
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            content = os.pread(number, 200, 0) if stat.S_ISREG(os.fstat(number).st_mode) else b""
        except OSError:
            continue
        if "/proc/" not in target:
            found.append(f"{number} -> {target} {content.decode('utf-8', 'replace')}")
    if found:
        return "; ".join(found)
    raise Blocked("no descriptor beside the three standard ones")


def init_descriptors(order: Order) -> str:
    """Read through the descriptors of the process that supervises this one, which may lead to the old root."""
    watcher = 1 if os.getppid() == 0 else os.getppid()
    seen = os.listdir(f"/proc/{watcher}/fd")
    paths = [f"/proc/{watcher}/fd/{name}" for name in seen]
    own = [os.fstat(number) for number in (0, 1, 2)]
    tails = ["", order["secret"], "/.." * 8 + order["secret"], "/oldroot" + order["secret"]]

    def content(path: str) -> str:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode) or any(os.path.samestat(opened, each) for each in own):
            raise OSError(errno.ENOENT, "no file but this program's own")
        return os.read(descriptor, 200).decode("utf-8", "replace")

    found = [path + tail for path in paths for tail in tails]
    try:
        return first_of(found, content)
    except OSError as error:
        raise Blocked(f"{len(seen)} descriptors of process {watcher}, none leads outside: {error.strerror}") from None


def parents(order: Order) -> str:
    """Climb from a directory that was moved while it was the working directory."""
    os.makedirs("climb/er", exist_ok=True)
    os.chdir("climb/er")
    os.rename("../../climb", "../../fallen")
    return first_of(["../" * depth + order["path"] for depth in range(1, 12)], lambda path: open(path).read(200))


def device(order: Order) -> str:
    os.mknod("device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return "made a device"


def setuid(order: Order) -> str:
    """Make a file that runs as its owner for any user who starts it outside."""
    way = order["way"]
    shutil.copyfile("/usr/bin/id" if os.path.exists("/usr/bin/id") else "/bin/ls", "plant")
    if way == "chmod":
        os.chmod("plant", 0o4755)  # noqa: S103  that is the attack
    elif way == "fchmod":
        descriptor = os.open("plant", os.O_RDWR)
        os.fchmod(descriptor, 0o4755)
    elif way == "setgid":
        os.chmod("plant", 0o2755)  # noqa: S103  that is the attack
    elif way == "fchmodat2":
        call(number_of(order, "fchmodat2"), AT_FDCWD, ctypes.c_char_p(b"plant"), 0o4755, 0)
    elif way == "open":
        os.umask(0)
        os.close(os.open("plant-open", os.O_CREAT | os.O_WRONLY, 0o4755))
    elif way == "openat2":
        os.umask(0)
        how = ctypes.create_string_buffer(
            (os.O_CREAT | os.O_WRONLY).to_bytes(8, "little") + (0o4755).to_bytes(8, "little") + bytes(8), 24
        )
        call(number_of(order, "openat2"), AT_FDCWD, ctypes.c_char_p(b"plant-openat2"), how, 24)
    elif way == "mknod":
        os.umask(0)
        os.mknod("plant-mknod", stat.S_IFREG | 0o4755)
    elif way == "memfd":
        descriptor = os.memfd_create("plant")
        os.fchmod(descriptor, 0o4755)
        return "a program in memory has the bit"
    for name in os.listdir("."):
        if name.startswith("plant") and os.lstat(name).st_mode & (stat.S_ISUID | stat.S_ISGID):
            return f"{name} has mode {os.lstat(name).st_mode & 0o7777:04o}"
    raise Blocked("the bit was not set")


def capability(order: Order) -> str:
    """Make a file whose capabilities make any user who starts it outside as strong as root: here, to bind low ports."""
    shutil.copyfile("/usr/bin/id" if os.path.exists("/usr/bin/id") else "/bin/ls", "plant")
    value = (0x02000001).to_bytes(4, "little") + (1 << 10).to_bytes(4, "little") + bytes(12)
    os.setxattr("plant", "security.capability", value)
    return "a file got a capability"


def give_away(order: Order) -> str:
    os.chown("ordinary", 12345, 12345)
    return "gave a file to another user"


def plant(order: Order) -> str:
    """Write what a person's own programs would run, as far as it can be written."""
    written = []
    refusal: OSError | None = None
    for path, text in order["files"].items():
        try:
            if os.path.dirname(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
            os.chmod(path, 0o700)
            written.append(path)
        except OSError as error:
            refusal = error
    if refusal is not None:
        raise refusal
    return f"wrote {', '.join(written)}"


def plant_by_rename(order: Order) -> str:
    """Make the hook under a harmless name and move its directory into place."""
    os.makedirs("vendor/harmless/hooks")
    with open("vendor/harmless/hooks/post-checkout", "wb") as file:
        file.write(SIGNATURE)
    os.rename("vendor/harmless", "vendor/.git")
    return "moved a repository with a hook into place"


def mount_over(order: Order) -> str:
    target = ctypes.c_char_p(order["path"].encode())
    if libc.mount(b"none", target, b"tmpfs", 0, None) != 0:
        raise fail("mount")
    libc.umount2(target, 2)
    return f"mounted over {order['path']}"


def remount_writable(order: Order) -> str:
    ms_remount, ms_bind = 32, 4096
    if libc.mount(None, ctypes.c_char_p(order["path"].encode()), None, ms_remount | ms_bind, None) != 0:
        raise fail("mount")
    return write(order)


def unmount(order: Order) -> str:
    if libc.umount2(ctypes.c_char_p(order["path"].encode()), 2) != 0:
        raise fail("umount2")
    return write(order)


def file_handle(order: Order) -> str:
    """Open a file by the kernel's own number for it, from any descriptor on the same file system."""
    handle = bytes.fromhex(order["handle"])
    if not handle:
        raise NotApplicable("this file system has no handles")
    here = os.open(".", os.O_RDONLY)
    opened = call(
        number_of(order, "open_by_handle_at"), here, ctypes.create_string_buffer(handle, len(handle)), os.O_RDONLY
    )
    return f"opened by handle: {os.read(opened, 200).decode('utf-8', 'replace')}"


def nothing(order: Order) -> str:
    """Do nothing: the attack is in the workspace itself, and the program only has to be started."""
    raise Blocked("the program ran in the prepared workspace")


PROBES: dict[str, Callable[[Order], str]] = {
    each.__name__: each
    for each in (
        *(read, open_for_writing, open_for_reading, write, create, truncate, chmod, utime, rename, exchange),
        *(replace_parent, unlink, hard_link, new_symlink, reopen, inherited, parents, device, setuid, mount_over),
        *(
            remount_writable,
            unmount,
            file_handle,
            nothing,
            init_descriptors,
            capability,
            give_away,
            plant,
            plant_by_rename,
        ),
    )
}
