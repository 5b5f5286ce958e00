"""A question to a name server, and a socket to ask it with."""

import socket


def question(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
    return b"\x12\x34\x01\x00\x00\x01" + bytes(6) + labels + b"\x00" + kind.to_bytes(2, "big") + b"\x00\x01"


def udp() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock
