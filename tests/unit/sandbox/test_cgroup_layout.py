from palyra.sandbox.layers.cgroup import Hierarchy, parse_hierarchies

V2_MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "33 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "34 30 0:31 / /mnt/with\\040space rw - cgroup cgroup rw,pids\n"
)


def test_version_2() -> None:
    found = parse_hierarchies("0::/user.slice/u.service\n", V2_MOUNT)
    assert found == (Hierarchy(version=2, directory="/sys/fs/cgroup/user.slice/u.service", controllers=frozenset()),)


def test_version_1_and_both() -> None:
    membership = "5:pids:/\n4:memory:/jobs/a\n3:cpu,cpuacct:/\n2:name=systemd:/x\n0::/\n"
    found = parse_hierarchies(membership, V1_MOUNTS)
    assert [(place.version, place.directory, set(place.controllers)) for place in found] == [
        (1, "/mnt/with space", {"pids"}),
        (1, "/sys/fs/cgroup/memory/jobs/a", {"memory"}),
        (1, "/sys/fs/cgroup/cpu,cpuacct", {"cpu"}),
        (2, "/sys/fs/cgroup/unified", set()),
    ]


def test_a_container_sees_its_own_part_only() -> None:
    mount = "29 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert parse_hierarchies("0::/docker/abc/x\n", mount)[0].directory == "/sys/fs/cgroup/x"
    # A group that is not below what is mounted cannot be reached, and one named abcd is not below abc.
    assert parse_hierarchies("0::/docker/abcd\n", mount) == ()
    assert parse_hierarchies("0::/../other\n", V2_MOUNT) == ()


def test_neither() -> None:
    assert parse_hierarchies("", "") == ()
    assert parse_hierarchies("0::/\nrubbish\n", "1 2 3\n") == ()
