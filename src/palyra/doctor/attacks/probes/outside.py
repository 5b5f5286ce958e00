"""Attempts on other processes and on the network. Nothing is sent to any address outside loopback."""

import ctypes
import errno
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable

from .calls import Blocked, NotApplicable, Order, call, fail, libc, number_of

MSG_FASTOPEN = 0x20000000
IPPROTO_MPTCP = 262
# Addresses for documentation: connecting a datagram socket to them sends nothing, it only looks for a route.
NOWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
CONNECT_SECONDS = 2.0
LINGER_SECONDS = 20


def signal_victim(order: Order) -> str:
    os.kill(order["victim"], signal.SIGTERM if order["deadly"] else 0)
    return f"signalled process {order['victim']}"


def pidfd_victim(order: Order) -> str:
    descriptor = os.pidfd_open(order["victim"])
    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    return f"signalled process {order['victim']} by descriptor"


def trace_victim(order: Order) -> str:
    call(number_of(order, "ptrace"), 0x4206, order["victim"], 0, 0)
    return f"attached to process {order['victim']}"


def victim_memory(order: Order) -> str:
    size = order["victim_size"]
    buffer = ctypes.create_string_buffer(size)
    local = struct.pack("QQ", ctypes.addressof(buffer), size)
    remote = struct.pack("QQ", order["victim_address"], size)
    here, there = ctypes.create_string_buffer(local, 16), ctypes.create_string_buffer(remote, 16)
    call(number_of(order, "process_vm_readv"), order["victim"], here, 1, there, 1, 0)
    return f"read the memory of process {order['victim']}: {buffer.raw.decode('utf-8', 'replace')}"


def victim_memory_file(order: Order) -> str:
    with open(f"/proc/{order['victim']}/mem", "rb", buffering=0) as memory:
        memory.seek(order["victim_address"])
        return f"read: {memory.read(order['victim_size']).decode('utf-8', 'replace')}"


def victim_descriptor(order: Order) -> str:
    descriptor = os.pidfd_open(order["victim"])
    stolen = call(number_of(order, "pidfd_getfd"), descriptor, order["victim_descriptor"], 0)
    return f"took a descriptor: {os.pread(stolen, 200, 0).decode('utf-8', 'replace')}"


def victim_limits(order: Order) -> str:
    resource.prlimit(order["victim"], resource.RLIMIT_NOFILE, (64, 64))
    return f"changed the limits of process {order['victim']}"


def see_processes(order: Order) -> str:
    """Look for the victim among the processes, by its secret name."""
    seen = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/comm") as file:
                seen += 1
                if file.read().strip() == order["victim_comm"]:
                    return f"process {name} of the host is visible"
        except OSError:
            continue
    raise Blocked(f"{seen} processes are visible, the host's are not among them")


def end_supervisor(order: Order) -> str:
    """Kill the supervisor, so that no process is left to end this one. What is left behind is seen outside."""
    parent = os.getppid()
    if parent <= 1 or parent == order["runner"]:
        raise Blocked("the process that started this is out of sight")
    if os.fork() == 0:
        os.setsid()
        time.sleep(LINGER_SECONDS)
        os._exit(0)
    os.kill(parent, signal.SIGKILL)
    time.sleep(0.5)
    return f"ended process {parent}, the supervisor of this one"


def change_user(order: Order) -> str:
    """Leave a process of another user behind, which this one's may not end. It is seen outside."""
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(12345, 12345, 12345)
        except OSError as error:
            os._exit(min(error.errno or 0, 250))
        os.setsid()
        time.sleep(LINGER_SECONDS)
        os._exit(0)
    time.sleep(0.1)
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
        raise OSError(os.WEXITSTATUS(status), os.strerror(os.WEXITSTATUS(status)))
    return "became another user"


