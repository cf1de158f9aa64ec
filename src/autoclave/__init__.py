"""Reinforcement learning of code LLMs with rewards that cannot be hacked, and LLM-proposed actions that can be undone."""

__version__ = "0.1.0"
