"""The composition root: builds judge, sampler and workers from a configuration. The only place that chooses.

`host` needs no tensor library; the other modules do, and are imported by the commands that need them.
"""

import os

# Threads that spin while they wait make two busy processes on two cores many times slower. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
