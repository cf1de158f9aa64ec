"""Control groups: the kernel counts and bounds what all processes of a cell use together.

Each zygote gets a group of its own, below the group of the judging process: no usage is charged to another group, and
limits of the judging process hold for its cells. The zygote is moved there once, before it makes a cell (moving a
process takes ten milliseconds); cells and tests start there. `group.py` finds out where groups can be made,
and makes and removes them; `files.py` knows the names of both versions, `meter.py` measures tests.

Without the controllers for memory and for CPU time a backend uses no groups and samples /proc (`watch.py`).
`autoclave doctor` reports which is in use.
"""

from autoclave.sandbox.cgroups.group import FIX, Group, Place, find_place, remove_stale_groups
from autoclave.sandbox.cgroups.meter import GroupMeter

__all__ = ["FIX", "Group", "GroupMeter", "Place", "find_place", "remove_stale_groups"]
