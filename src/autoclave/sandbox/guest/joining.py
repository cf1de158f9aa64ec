"""The start of a zygote that is no child of the judge: it connects to a socket that the judge has put before it."""

import json
import os
import traceback
from _socket import AF_UNIX, SOCK_SEQPACKET, socket

from . import zygote


def main(path: str) -> None:
    """Connect and run the zygote. Ends the process; what went wrong before it was ready is told to the judge."""
    connection = socket(AF_UNIX, SOCK_SEQPACKET)
    connection.connect(path)
    control = connection.detach()
    nobody, _ = os.pipe()  # the judge cannot be watched from here; at its end the connection closes
    try:
        zygote.serve(control, nobody)
    except Exception:
        os.write(control, json.dumps({"failed": traceback.format_exc().splitlines()[-1]}).encode())
        raise
