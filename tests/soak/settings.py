"""Numbers and settings of the soak, in one place."""

from typing import Final

import msgspec

from fakes.two_networks import NEAR_ADDRESS

PORT: Final = 7142
WEB_PORT: Final = 8080
# Of the shop, in the daemon's network: private, as those of machines in a harness are.
SHOP_ADDRESS: Final = "10.99.0.1"
# A name that no resolver knows: only the settings give it an address.
HOST: Final = "shop.test"
ELSEWHERE: Final = "elsewhere.test"
MACHINES: Final = 3
APPROVAL_SECONDS: Final = 4
# Large enough for half an hour; the fault that fills it takes away what is left.
DISK_BYTES: Final = 3 * 1024**3


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. The same seed makes the same choices, though not at the same moments."""

    minutes: float = 30.0
    seed: int = 1
    callers: int = 8
    faults: tuple[str, ...] = ()
    no_faults: bool = False

    @property
    def seconds(self) -> float:
        return self.minutes * 60

    @property
    def long_life_seconds(self) -> float:
        """The last part, in which the daemon is not killed: its memory is looked at over one long life."""
        return self.seconds * 0.4


_PLACE = f"{HOST}:{WEB_PORT}"
DAEMON: Final = f"""
[daemon]
port = {PORT}
[tools]
preapproved = ["fs.read", "fs.list", "fs.search", "process.*", "http.fetch", "skill.*", "browser.*"]
[egress]
allowed_hosts = ["{_PLACE}"]
private_targets = ["{_PLACE}"]
static_hosts = {{ "{HOST}" = ["{SHOP_ADDRESS}"] }}
[sandbox]
allowed_hosts = ["{_PLACE}"]
[browser]
allowed_hosts = ["{_PLACE}"]
private_targets = ["{_PLACE}"]
ready = 1
[nodes]
host = "{NEAR_ADDRESS}"
advertise = ["{NEAR_ADDRESS}"]
[workers]
heartbeat_seconds = 0.5
heartbeat_timeout_seconds = 4.0
[approvals]
ttl_seconds = {APPROVAL_SECONDS}
[budget]
egress_bytes = 8589934592
[log]
level = "warning"
"""
MACHINE: Final = f"""
[sandbox]
allowed_hosts = ["{_PLACE}"]
[egress]
allowed_hosts = ["{_PLACE}"]
[log]
level = "warning"
"""
PROXY_POLICY: Final = f"""
allowed_hosts = ["{_PLACE}"]
private_targets = ["{_PLACE}"]
static_hosts = {{ "{HOST}" = ["{SHOP_ADDRESS}"] }}
"""
