"""The code on the far side of a command, started by `sandbox.bootstrap` in a bare interpreter."""
