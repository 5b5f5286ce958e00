"""The format of /proc/self/cgroup in its three shapes."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.doctor.kernel import parse_membership


def test_the_unified_shape() -> None:
    assert parse_membership("0::/user.slice/a:b\n") == {"": "/user.slice/a:b"}


def test_the_legacy_and_hybrid_shapes() -> None:
    text = "12:cpu,cpuacct:/a\n3:memory:/b\n1:name=systemd:/c\n0::/d\n"
    groups = {"": "/d", "cpu": "/a", "cpuacct": "/a", "memory": "/b", "name=systemd": "/c"}
    assert parse_membership(text) == groups


def test_nothing_means_nothing() -> None:
    assert parse_membership("") == {}


@given(st.text())
def test_odd_text_is_read_without_breaking(text: str) -> None:
    parse_membership(text)
