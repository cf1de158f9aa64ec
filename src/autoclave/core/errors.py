"""Every exception of Autoclave, in one tree.

    AutoclaveError
    ├── InputError (ValueError)        what the user gave is wrong: exit code 2
    │   ├── ConfigError                a setting
    │   ├── DataError                  a line of a file
    │   └── CheckpointError            a checkpoint that does not fit this run
    ├── HostError (OSError)            this machine lacks something: exit code 3, the message says the mend
    │   └── IsolationError             the level of isolation asked for cannot be had here
    ├── FaultError (RuntimeError)      the infrastructure failed; never evidence about a program
    │   ├── SandboxFault               a cell died or misbehaved for reasons that are not the program's
    │   │   └── ExhaustedFault         the host had no process, descriptor or memory left for it
    │   └── JudgeFault                 no verdict after retries
    └── IncompleteError (RuntimeError) the work was done but not all of it: exit code 1

All cross process borders, so each is built from its message alone and pickles.
"""


class AutoclaveError(Exception):
    """Base of everything Autoclave raises on purpose."""


class InputError(AutoclaveError, ValueError):
    """What the user gave is wrong; the message names the place, the value, the rule and the mend."""


class ConfigError(InputError):
    """A setting is unknown, of the wrong type, out of range, or contradicts another."""


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


class IncompleteError(AutoclaveError, RuntimeError):
    """The work ended, but part of it is missing."""
