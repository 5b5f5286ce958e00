import os

from palyra.egress.pipes import PipePool
from palyra.egress.proxy_limits import MAX_PIPES, MAX_SPARE_PIPES


def test_an_empty_pipe_is_lent_again() -> None:
    pool = PipePool()
    first = pool.borrow()
    assert first is not None
    pool.give_back(first)
    assert pool.borrow() is first
    pool.give_back(first)
    pool.close()


def test_a_pipe_with_bytes_in_it_never_reaches_another_tunnel() -> None:
    pool = PipePool()
    pipe = pool.borrow()
    assert pipe is not None
    os.write(pipe.write_fd, b"somebody's")
    pipe.held = 10
    pool.give_back(pipe)
    other = pool.borrow()
    assert other is not None and other is not pipe
    pool.give_back(other)
    pool.close()


def test_pipes_are_bounded_and_so_are_the_spare_ones() -> None:
    pool = PipePool()
    lent = [pool.borrow() for _ in range(MAX_PIPES)]
    assert all(pipe is not None for pipe in lent)
    assert pool.borrow() is None
    before = len(os.listdir("/proc/self/fd"))
    for pipe in lent:
        assert pipe is not None
        pool.give_back(pipe)
    assert len(os.listdir("/proc/self/fd")) == before - 2 * (MAX_PIPES - MAX_SPARE_PIPES)
    pool.close()
