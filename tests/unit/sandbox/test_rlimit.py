import os
import resource
import threading

import pytest

from fakes.launching import python, run
from palyra.sandbox.domain.launch_spec import BadLaunch, RLimit, build_tier_b_rlimits
from palyra.sandbox.launch.launcher import Launcher, count_tasks, number_limits

LIMITS = build_tier_b_rlimits(
    cpu_seconds=3, memory_bytes=512 << 20, pids=10, open_files=40, file_bytes=1 << 20, tasks_of_user=5000
)


async def test_the_program_has_the_limits_and_they_bite() -> None:
    script = """
import resource, signal
for name in ('CPU', 'AS', 'NPROC', 'NOFILE', 'FSIZE', 'CORE'):
    print(name, *resource.getrlimit(getattr(resource, 'RLIMIT_' + name)))
try:
    bytearray(600 << 20); print('ALLOCATED')
except MemoryError:
    print('no memory')
try:
    files = [open('/dev/null') for _ in range(60)]; print('OPENED')
except OSError as error:
    print('no descriptor', error.errno)
"""
    async with Launcher() as launcher:
        _, output = await run(launcher, python(script, rlimits=LIMITS))
        ended, _ = await run(launcher, python("while True: pass", rlimits=(RLimit(name="CPU", soft=1, hard=1),)))
    lines = output.splitlines()
    assert lines[:6] == [
        "CPU 3 5",
        f"AS {512 << 20} {512 << 20}",
        "NPROC 5010 5010",
        "NOFILE 40 40",
        f"FSIZE {1 << 20} {1 << 20}",
        "CORE 1 1",
    ]
    assert lines[6:] == ["no memory", "no descriptor 24"]
    assert ended.signal in (9, 24)


def test_memory_is_left_out_where_a_control_group_limits_it() -> None:
    made = build_tier_b_rlimits(cpu_seconds=3, memory_bytes=None, pids=1, open_files=40, file_bytes=1, tasks_of_user=0)
    assert "AS" not in {limit.name for limit in made}


def test_limits_never_exceed_what_this_process_may_have() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    number, got_soft, got_hard = number_limits((RLimit(name="NOFILE", soft=10**9, hard=10**9),))[0]
    _, ceiling = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert number == resource.RLIMIT_NOFILE
    assert got_soft == got_hard == (10**9 if ceiling == resource.RLIM_INFINITY else min(ceiling, 10**9))
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_CORE)


@pytest.mark.parametrize("limit", [RLimit(name="SPEED", soft=1, hard=1), RLimit(name="CPU", soft=2, hard=1)])
def test_nonsense_is_refused(limit: RLimit) -> None:
    with pytest.raises(BadLaunch):
        number_limits((limit,))


def test_threads_count_as_tasks() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(40)]
    before = count_tasks(os.getuid())
    for thread in threads:
        thread.start()
    after = count_tasks(os.getuid())
    stop.set()
    for thread in threads:
        thread.join()
    assert after - before > 20
