from palyra.doctor import kernel
from palyra.sandbox.domain.launch_spec import LandlockRules
from palyra.sandbox.layers import landlock
from palyra.sandbox.layers.landlock import Fs, handled

RULES = LandlockRules(read=("/usr",), connect_tcp=(), bind_tcp=(80,))


def test_each_abi_handles_what_it_knows() -> None:
    assert len(handled(RULES, 1)) == 13
    assert set(handled(RULES, 2)) - set(handled(RULES, 1)) == {"fs.refer"}
    assert set(handled(RULES, 3)) - set(handled(RULES, 2)) == {"fs.truncate"}
    assert set(handled(RULES, 4)) - set(handled(RULES, 3)) == {"net.bind_tcp", "net.connect_tcp"}
    assert set(handled(RULES, 5)) - set(handled(RULES, 4)) == {"fs.ioctl_dev"}
    assert set(handled(RULES, 6)) - set(handled(RULES, 5)) == {"scope.abstract_unix_socket", "scope.signal"}
    assert handled(RULES, 7) == handled(RULES, 6)
    assert handled(RULES, 0) == ()


def test_tcp_that_the_rules_do_not_restrict_is_not_named() -> None:
    assert "net.connect_tcp" not in handled(LandlockRules(), 7)


def test_a_workspace_never_gets_devices() -> None:
    for right in (Fs.MAKE_CHAR, Fs.MAKE_BLOCK, Fs.IOCTL_DEV):
        assert not landlock.WRITING & right
    assert landlock.WRITING & Fs.MAKE_REG
    assert not landlock.READING & (Fs.WRITE_FILE | Fs.TRUNCATE | Fs.MAKE_REG | Fs.REMOVE_FILE)


def test_the_attributes_grow_with_the_abi() -> None:
    assert [landlock.ruleset_attribute_bytes(abi) for abi in (1, 3, 4, 5, 6, 7)] == [8, 8, 16, 16, 24, 24]


def test_the_abi_is_what_the_doctor_finds() -> None:
    version = landlock.abi()
    assert (f"Landlock ABI {version}" in str(kernel.landlock())) is (version > 0)
