"""Bytes of a receipt in the units that people read."""

import pytest

from palyra.pipeline.domain.receipt_text import format_size, format_sizes, is_exact, split_amounts


@pytest.mark.parametrize(
    ("layer", "text", "shown"),
    [
        ("output_quota", "65536 bytes, then the tree is killed", "64 KiB, then the tree is killed"),
        ("cgroup_memory", "2147483648 bytes", "2 GiB"),
        ("cgroup_memory", "cgroup v1: 2147483648", "cgroup v1: 2 GiB"),
        ("cgroup_pids", "cgroup v1: 4096", "cgroup v1: 4096"),
        ("rlimits", "CPU 60, NOFILE 1024, FSIZE 1073741824, CORE 1", "CPU 60, NOFILE 1024, FSIZE 1 GiB, CORE 1"),
        ("wasm", "fuel 50000, memory 131072, host calls 2048", "fuel 50000, memory 128 KiB, host calls 2048"),
        ("wasm", "fuel at most 50000, memory at most 67108864", "fuel at most 50000, memory at most 64 MiB"),
        ("network bytes", "at most 1048576", "at most 1 MiB"),
        ("network bytes", "647", "647 B"),
        ("egress", "lo; 3 connections, 2048 bytes up, 70000 down", "lo; 3 connections, 2 KiB up, 68 KiB down"),
        ("environment", "0 bytes of the launcher's own environment", "0 bytes of the launcher's own environment"),
        ("user_namespace", "user:[4026532835], not the launcher's [4026531837]", None),
        ("log", "", ""),
    ],
)
def test_bytes_are_told_in_larger_units_and_nothing_else_is_touched(layer: str, text: str, shown: str | None) -> None:
    assert format_sizes(layer, text) == (text if shown is None else shown)
    assert "".join(each.text for each in split_amounts(layer, text)) == text


def test_a_size_says_whether_it_is_all() -> None:
    shown = {count: (format_size(count), is_exact(count)) for count in (0, 1023, 1024, 1536, 65536, 70000, 5 * 1024**4)}
    assert shown == {
        0: ("0 B", True),
        1023: ("1023 B", True),
        1024: ("1 KiB", True),
        1536: ("1.5 KiB", True),
        65536: ("64 KiB", True),
        70000: ("68 KiB", False),
        5 * 1024**4: ("5120 GiB", True),
    }
