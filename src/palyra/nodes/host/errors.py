"""What can go wrong on the device. The codes of failures also travel to the daemon and stand in its journal."""

from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, Unavailable


class CertificateExpired(Denied):
    code = "nodes.certificate_expired"
    hint = "the device was away for longer than its certificate lasts: `palyra node leave --forget`, then pair again"


class HostRefused(Denied):
    code = "nodes.host_refused"
    hint = "ask the operator: the daemon no longer takes this device (revoked, locked, or paired anew elsewhere)"


class HostInterrupted(Failed):
    code = "nodes.host_interrupted"
    hint = "the device stopped while it worked; whether the work had an effect is not known, look before asking again"


class DeviceBusy(LimitExceeded):
    code = "nodes.device_busy"
    hint = "the device works on as much as it takes at once; ask again later"


class DeviceTimedOut(LimitExceeded):
    code = "nodes.device_timed_out"
    hint = "ask for a longer timeout, or for less work"


class NotOffered(InvalidInput):
    code = "nodes.capability_not_offered"
    hint = "`palyra node show` lists what the device offers"


class BadCapabilityInput(InvalidInput):
    code = "nodes.bad_capability_input"
    hint = "`palyra node show` has the schema of what the capability takes"


class OutputTooLarge(LimitExceeded):
    code = "nodes.output_too_large"
    hint = "ask for less, or let the command write a file"


class NotAllowedHere(Denied):
    code = "nodes.declined_at_device"
    hint = "the person at the device said no, or nobody was there to say yes"


class UnsupportedHere(Unavailable):
    code = "nodes.unsupported_here"
    hint = "the device has no way to do this: set node.open_url_command or node.notify_command there"


class CapabilityFailed(Failed):
    code = "nodes.capability_failed"
    hint = "the device's own log says more"


class BadCommandPlan(InvalidInput):
    code = "nodes.bad_command"
    hint = "a command names argv, and {NAME} as a whole word of it for each parameter"
