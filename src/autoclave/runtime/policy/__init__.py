"""The policy of actions: default deny, forbid wins, and only a person grants. Pure: no file, no clock."""

from autoclave.runtime.policy.grants import Grant

__all__ = ["Grant"]
