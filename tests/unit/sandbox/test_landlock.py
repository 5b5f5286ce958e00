from palyra.doctor import kernel
from palyra.sandbox.layers import landlock


def test_the_abi_is_what_the_doctor_finds() -> None:
    version = landlock.abi()
    assert (f"Landlock ABI {version}" in str(kernel.landlock())) is (version > 0)
