"""The start of a zygote in a container, which is not a child of the judge: it connects to a socket of the judge."""

import json
import os
import traceback
from _socket import AF_UNIX, SOCK_SEQPACKET, socket

from . import zygote


def main(path: str) -> None:
    """Connect and run the zygote. Ends the process; reports errors before it is ready to the judge."""
    connection = socket(AF_UNIX, SOCK_SEQPACKET)
    connection.connect(path)
    control = connection.detach()
    silent, _ = os.pipe()  # the judge cannot be watched from here; when it ends, the connection closes
    try:
        zygote.serve(control, silent)
    except Exception:
        os.write(control, json.dumps({"failed": traceback.format_exc().splitlines()[-1]}).encode())
        raise
