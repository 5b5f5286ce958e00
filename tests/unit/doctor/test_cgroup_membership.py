"""The format of /proc/self/cgroup in its three shapes."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.doctor.kernel import CgroupMembership, parse_membership


def test_the_unified_shape() -> None:
    assert parse_membership("0::/user.slice/a:b\n") == CgroupMembership(unified="/user.slice/a:b", legacy={})


def test_the_legacy_and_hybrid_shapes() -> None:
    text = "12:cpu,cpuacct:/a\n3:memory:/b\n1:name=systemd:/c\n0::/d\n"
    membership = parse_membership(text)
    assert membership.unified == "/d"
    assert membership.legacy == {"cpu": "/a", "cpuacct": "/a", "memory": "/b", "name=systemd": "/c"}


def test_nothing_means_nothing() -> None:
    assert parse_membership("") == CgroupMembership(unified=None, legacy={})


@given(st.text())
def test_odd_text_is_read_without_breaking(text: str) -> None:
    parse_membership(text)
