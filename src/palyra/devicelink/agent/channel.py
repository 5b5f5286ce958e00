"""The gRPC channel from a device to its daemon over mutual TLS, and the wait for the next certificate."""

import asyncio
import contextlib
from typing import Any, Final

import grpc

from palyra.clock import MS_PER_SECOND, Clock
from palyra.devicelink.agent.identity import Credentials, Renewed
from palyra.devicelink.limits import KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS, MAX_MESSAGE_BYTES
from palyra.identity.certificate import SERVER_NAME

_OPTIONS: Final = {
    "grpc.ssl_target_name_override": SERVER_NAME,
    "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
    "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
    "grpc.enable_retries": 0,
    # Each link has a connection of its own: a new certificate is not shown on an old one.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.keepalive_time_ms": KEEPALIVE_MS,
    "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
}
# The due time of a renewal is checked this often, because the clock may be set and the machine suspended.
RENEWAL_CHECK_SECONDS: Final = 30.0


def open_channel(address: str, credentials: Credentials, **options: Any) -> grpc.aio.Channel:
    """Open a channel. ``options`` are gRPC's without their prefix; they replace the ones above."""
    changes = {f"grpc.{name}": value for name, value in options.items()}
    return grpc.aio.secure_channel(
        address,
        grpc.ssl_channel_credentials(
            root_certificates=credentials.ca_bundle_pem.encode(),
            private_key=credentials.key_pem.reveal().encode(),
            certificate_chain=credentials.certificate_pem.encode(),
        ),
        options=tuple({**_OPTIONS, **changes}.items()),
    )


def describe_failure(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name.lower()}: {(error.details() or '')[:200]}"


def read_renewal(answer: Any) -> Renewed:
    return Renewed(
        certificate_pem=answer.certificate_pem.decode("ascii", "replace"),
        ca_bundle_pem=answer.ca_bundle_pem.decode("ascii", "replace"),
        generation=answer.generation,
    )


async def wait_for_renewal(due_ms: int, renew_now: asyncio.Event, clock: Clock) -> None:
    """Wait until the wall clock reaches the due time, or until ``renew_now`` is set."""
    while (left_ms := due_ms - clock.now_ms()) > 0 and not renew_now.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(left_ms / MS_PER_SECOND, RENEWAL_CHECK_SECONDS)):
                await renew_now.wait()


def is_cancelling() -> bool:
    """Tell whether the caller cancels this task. A closed channel cancels its calls as well."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
