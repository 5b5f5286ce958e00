import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.identity.device import DeviceId, DeviceKind, InvalidDevice, SpiffeId, actor_of, new_trust_domain
from palyra.ids import InvalidId

ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize("kind", list(DeviceKind))
def test_a_name_reads_as_it_is_written(kind: DeviceKind) -> None:
    name = SpiffeId("palyra-x", kind, DeviceId(ID))
    assert str(name) == f"spiffe://palyra-x/{kind.value}/{ID}"
    assert SpiffeId.parse(str(name)) == name


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "spiffe://",
        f"https://palyra-x/node/{ID}",
        f"SPIFFE://palyra-x/node/{ID}",
        f"spiffe://palyra-x/Node/{ID}",
        f"spiffe://palyra-x/daemon/{ID}",
        f"spiffe://palyra-x/node/{ID.lower()}",
        f"spiffe://palyra-x/node/{ID}/",
        f"spiffe://palyra-x/node/{ID}/more",
        f"spiffe://palyra-x//node/{ID}",
        f"spiffe:///node/{ID}",
        f"spiffe://Palyra/node/{ID}",
        f"spiffe://user@palyra/node/{ID}",
        f"spiffe://palyra:443/node/{ID}",
        f"spiffe://palyra/node/{ID}?x=1",
        f"spiffe://palyra/node/{ID}\n",
        f"spiffe://palyra/node/%30{ID[1:]}",
        "spiffe://palyra/node/" + "A" * 2_000,
    ],
)
def test_every_other_spelling_is_refused(raw: str) -> None:
    with pytest.raises(InvalidDevice):
        SpiffeId.parse(raw)


@given(st.text())
def test_what_parses_is_spelled_in_the_one_way(raw: str) -> None:
    for text in (raw, f"spiffe://palyra-x/{raw}", f"spiffe://{raw}/node/{ID}"):
        try:
            name = SpiffeId.parse(text)
        except InvalidDevice:
            continue
        assert str(name) == text


def test_trust_domains_are_never_the_same_and_fit_a_name() -> None:
    made = {new_trust_domain() for _ in range(50)}
    assert len(made) == 50
    for domain in made:
        assert SpiffeId.parse(f"spiffe://{domain}/egress/{ID}").trust_domain == domain


def test_a_device_id_is_a_ulid() -> None:
    assert DeviceId.parse(ID) == ID
    with pytest.raises(InvalidId, match="device id"):
        DeviceId.parse("node-1")
    assert actor_of(DeviceKind.NODE, ID) == f"node/{ID}"
