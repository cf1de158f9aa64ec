"""The hook of an agent host: hands an event to the observer, and ends as that says. Runs without the package.

    python -I -S client.py FOLDER EVENT COMMAND...

FOLDER has the socket of the observer. Without an answer, COMMAND takes over, with the same standard input. Where there
was a compiler, `_hook` (`_hook.c`) does the same without starting Python.
"""

import os
import socket
import sys

_PIECE = 1 << 16


def exchange(folder: str, event: str, content: bytes) -> bytes:
    """Return the answer of an observer: its exit code as a digit, and a message. Raises OSError where none answers."""
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            os.chdir(folder)  # its path may be longer than an address
            link.connect("socket")
        finally:
            os.fchdir(before)
            os.close(before)
        link.sendall(event.encode() + b"\n" + content)
        link.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: link.recv(_PIECE), b""))
    if not answer:
        raise ConnectionResetError("the observer has died")
    return answer


def main() -> None:
    """Hand over one event, and exit."""
    folder, event, *command = sys.argv[1:]
    with os.fdopen(0, "rb", closefd=False) as stdin:
        content = stdin.read()
    try:
        answer = exchange(folder, event, content)
    except OSError:
        with os.fdopen(os.memfd_create("input", 0), "w+b", closefd=False) as again:
            again.write(content)
            again.flush()
            again.seek(0)
            os.dup2(again.fileno(), 0)
        os.execv(command[0], command)
    os.write(2, answer[1:])
    sys.exit(int(answer[:1]))


if __name__ == "__main__":
    main()
