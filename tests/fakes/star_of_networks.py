"""A network for a daemon and one for each of its workers, joined by wires that a test can cut one by one."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from fakes.two_networks import NEAR_ADDRESS, Network

_CLONE_NEWNET = 0x40000000


class StarOfNetworks:
    """``far`` have wires to ``near`` and none to each other."""

    def __init__(self, count: int) -> None:
        self.near = Network()
        self.far: list[Network] = []
        try:
            self.near.run("ip", "link", "set", "lo", "up")
            self.near.run("ip", "address", "add", f"{NEAR_ADDRESS}/32", "dev", "lo")
            for number in range(count):
                self._add(number)
        except BaseException:
            self.close()
            raise

    def _add(self, number: int) -> None:
        far, wire = Network(), f"wire{number}"
        self.far.append(far)
        far.run("ip", "link", "set", "lo", "up")
        there = str(far.process.pid)
        self.near.run("ip", "link", "add", wire, "type", "veth", "peer", "name", "wire", "netns", there)
        far.run("ip", "address", "add", f"{self.address(number)}/32", "dev", "wire")
        far.run("ip", "link", "set", "wire", "up")
        self.mend(number)
        far.run("ip", "route", "add", NEAR_ADDRESS, "dev", "wire")

    def address(self, number: int) -> str:
        return f"192.0.2.{10 + number}"

    def mend(self, number: int) -> None:
        self.near.run("ip", "link", "set", f"wire{number}", "up")
        # A route goes with its link.
        self.near.run("ip", "route", "replace", self.address(number), "dev", f"wire{number}")

    def cut(self, number: int) -> None:
        self.near.run("ip", "link", "set", f"wire{number}", "down")

    def close(self) -> None:
        for network in (self.near, *self.far):
            network.close()


def enter(network: Network) -> None:
    """The thread that calls this is in the network from now on, and no other thread is."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{network.process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)


@contextmanager
def star_of_networks(count: int) -> Iterator[StarOfNetworks]:
    networks = StarOfNetworks(count)
    try:
        yield networks
    finally:
        networks.close()
