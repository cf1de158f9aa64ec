"""LangGraph with a folder that travels in time: each checkpoint of a graph is a savepoint of its session."""

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.memory import InMemorySaver

import autoclave.act as act


class Savepoints(InMemorySaver):
    """Keeps checkpoints, and records a savepoint with each. Invoke the graph with `durability="sync"`."""

    def __init__(self, session: act.Session) -> None:
        super().__init__()
        self._session = session

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._session.savepoint(checkpoint["id"])
        return super().put(config, checkpoint, metadata, new_versions)

    def travel(self, config: RunnableConfig) -> RunnableConfig:
        """Restore the folder as it was at a checkpoint; return the config that continues the graph from there."""
        self._session.undo_to(config.get("configurable", {})["checkpoint_id"])
        return config
