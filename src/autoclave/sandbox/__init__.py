"""One untrusted program, sealed. Imports `core` and `config` only; knows neither problems nor answers."""

from autoclave.core.lazy import lazily
from autoclave.sandbox.container.engine import without_pause_process as without_pause_process
from autoclave.sandbox.host import HostCheck as HostCheck
from autoclave.sandbox.host import validate_host as validate_host
from autoclave.sandbox.interface import Cell as Cell
from autoclave.sandbox.interface import Limits as Limits
from autoclave.sandbox.interface import Profile as Profile
from autoclave.sandbox.interface import Runner as Runner
from autoclave.sandbox.interface import Sandbox as Sandbox
from autoclave.sandbox.interface import Session as Session
from autoclave.sandbox.packages import require_package as require_package
from autoclave.sandbox.report import used_by_thread as used_by_thread
from autoclave.sandbox.start import open_sandbox as open_sandbox
from autoclave.sandbox.start import validate_backends as validate_backends

__getattr__ = lazily(__name__)
