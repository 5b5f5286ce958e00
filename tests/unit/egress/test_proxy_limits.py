from palyra.egress import limits as proxy_limits
from palyra.egress.limits import ProxyLimits


def test_a_descriptor_for_every_tunnel_is_asked_for() -> None:
    assert 2 * ProxyLimits().max_tunnels + proxy_limits.SPARE_DESCRIPTORS <= proxy_limits.WANTED_DESCRIPTORS


def test_a_handshake_is_looked_at_several_times_before_its_time_is_over() -> None:
    limits = ProxyLimits()
    assert limits.sweep_seconds * 10 <= limits.handshake_seconds < limits.idle_seconds
