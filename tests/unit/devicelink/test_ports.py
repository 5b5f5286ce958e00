from palyra.devicelink.server.peer_checks import CapabilityCalls, Identities
from palyra.identity.identity_manager import IdentityManager


def test_the_identity_manager_has_what_the_rpc_side_needs() -> None:
    needed = {name for name in vars(Identities) if not name.startswith("_")}
    assert needed <= set(dir(IdentityManager)) and "__call__" in vars(CapabilityCalls)
