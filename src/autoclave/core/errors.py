"""Every exception of Autoclave, in one tree.

    AutoclaveError
    ├── InputError (ValueError)        what the user gave is wrong: exit code 2
    │   ├── ConfigError                a setting
    │   ├── UsageError                 an argument names nothing, or is not what it must be
    │   ├── DataError                  a line of a file
    │   └── CheckpointError            a checkpoint that does not fit this run
    ├── HostError (OSError)            this machine lacks something: exit code 3, the message says the fix
    │   └── IsolationError             the level of isolation asked for cannot be had here
    ├── FaultError (RuntimeError)      the infrastructure failed; never evidence about a program
    │   ├── SandboxFault               a cell died or misbehaved for reasons that are not the program's
    │   │   └── ExhaustedFault         the host had no process, descriptor or memory left for it
    │   ├── JudgeFault                 no verdict after retries
    │   ├── StalledFault               nothing moved in a run for too long: exit code 3
    │   ├── EngineFault                what samples responses failed; what it was asked can be asked of another
    │   └── WorkerFault                a worker of a group raised what cannot cross to the driver
    │       └── WorkerDied             the process of a worker ended
    └── IncompleteError (RuntimeError) the work was done but not all of it: exit code 1

All cross process borders, so each is built from its message alone and pickles.
"""


class AutoclaveError(Exception):
    """Base of everything Autoclave raises on purpose."""

    action = ""
    """The action that was recorded as failed with this reason, if any."""


class InputError(AutoclaveError, ValueError):
    """Invalid input of the user; the message names the place, the value, the rule and the fix."""


class ConfigError(InputError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another."""


class UsageError(InputError):
    """An argument names something that does not exist, or is not an operation."""


class DataError(InputError):
    """A line of a data file cannot be used; the message begins with `file:line`."""


class CheckpointError(InputError):
    """A checkpoint is damaged or belongs to another configuration."""


class HostError(AutoclaveError, OSError):
    """The machine lacks something the configuration needs."""


class IsolationError(HostError):
    """The level of isolation asked for cannot be reached on this host."""


class FaultError(AutoclaveError, RuntimeError):
    """The infrastructure failed. Nothing may be concluded about the program that was running."""


class SandboxFault(FaultError):
    """A cell could not be made, or died for reasons that are not the program's."""


class ExhaustedFault(SandboxFault):
    """The host lacks processes, descriptors or memory for a cell. No program can bring that about by itself."""


class JudgeFault(FaultError):
    """No verdict could be reached, also on fresh cells."""


class EngineFault(FaultError):
    """An engine or its server died. It is not used again; a new one gets its unfinished requests."""


class StalledFault(FaultError):
    """Nothing moved in a run for so long that it was ended; the message says where the states of all roles stand."""


class WorkerFault(FaultError):
    """A worker of a group raised something that is no type here, or that cannot be sent; the message has its text."""


class WorkerDied(WorkerFault):
    """The process of a worker ended, or had to be ended. Its group can be restarted; the state that it held is gone."""

    group: str
    rank: int
    node: str

    @staticmethod
    def of(group: str, rank: int, node: str, how: str) -> "WorkerDied":
        """The death of rank `rank` of worker group `group` on `node`; `how` ends the sentence."""
        error = WorkerDied(f"rank {rank} of worker group {group!r} on node {node} {how}")
        error.group, error.rank, error.node = group, rank, node
        return error


class IncompleteError(AutoclaveError, RuntimeError):
    """The work ended, but part of it is missing."""
