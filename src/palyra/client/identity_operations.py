"""The endpoints of device identity: the request each makes and what its answer becomes."""

from palyra.client.protocol import Operation, convert_view, get, path_of, read_answer, send_json
from palyra.client.views import IdentityView


def identity() -> Operation[IdentityView]:
    """The authorities, the newest first, and the devices that have or had a certificate."""
    response = yield get(path_of("v1", "identity"))
    return convert_view(read_answer(response), IdentityView)


def rotate_authority() -> Operation[IdentityView]:
    """Replaces the authority that signs. The one before is trusted until the last certificate by it has ended."""
    response = yield send_json("POST", path_of("v1", "identity", "rotation"), {})
    return convert_view(read_answer(response), IdentityView)
