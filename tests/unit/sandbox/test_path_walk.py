import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.guard_harness import DictFiles
from palyra.sandbox.guards.executables import HostFiles, Kind, is_beneath, join, walk
from palyra.sandbox.limits import MAX_LINKS

FILES = DictFiles(
    {
        "/ws/f": None,
        "/ws/d/": None,
        "/ws/up": "..",
        "/ws/out": "/etc",
        "/ws/rel": "d/../f",
        "/ws/loop": "loop",
        "/ws/self": "/proc/self",
        "/ws/d/back": "../f",
        "/etc/passwd": None,
        "/dev/stdin": "/proc/self/fd/0",
    }
)


@pytest.mark.parametrize(
    ("path", "real", "kind"),
    [
        ("/ws/f", "/ws/f", Kind.FILE),
        ("/ws//./d/", "/ws/d", Kind.DIRECTORY),
        ("/ws/rel", "/ws/f", Kind.FILE),
        ("/ws/d/back", "/ws/f", Kind.FILE),
        ("/ws/out/passwd", "/etc/passwd", Kind.FILE),
        ("/ws/up/etc/passwd", "/etc/passwd", Kind.FILE),
        ("/ws/out/..", "/", Kind.DIRECTORY),
        ("/ws/no/such", "/ws/no/such", Kind.MISSING),
        ("/ws/no/../../etc", "/etc", Kind.MISSING),
        ("/ws/f/x", "/ws/f/x", Kind.MISSING),
        ("/../../ws/f", "/ws/f", Kind.FILE),
        ("/ws/self/exe", "/proc/self/exe", Kind.MAGIC),
        ("/proc/1/root/etc", "/proc/1/root/etc", Kind.MAGIC),
        ("/dev/fd/3", "/dev/fd/3", Kind.MAGIC),
        ("/", "/", Kind.DIRECTORY),
    ],
)
def test_ends_where_the_kernel_would(path: str, real: str, kind: Kind) -> None:
    walked = walk(path, FILES)
    assert (walked.real, walked.kind) == (real, kind)


def test_links_that_never_end_are_told() -> None:
    assert walk("/ws/loop", FILES).kind is Kind.LOOP
    chain = DictFiles({f"/l{number}": f"l{number + 1}" for number in range(MAX_LINKS + 1)})
    assert walk("/l0", chain).kind is Kind.LOOP
    assert walk("/l2", chain).kind is Kind.MISSING


def test_fixed_devices_end_the_walk() -> None:
    assert walk("/dev/stdin", FILES).kind is Kind.MAGIC
    assert walk("/dev/stdin", FILES, ends=frozenset({"/dev/stdin"})).real == "/dev/stdin"
    assert walk("/dev/stdin/x", FILES, ends=frozenset({"/dev/stdin"})).kind is Kind.MAGIC


def test_the_links_on_the_way_are_told() -> None:
    assert walk("/ws/up/ws/rel", FILES).passed == ("/ws/up", "/ws/rel")


def test_joining_and_lying_beneath() -> None:
    assert join("/ws", "a") == "/ws/a" and join("/ws", "/a") == "/a" and join("/", "a") == "/a"
    assert is_beneath("/ws", "/ws") and is_beneath("/ws/a", "/ws") and not is_beneath("/wsx", "/ws")
    assert is_beneath("/x", "/")


NAMES = st.sampled_from(["a", "b", "l", "m", "..", ".", "no"])


@settings(max_examples=150)
@given(parts=st.lists(NAMES, min_size=1, max_size=7))
def test_agrees_with_the_kernel_wherever_the_path_exists(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    root = tmp_path_factory.getbasetemp() / "walked"
    if not root.exists():
        (root / "a" / "b").mkdir(parents=True)
        (root / "a" / "l").symlink_to("../b")
        (root / "b").mkdir()
        (root / "b" / "m").symlink_to(root / "a")
        (root / "l").symlink_to("a/b")
    path = f"{root}/{'/'.join(parts)}"
    walked = walk(path, HostFiles())
    if Path(path).exists():
        assert walked.real == os.path.realpath(path) and walked.kind is Kind.DIRECTORY
    else:
        assert walked.kind is Kind.MISSING
