import subprocess
import sys

import pytest

from palyra.egress.domain.rules import HostRule
from palyra.egress.public_suffixes import SharedSuffix, refuse_shared

OF_REGISTRIES = (
    "co.uk", "CO.UK", "co.uk:8443", "gov.uk", "kawasaki.jp", "any.kawasaki.jp", "xn--55qx5d.cn", "公司.cn",
)  # fmt: skip
OF_PROVIDERS = ("github.io", "s3.amazonaws.com", "amazonaws.com", "blob.core.windows.net", "windows.net", "web.app")
OF_ONE_OWNER = (
    "example.com", "example.co.uk", "site.github.io", "city.kawasaki.jp", "pythonhosted.org", "githubusercontent.test",
    "corp.internal", "api.test", "home.arpa", "xn--strae-oqa.example", "x.y.example.com:8443",
)  # fmt: skip


@pytest.mark.parametrize("name", OF_REGISTRIES)
def test_names_of_a_registry_are_never_opened_by_a_star(name: str) -> None:
    rule = HostRule.parse(f"*.{name}")
    with pytest.raises(SharedSuffix, match="anybody can register"):
        refuse_shared([rule], [rule.host])


@pytest.mark.parametrize("name", OF_PROVIDERS)
def test_names_of_a_provider_are_opened_only_where_the_operator_says_so(name: str) -> None:
    rule = HostRule.parse(f"*.{name}")
    with pytest.raises(SharedSuffix) as refused:
        refuse_shared([HostRule.parse("*.example.com"), rule], ["other.example"])
    assert f'egress.shared_suffixes = ["{name}"]' in (refused.value.hint or "")
    refuse_shared([rule], [name])


@pytest.mark.parametrize("name", OF_ONE_OWNER)
def test_names_of_one_owner_and_plain_hosts_pass(name: str) -> None:
    refuse_shared([HostRule.parse(f"*.{name}"), HostRule.parse(name), HostRule.parse("github.io")])


def test_settings_without_a_star_do_not_read_the_list() -> None:
    """Reading settings is a part of every command's start."""
    script = (
        "import sys; from palyra.daemon.settings import Settings, check_together;"
        "from palyra.egress.settings import EgressSettings;"
        "check_together(Settings(egress=EgressSettings(allowed_hosts=('a.example', 'b.example:22'))));"
        "print([name for name in sys.modules if 'suffix' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
