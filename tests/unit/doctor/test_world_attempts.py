from palyra.doctor.attacks.outside_attempts import NETWORK_ATTEMPTS, PROCESS_ATTEMPTS
from palyra.sandbox.domain.profile import Layer


def test_only_the_victim_is_a_target() -> None:
    assert all(each.arguments["victim"] == "{victim}" for each in PROCESS_ATTEMPTS)


def test_ports_are_those_of_our_own_listeners() -> None:
    ports = {each.arguments["port"] for each in NETWORK_ATTEMPTS if "port" in each.arguments}
    assert ports == {"{tcp}", "{tcp6}", "{udp}"}


def test_tier_b_answers_for_tcp_by_every_way_and_not_for_udp() -> None:
    promise = {each.id: each.b for each in NETWORK_ATTEMPTS}
    for name in ("tcp", "tcp6", "fastopen", "fastopen_sendmsg", "mptcp"):
        assert Layer.LANDLOCK in (promise[f"network.{name}"] or ())
    assert promise["network.udp"] == ()
