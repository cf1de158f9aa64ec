"""Sealed commands over a folder, whose changes are kept apart until accepted, and workspaces. Imports `sandbox`."""

from autoclave.sandbox.namespace.root import base_interpreter as python_executable
from autoclave.workspaces.command import overlay_problem, run_command, warm_cell
from autoclave.workspaces.interface import Declared, Tool, ToolResult, Workspace, WorkspaceLimits, Workspaces
from autoclave.workspaces.local import LocalWorkspaces
from autoclave.workspaces.sealed import CommandLimits, SealedCommand

__all__ = [
    "CommandLimits",
    "Declared",
    "LocalWorkspaces",
    "SealedCommand",
    "Tool",
    "ToolResult",
    "Workspace",
    "WorkspaceLimits",
    "Workspaces",
    "overlay_problem",
    "python_executable",
    "run_command",
    "warm_cell",
]
