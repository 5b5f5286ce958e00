import struct

import pytest

from fakes.start_plan import ORDERS, decoded, plan, text_at
from palyra.sandbox.domain.launch_spec import (
    BadLaunch,
    CgroupEntry,
    LandlockRules,
    LaunchSpec,
    LaunchStage,
    ReadOnlyHost,
    RLimit,
)
from palyra.sandbox.launch.start_plan import (
    PRESENT,
    plan_announcement,
    plan_from_memory_file,
    plan_hiding,
)


def test_a_process_in_a_sandbox_says_that_it_is_there_and_waits() -> None:
    order = plan_announcement("x86_64", orders=60, message=0x600080, closed=(61,))
    (close, closed, _), (write, written, _), (receive, received, control) = decoded(order)
    assert (close, write, receive) == ("close", "write", "recvmsg")
    assert closed[0] == 61 and written[0] == received[0] == 60 and received[1] == 0x600080
    assert order[written[1] :][: written[2]] == PRESENT and control == 1 << 63


def test_one_that_waits_for_long_is_hidden_first() -> None:
    (hide, (option, value, *_), _), (receive, received, control) = decoded(
        plan_hiding("x86_64", orders=60, message=0x6000C0)
    )
    assert (hide, option, value, receive) == ("prctl", 4, 0, "recvmsg")
    assert received[1] == 0x6000C0 and control == 1 << 63


def test_a_group_of_version_1_is_entered_by_the_one_thread_and_one_of_version_2_not_at_all() -> None:
    entry = CgroupEntry(v1=("/cg/pids/1", "/cg/memory/1"), v2="/cg/unified/1")
    made = plan(LaunchSpec(argv=(b"/bin/true",), cgroup=entry))
    assert [step.subject for step in made.steps if step.call == "openat"] == ["/cg/pids/1/tasks", "/cg/memory/1/tasks"]


def test_the_plan_of_the_plainest_program() -> None:
    made = plan(LaunchSpec(argv=(b"/bin/echo", b"hi"), env=((b"A", b"b"),)))
    records = decoded(made.encoded)
    assert [name for name, *_ in records] == [
        "fcntl",
        "dup3",
        "dup3",
        "dup3",
        "setsid",
        "rt_sigaction",
        "rt_sigaction",
        "umask",
        "chdir",
        "prctl",
        "execve",
    ]
    assert [arguments[:2] for name, arguments, _ in records if name == "dup3"] == [[3, 0], [4, 1], [5, 2]]
    program, argv, env = records[-1][1][:3]
    assert text_at(made.encoded, program) == b"/bin/echo"
    first, second, end = struct.unpack_from("<3Q", made.encoded, argv)
    assert (text_at(made.encoded, first), text_at(made.encoded, second), end) == (b"/bin/echo", b"hi", 0)
    (only, end) = struct.unpack_from("<2Q", made.encoded, env)
    assert (text_at(made.encoded, only), end) == (b"A=b", 0)
    assert [step.call for step in made.steps] == [name for name, *_ in records]
    # Nothing may fail and be passed over.
    assert all(control == 0 for *_, control in records)


def test_the_filter_is_last_and_privileges_go_before_rules_are_set() -> None:
    spec = LaunchSpec(
        argv=(b"/bin/true",),
        rlimits=(RLimit(name="CPU", soft=1, hard=2),),
        landlock=LandlockRules(read=("/usr",), write=("/tmp",)),
        seccomp=bytes(16),
        drop_capabilities=True,
        cgroup=CgroupEntry(v1=("/cg",)),
        read_only_host=ReadOnlyHost(workspace=b"/w"),
    )
    made = plan(spec, rlimits=((0, 1, 2),))
    stages = [step.stage for step in made.steps]
    assert list(dict.fromkeys(stages)) == [stage for stage in LaunchStage if stage is not LaunchStage.RECEIVE]
    assert made.steps[-2].stage is LaunchStage.SECCOMP


def test_placing_descriptors_never_overwrites_one_that_is_still_needed() -> None:
    """Carried out on a table of numbers, the plan puts each where it belongs and leaves the two free ones free."""
    spec = LaunchSpec(argv=(b"/bin/true",), pass_fds=(5, 3, 4, 63), data_fds=((8, b""), (6, b"")))
    for in_memory_file in (False, True):
        made = plan(spec, in_memory_file=in_memory_file)
        first = 3 + in_memory_file
        table = {0: "-", 1: "-", 2: "-", ORDERS: "orders"}
        if in_memory_file:
            table[3] = "order"
        table |= {
            first + place: name for place, name in enumerate(("in", "out", "err", "p5", "p3", "p4", "p63", "d8", "d6"))
        }
        for name, arguments, _ in decoded(made.encoded):
            if name == "dup3":
                table[arguments[1]] = table[arguments[0]]
            elif name == "close":
                del table[arguments[0]]
        wanted = {0: "in", 1: "out", 2: "err", 5: "p5", 3: "p3", 4: "p4", 63: "p63", 8: "d8", 6: "d6"}
        assert {number: table[number] for number in wanted} == wanted


def test_landlock_paths_may_be_missing_to_read_but_not_to_write() -> None:
    spec = LaunchSpec(
        argv=(b"/bin/true",), landlock=LandlockRules(read=("/usr",), write=("/w",), devices=("/dev/null",))
    )
    records = decoded(plan(spec).encoded)
    made = plan(spec)
    opened = [
        (step.subject, control)
        for step, (name, _, control) in zip(made.steps, records, strict=True)
        if name == "openat"
    ]
    assert opened == [("/usr", 4), ("/dev/null", 4), ("/w", 0)]
    assert records[-3][0] == "landlock_restrict_self"


def test_what_cannot_be_had_is_refused() -> None:
    confined = LaunchSpec(argv=(b"/bin/true",), landlock=LandlockRules(read=("/",), least_abi=6))
    with pytest.raises(BadLaunch):
        plan(confined, landlock_abi=5)
    with pytest.raises(BadLaunch):
        plan(LaunchSpec(argv=(b"/bin/true",)), machine="sparc64")
    with pytest.raises(BadLaunch):
        plan_from_memory_file("x86_64", 10, 9)
