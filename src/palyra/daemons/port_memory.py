"""Ports that were free once are tried first the next time: devices know them."""

import json
import socket
from collections.abc import Sequence
from typing import Final

from palyra.config.state_dir import StateDir
from palyra.errors import Unavailable

PORTS_FILE: Final = "nodes.ports.json"
BACKLOG: Final = 128


class ListenerPortTaken(Unavailable):
    code = "nodes.listener_port_taken"
    hint = "stop what listens there, or choose another nodes.pairing_port (0 takes any free one)"


class PortMemory:
    def __init__(self, state: StateDir) -> None:
        self._state = state

    def candidates(self, name: str, configured: int) -> tuple[int, ...]:
        """A configured port is the only one; otherwise the one of the last time, then any."""
        if configured:
            return (configured,)
        kept = self._read().get(name)
        return (kept, 0) if kept else (0,)

    def keep(self, name: str, port: int) -> None:
        known = self._read()
        if known.get(name) != port:
            self._state.write_atomic(PORTS_FILE, json.dumps({**known, name: port}).encode())

    def _read(self) -> dict[str, int]:
        """Whatever else is there is as good as nothing: the ports are a convenience."""
        try:
            kept = json.loads(self._state.path(PORTS_FILE).read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(kept, dict):
            return {}
        return {name: port for name, port in kept.items() if type(port) is int and 0 < port < 65_536}


def bind_first(host: str, ports: Sequence[int]) -> socket.socket:
    """A listener on the first of the ports that is free."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ListenerPortTaken(f"nodes.host {host!r} is no address of this machine: {error.strerror}") from error
    trouble = "no port was given"
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address[0], port))
            listener.listen(BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            trouble = error.strerror or str(error)
    raise ListenerPortTaken(f"cannot listen on {host} port {', '.join(map(str, ports))}: {trouble}")
