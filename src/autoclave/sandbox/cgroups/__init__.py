"""Control groups: the kernel counts and bounds what all processes of a cell use together.

Each zygote gets a group of its own, below the group that the judging process is in: nothing of ours is ever charged to
anybody else, and what limits the judging process limits its cells. The zygote is put there once, before it makes a cell
(to move a process costs ten milliseconds); cells and tests are born there. `place.py` finds out where groups can be
made, `group.py` makes and removes them, `files.py` knows the names of both versions, `meter.py` measures tests.

All or nothing: without the controllers for memory and for CPU time a backend does without groups and measures by
sampling /proc (`watch.py`). The doctor says which it is.
"""

from autoclave.sandbox.cgroups.group import Group, remove_stale_groups
from autoclave.sandbox.cgroups.meter import GroupMeter
from autoclave.sandbox.cgroups.place import FIX, Place, find_place

__all__ = ["FIX", "Group", "GroupMeter", "Place", "find_place", "remove_stale_groups"]