def shared_memory(order: Order) -> str:
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(order["shm"], None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        raise fail("shmat")
    return f"attached shared memory: {ctypes.string_at(address, 64).decode('utf-8', 'replace')}"


def _short_path(path: str) -> str:
    """Name the same socket by a descriptor of its folder: a socket's own path may have no more than 107 bytes."""
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    return f"/proc/self/fd/{folder}/{os.path.basename(path)}"


def connect_unix(order: Order) -> str:
    name = ("\0" + order["name"]) if order["abstract"] else _short_path(order["name"])
    kind = socket.SOCK_DGRAM if order.get("datagram") else socket.SOCK_STREAM
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.settimeout(CONNECT_SECONDS)
        client.connect(name)
        client.send(order["token"].encode())
    return "connected to a unix socket of the host"


def connect_tcp(order: Order) -> str:
    """Connect to one listener of the host, by an ordinary connection or by one that Landlock overlooks."""
    way = order["way"]
    family = socket.AF_INET6 if way == "ipv6" else socket.AF_INET
    host = "::1" if way == "ipv6" else "127.0.0.1"
    if not order["port"]:
        raise NotApplicable(f"the host has no {host}")
    protocol = IPPROTO_MPTCP if way == "mptcp" else 0
    with socket.socket(family, socket.SOCK_STREAM, protocol) as client:
        client.settimeout(CONNECT_SECONDS)
        if way.startswith("fastopen"):
            client.setblocking(True)
            where = (host, order["port"])
            if way == "fastopen":
                client.sendto(order["token"].encode(), MSG_FASTOPEN, where)
            else:
                client.sendmsg([order["token"].encode()], [], MSG_FASTOPEN, where)
        else:
            client.connect((host, order["port"]))
            client.sendall(order["token"].encode())
        client.getpeername()
    return f"connected to the host's {host}"


def send_udp(order: Order) -> str:
    """Send a datagram. Its arrival is seen outside: sending into one's own empty network succeeds too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(order["token"].encode(), ("127.0.0.1", order["port"]))
    raise Blocked("a datagram was sent; nobody of the host received it")


def listen_tcp(order: Order) -> str:
    """Listen on loopback. A connection from the host is seen outside."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", order["free_port"]))
        server.listen(1)
        server.settimeout(CONNECT_SECONDS)
        os.write(1, b'{"ready": true}\n')
        try:
            server.accept()
        except TimeoutError:
            raise Blocked("listening, but nobody of the host can connect") from None
    return "the host connected to a listener inside"


def routes(order: Order) -> str:
    for family, address in NOWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as client:
                client.connect((address, 9))
                return f"there is a route to {address} from {client.getsockname()[0]}"
        except OSError as error:
            last = error
    raise last


def interfaces(order: Order) -> str:
    found = []
    with open("/proc/self/net/dev") as file:
        for line in file:
            name, colon, _ = line.partition(":")
            if colon and name.strip() != "lo":
                found.append(name.strip())
    if found:
        return "interfaces beside lo: " + ", ".join(found)
    raise Blocked("no interface but lo")


def resolver(order: Order) -> str:
    """Look for a route to any name server that is configured here. No packet is sent."""
    servers = []
    with open("/etc/resolv.conf") as file:
        for line in file:
            words = line.split()
            if len(words) >= 2 and words[0] == "nameserver":
                servers.append(words[1].partition("%")[0])
    for server in servers:
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        if server.startswith("127.") or server == "::1":
            continue
        with socket.socket(family, socket.SOCK_DGRAM) as client:
            try:
                client.connect((server, 53))
            except OSError as error:
                if error.errno in (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue
                raise
            return f"there is a route to the name server {server}"
    raise Blocked(f"no way to a name server ({', '.join(servers) or 'none configured'})")


def environment(order: Order) -> str:
    """Look for the launcher's variable in any environment that can be read here."""
    for path in ("/proc/self/environ", "/proc/1/environ", f"/proc/{os.getppid()}/environ"):
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            continue
        if order["token"].encode() in content:
            return f"{path} holds {order['token']}"
    raise Blocked(f"{len(os.environ)} variables, none of the launcher's")


def raise_limits(order: Order) -> str:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except ValueError as error:
        raise Blocked(str(error)) from None
    return f"raised its own limit of open files above {hard}"


def priority(order: Order) -> str:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, before - 5)
    return "raised its own priority"


def immortality(order: Order) -> str:
    with open("/proc/self/oom_score_adj", "r+") as file:
        before = int(file.read())
        file.seek(0)
        file.write(str(max(before - 100, -1000)))
    return "made itself less likely to be killed when memory is short"


PROBES: dict[str, Callable[[Order], str]] = {
    each.__name__: each
    for each in (
        *(signal_victim, pidfd_victim, trace_victim, victim_memory, victim_memory_file, victim_descriptor),
        *(victim_limits, see_processes, shared_memory, connect_unix, connect_tcp, send_udp, listen_tcp, routes),
        *(end_supervisor, change_user, interfaces, resolver, environment, raise_limits, priority, immortality),
    )
}
