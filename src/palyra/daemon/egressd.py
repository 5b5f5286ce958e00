"""``palyra-egressd``: the egress proxy of one worker, with an identity of its own.

``join`` pairs it with the daemon by a code of the kind egress; ``run`` serves the worker's sandboxes; ``status`` shows
what is known here; ``digest`` prints the digest of a policy file, for the daemon's workers.egress_policy_digests.

Run it as a user of its own: then the worker can neither read its key nor stop its reports. The worker's user is named
by --worker-uid, and the folder of --socket must let that user in.
"""

import argparse
import asyncio
import json
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from palyra.config.load import locate
from palyra.config.state_dir import StateDir, refuse_if_others_may_write
from palyra.daemon.process_setup import keep_memory_private
from palyra.daemon.service_manager import notify_ready
from palyra.devicelink.pairing.code import ServerAddress, parse_code
from palyra.errors import PalyraError, exit_code_of
from palyra.fleet.egress.leases import BadEgressPolicy
from palyra.fleet.egress.policy import WorkerEgressPolicy
from palyra.fleet.egress.process import EgressHost, EgressHostOptions, status_of
from palyra.fleet.limits import MAX_POLICY_BYTES
from palyra.telemetry.log import log_settings_of, set_up_log

_MAX_CODE_BYTES = 4096
_SOCKET = "egress.sock"


def main(argv: Sequence[str] | None = None) -> None:
    options = parser().parse_args(argv)
    set_up_log(log_settings_of(os.environ))
    try:
        options.act(options)
    except PalyraError as error:
        _say(error.diagnostics(), sys.stderr.fileno())
        sys.exit(int(exit_code_of(error)))


def read_policy(path: Path) -> WorkerEgressPolicy:
    try:
        refuse_if_others_may_write(path)
        with open(path, "rb") as file:
            content = file.read(MAX_POLICY_BYTES + 1)
        if len(content) > MAX_POLICY_BYTES:
            raise BadEgressPolicy(f"{path} has more than {MAX_POLICY_BYTES} bytes")
        return WorkerEgressPolicy.of(tomllib.loads(content.decode()))
    except OSError as error:
        raise BadEgressPolicy(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadEgressPolicy(f"{path} is no TOML: {error}") from error


def _join(options: argparse.Namespace) -> None:
    code = None if options.code is None else parse_code(_code(options.code))
    servers = tuple(ServerAddress.parse(each) for each in options.server)
    host = EgressHost(_state_dir(options), _say)
    record = asyncio.run(host.join(code, servers, options.name))
    _say(json.dumps({"egress_id": record.device_id, "servers": list(record.servers)}))


def _run(options: argparse.Namespace) -> None:
    state_dir = _state_dir(options)
    host_options = EgressHostOptions(
        socket=options.socket or state_dir.path(_SOCKET),
        policy=read_policy(options.policy),
        worker_uids=frozenset(options.worker_uid or [os.geteuid()]),
        worker_id=options.worker,
    )

    keep_memory_private()

    async def serve() -> None:
        async with notify_ready(f"listeners at {host_options.socket}"):
            await EgressHost(state_dir, _say).run(host_options)

    asyncio.run(serve())


def _status(options: argparse.Namespace) -> None:
    _say(json.dumps(status_of(_state_dir(options))))


def _digest(options: argparse.Namespace) -> None:
    _say(read_policy(options.policy).digest())


def parser() -> argparse.ArgumentParser:
    """Of the command line; the manual is made from it as well."""
    parser = argparse.ArgumentParser(
        prog="palyra-egressd", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--state-dir", type=Path, help="its own folder; its user's alone")
    verbs = parser.add_subparsers(required=True, metavar="join|run|status|digest")
    join = verbs.add_parser("join", help="pair with a daemon")
    join.add_argument("--server", action="append", default=[], metavar="HOST:PORT", help="where to pair; repeatable")
    join.add_argument("--code", help="as `palyra pair code --kind egress` printed it; - reads it from standard input")
    join.add_argument("--name", default="", help="what this proxy calls itself")
    join.set_defaults(act=_join)
    run = verbs.add_parser("run", help="serve the worker")
    run.add_argument("--policy", type=Path, required=True, metavar="FILE", help="TOML: the most that leases may reach")
    run.add_argument("--socket", type=Path, metavar="PATH", help=f"where the worker connects; else {_SOCKET}")
    run.add_argument("--worker-uid", type=int, action="append", metavar="UID", help="who may connect; else this user")
    run.add_argument("--worker", default="", metavar="ID", help="the worker's id; else the first that asks is the one")
    run.set_defaults(act=_run)
    status = verbs.add_parser("status", help="show its pairing")
    status.set_defaults(act=_status)
    digest = verbs.add_parser("digest", help="print the digest of a policy")
    digest.add_argument("--policy", type=Path, required=True, metavar="FILE")
    digest.set_defaults(act=_digest)
    return parser


def _state_dir(options: argparse.Namespace) -> StateDir:
    return StateDir.open(locate(os.environ, state_dir_option=options.state_dir).state_dir)


def _code(word: str) -> str:
    """On a command line every process of the machine can read it: standard input is the better way."""
    return sys.stdin.buffer.read(_MAX_CODE_BYTES).decode("utf-8", "replace") if word == "-" else word


def _say(text: str, descriptor: int | None = None) -> None:
    os.write(sys.stdout.fileno() if descriptor is None else descriptor, text.encode() + b"\n")


if __name__ == "__main__":
    main()
