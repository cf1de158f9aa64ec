"""Sealed commands over a folder: what a command writes is kept apart until it is accepted. Imports `sandbox`."""

from autoclave.sandbox.namespace.root import base_interpreter as python_executable
from autoclave.workspaces.command import overlay_problem, run_command, warm_cell
from autoclave.workspaces.interface import Declared, Tool, ToolResult, Workspace, Workspaces
from autoclave.workspaces.sealed import CommandLimits, SealedCommand

__all__ = [
    "CommandLimits",
    "Declared",
    "SealedCommand",
    "Tool",
    "ToolResult",
    "Workspace",
    "Workspaces",
    "overlay_problem",
    "python_executable",
    "run_command",
    "warm_cell",
]
