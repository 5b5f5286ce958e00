import asyncio
import gc
import socket
import weakref

from palyra.egress.proxy.socket_stream import ENDED, READABLE, WRITABLE, Readiness, readiness_of


async def test_what_is_ready_already_is_told_and_then_only_what_is_new() -> None:
    readiness = readiness_of(asyncio.get_running_loop())
    one, other = socket.socketpair()
    seen: list[int] = []
    other.sendall(b"early")
    readiness.watch(one.fileno(), seen.append, writing=False)
    await asyncio.sleep(0.01)
    assert len(seen) == 1 and seen[0] & READABLE and not seen[0] & ENDED
    other.sendall(b"more")
    await asyncio.sleep(0.01)
    assert len(seen) == 2
    readiness.watch(one.fileno(), seen.append, writing=True)
    await asyncio.sleep(0.01)
    assert seen[-1] & WRITABLE
    other.close()
    await asyncio.sleep(0.01)
    assert seen[-1] & ENDED
    readiness.forget(one.fileno())
    one.close()


async def test_a_forgotten_socket_is_never_told_of() -> None:
    readiness = readiness_of(asyncio.get_running_loop())
    one, other = socket.socketpair()
    seen: list[int] = []
    readiness.watch(one.fileno(), seen.append, writing=False)
    readiness.forget(one.fileno())
    other.sendall(b"unseen")
    await asyncio.sleep(0.01)
    assert seen == []
    # The next socket that gets its number is heard.
    one.close()
    again, far = socket.socketpair()
    readiness.watch(again.fileno(), seen.append, writing=False)
    far.sendall(b"seen")
    await asyncio.sleep(0.01)
    assert len(seen) == 1
    readiness.forget(again.fileno())
    for sock in (other, again, far):
        sock.close()


async def test_one_for_each_loop() -> None:
    loop = asyncio.get_running_loop()
    assert readiness_of(loop) is readiness_of(loop)


def test_it_goes_with_its_loop() -> None:
    loop = asyncio.new_event_loop()
    alive = weakref.ref(readiness_of(loop))
    assert isinstance(alive(), Readiness)
    loop.close()
    del loop
    gc.collect()
    assert alive() is None
