from palyra.doctor import kernel
from palyra.sandbox import landlock


def test_the_abi_is_the_kernels() -> None:
    version = landlock.abi()
    assert version >= 0
    assert (version > 0) is ("ABI" in str(kernel.landlock()) or kernel.landlock().state.value == "ok")
