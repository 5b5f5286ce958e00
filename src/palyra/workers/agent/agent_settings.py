"""The settings of a worker: the section `worker` of the machine's own settings file."""

from typing import Annotated

import msgspec
from msgspec import Meta

from palyra.workers.agent.limits import DEFAULT_SLOTS
from palyra.workers.limits import MAX_NAME_CHARS, MAX_SLOTS


def _says(description: str) -> Meta:
    return Meta(description=description)


class WorkerAgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[
        str, Meta(max_length=MAX_NAME_CHARS), _says("What this worker calls itself; empty means its host name.")
    ] = ""
    slots: Annotated[
        int, Meta(ge=1, le=MAX_SLOTS), _says("Leases this worker runs at once; the daemon may give it fewer.")
    ] = DEFAULT_SLOTS
    image_digest_sha256: Annotated[
        str,
        Meta(pattern="^([0-9a-f]{64})?$"),
        _says("The image this machine runs, as its launcher knows it; /etc/palyra/image.json comes before it."),
    ] = ""
    egress_socket: Annotated[
        str,
        _says("Socket of this worker's palyra-egressd; empty means none, and no network for programs."),
    ] = ""
