"""Why a worker's egress proxy says no, each reason with its code."""

from palyra.errors import Denied, InvalidInput, LimitExceeded, Unavailable


class BadEgressPolicy(InvalidInput):
    code = "worker_egress.bad_policy"
    hint = "correct what the message names in the file that --policy gives"


class WrongUser(Denied):
    code = "worker_egress.wrong_user"
    hint = "only the worker's own user may talk to its egress proxy: --worker-uid says which that is"


class AnotherConnected(Denied):
    code = "worker_egress.another_connected"
    hint = "one process of the worker talks to its proxy at a time; the one before has to end first"


class BadDoorMessage(InvalidInput):
    code = "worker_egress.bad_message"
    hint = "worker and proxy are of different versions: update both"


class OtherWorker(Denied):
    code = "worker_egress.other_worker"
    hint = "a proxy serves the one worker that it was set up for: every worker has a proxy of its own"


class LeaseNotGranted(Denied):
    code = "worker_egress.not_granted"
    hint = "the daemon gave the proxy no grant for this lease; it does before it offers the lease to the worker"


class FenceDiffers(Denied):
    code = "worker_egress.stale_fence"
    hint = "the fencing number is not that of the grant"


class LeaseOver(Denied):
    code = "worker_egress.lease_over"
    hint = "the lease ended, or its deadline passed"


class BeyondPolicy(Denied):
    code = "worker_egress.beyond_policy"
    hint = "the daemon granted a host that the proxy's own policy does not allow: bring the two together"


class DoorStands(InvalidInput):
    code = "worker_egress.door_stands"
    hint = "a lease has one door at a time: close the one that is open"
    http_status = 409


class NoDoor(InvalidInput):
    code = "worker_egress.no_door"
    hint = "no door of this lease is open"
    http_status = 409


class BadDoorSocket(InvalidInput):
    code = "worker_egress.bad_socket"
    hint = "a door's sockets listen in the network of a sandbox, never in the worker's own"


class TooManyLeases(LimitExceeded):
    code = "worker_egress.too_many_leases"
    hint = "the proxy keeps as many leases as it can: is the daemon of another version?"


class ProxyGone(Unavailable):
    code = "worker_egress.proxy_gone"
    hint = "start the worker's egress proxy: palyra-egressd run"


class DaemonLinkLost(Unavailable):
    code = "worker_egress.daemon_lost"
    hint = "check the daemon, and what lies between"
