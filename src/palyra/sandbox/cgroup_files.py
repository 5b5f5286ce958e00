"""Reads and writes the small files of a control group."""

import os


def write(directory: str, name: str, content: str) -> None:
    descriptor = os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def read(directory: str, name: str) -> str:
    descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 65_536):
            parts.append(part)
        return b"".join(parts).decode().strip()
    finally:
        os.close(descriptor)
