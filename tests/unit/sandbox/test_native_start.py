import os
import platform
import struct
import subprocess
from pathlib import Path

from palyra.sandbox.launch.supervisor import native_code as native

SOURCE = Path(native.__file__).with_name("native_start.s")


def test_the_bytes_are_what_the_source_assembles_to(tmp_path: Path) -> None:
    """Only this proves that the machine code in the Python file is the commented source beside it."""
    made, raw = tmp_path / "made.o", tmp_path / "made.bin"
    target = "elf_x86_64" if platform.machine() == "x86_64" else None
    assert target, "the source is for x86-64"
    subprocess.run(["as", "--64", "-o", made, SOURCE], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", made, raw], check=True)
    assert raw.read_bytes() == native._X86_64


def test_no_memory_is_writable_and_executable() -> None:
    image = native.image()
    (entry,) = struct.unpack_from("<Q", image, 24)
    segments = [struct.unpack_from("<IIQQQQQQ", image, 64 + 56 * place) for place in range(3)]
    assert [flags for _, flags, *_ in segments] == [5, 6, 6]
    _, _, offset, address, _, size, *_ = segments[0]
    assert address + 64 + 3 * 56 == entry < address + size
    assert image[offset + entry - address :][:4] == native._X86_64[:4]


def test_one_that_waits_in_a_sandbox_hears_elsewhere_and_can_be_read() -> None:
    plain, inside = native.image(), native.image(60, readable=True)
    assert len(plain) == len(inside)
    (entry,), (later,) = struct.unpack_from("<Q", plain, 24), struct.unpack_from("<Q", inside, 24)
    # The first call is prctl(PR_SET_DUMPABLE, 0); the next prctl begins with the same five bytes.
    skipped = later - entry
    assert native._X86_64[skipped : skipped + 5] == native._X86_64[:5]
    assert native._X86_64[:skipped].endswith(b"\x0f\x05") and native._X86_64[:skipped].count(b"\x0f\x05") == 1
    code = 64 + 3 * 56
    changed = [place for place in range(len(plain)) if plain[place] != inside[place] and place > code]
    # recvmsg and write name the descriptor, and nothing else does.
    assert len(changed) == 2 and all(plain[place] == native.ORDERS_DESCRIPTOR for place in changed)
    assert all(inside[place] == 60 and plain[place - 1] == 0xBF for place in changed)


def test_the_source_and_the_plan_agree_on_the_descriptor() -> None:
    assert f"ORDERS, {native.ORDERS_DESCRIPTOR}" in SOURCE.read_text()


def test_the_image_runs_and_leaves_when_there_is_nothing_to_wait_for() -> None:
    descriptor = native.open_image()
    assert descriptor is not None
    os.close(descriptor)
