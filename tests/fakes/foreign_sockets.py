"""Sockets of this process in networks of sandboxes."""

import contextlib
import fcntl
import os


def foreign_sockets() -> list[int]:
    """Descriptors of this process that are sockets in another network: each keeps that network alive."""
    own = os.stat("/proc/self/ns/net").st_ino
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            network = fcntl.ioctl(int(name), 0x894C)
            if os.fstat(network).st_ino != own:
                found.append(int(name))
            os.close(network)
    return found
