"""The sandbox's only DNS server: questions for allowed names get their synthetic addresses, all others nothing.

No question ever leaves this machine, so names cannot carry data out.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from palyra.egress.machine_limits import MAX_DNS_QUERY_BYTES
from palyra.egress.proxy_limits import DATAGRAMS_PER_TURN
from palyra.egress.synthetic_dns import DnsAnswer, DnsStream, frame
from palyra.egress.tunnel import Tunnel

# A question in, the answer out; refused names are told to the door on the way.
Answer = Callable[[bytes], DnsAnswer]


class UdpDnsDoor:
    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, answer: Answer) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = loop
        self._answer = answer
        loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        for _ in range(DATAGRAMS_PER_TURN):
            try:
                question, sender = self._sock.recvfrom(MAX_DNS_QUERY_BYTES + 1)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                # An earlier answer met a closed port; the next question is not to blame.
                continue
            reply = self._answer(question).reply
            if reply:
                with suppress(OSError):
                    self._sock.sendto(reply, sender)

    def close(self) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()


async def serve_dns_tcp(tunnel: Tunnel, answer: Answer) -> None:
    """Questions one after the other until the client ends; each has its time."""
    stream = DnsStream()
    while data := await tunnel.client.read():
        for question in stream.receive(data):
            await tunnel.client.write(frame(answer(question).reply))
            tunnel.expect_handshake()
