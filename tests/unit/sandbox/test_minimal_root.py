"""The files that are made up for the sandbox, and the reasons for those of the host."""

import pytest

from fakes.isolation_plan import HOST
from palyra.sandbox.domain.minimal_root import ETC_REASONS, identity_files


def test_only_public_parts_of_etc_are_ever_mounted() -> None:
    for path in ETC_REASONS:
        assert path.startswith("/etc/")
        assert not any(word in path for word in ("shadow", "private", "sudo", "ssh", "kube", "docker"))
    assert "/etc/ssl" not in ETC_REASONS


@pytest.mark.parametrize(("uid", "accounts"), [(0, 3), (1000, 3), (65534, 2)])
def test_accounts_are_root_the_user_and_nobody_each_once(uid: int, accounts: int) -> None:
    import msgspec

    files = identity_files(msgspec.structs.replace(HOST, uid=uid, gid=uid), strict=True)
    lines = files[11].decode().splitlines()
    assert len(lines) == len({line.split(":")[2] for line in lines}) == accounts
    assert all(line.count(":") == 6 for line in lines)
    assert all(line.count(":") == 3 for line in files[12].decode().splitlines())
