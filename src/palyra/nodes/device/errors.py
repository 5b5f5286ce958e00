"""What can go wrong with a device's own pairing, whatever kind of device it is."""

from palyra.errors import InvalidInput, Tampered, Unavailable


class NotPaired(Unavailable):
    code = "nodes.not_paired"
    hint = "`palyra pair code` at the daemon makes a code; `palyra node run` or `palyra-workerd join` uses it here"


class AlreadyPaired(InvalidInput):
    code = "nodes.already_paired"
    hint = "`palyra node leave`, or `palyra-workerd leave`, ends the present pairing; then pair again"


class HostRunning(Unavailable):
    code = "nodes.host_running"
    hint = "one host works on a folder at a time: stop the other, or give this one another --state-dir"


class DeviceFileBad(Tampered):
    code = "nodes.device_file_bad"
    hint = "the device's own file cannot be read: `leave --forget`, then pair again"


class DaemonUnreachable(Unavailable):
    code = "nodes.daemon_unreachable"
    hint = "check the address, the daemon, and what lies between"
