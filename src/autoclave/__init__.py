"""Reinforcement learning of code LLMs with rewards that cannot be hacked."""

__version__ = "0.1.0"
