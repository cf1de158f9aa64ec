"""The executable file of a compiled program."""

import os


def executable(folder: str, name: str, content: bytes) -> str:
    """Write `content` as a new file of `folder` that all may read and run. Its path."""
    path = f"{folder}/{name}"
    with open(path, "xb") as file:
        file.write(content)
    os.chmod(path, 0o555)
    return path
