"""The examples for frameworks of agents, each with a scripted model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import inspect_ai
import pytest
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import TaskState
from langgraph.graph import END, START, StateGraph

import autoclave.act as act
from examples.agents import inspect_solver, langgraph_checkpoints, openai_agents_sdk, openai_chat
from tests.evaluation.chat_server import ChatServer
from tests.runtime.test_proposals import calling


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\n")
    return folder


@pytest.mark.parametrize("example", [openai_chat.work, openai_agents_sdk.work])
def test_a_model_behind_the_api_of_openai_calls_tools(
    root: Path, monkeypatch: pytest.MonkeyPatch, example: Callable[[act.Session, str], Any]
):
    edit = {"path": "notes.txt", "old_string": "one", "new_string": "two"}
    server = ChatServer(lambda body: "All done.", models=("gpt-5",))
    server.trouble.append(calling(("edit", edit), ("write", {"path": "/outside"})))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with act.session(root, allow=["files/**"]) as session:
        said = example(session, "Change it.")
        assert (asyncio.run(said) if inspect.iscoroutine(said) else said) == "All done."
        assert (root / "notes.txt").read_text() == "two\n"
        session.undo(all=True)
    server.close()
    assert (root / "notes.txt").read_text() == "one\n"


@pytest.mark.filterwarnings("ignore")
def test_what_a_sample_of_inspect_did_is_judged_and_undone(root: Path, tmp_path: Path):
    seen = list[str]()

    def judge(state: TaskState) -> None:
        seen.append((root / "notes.txt").read_text())

    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "write", {"path": "notes.txt", "content": "two\n"}),
        ModelOutput.for_tool_call("mockllm/model", "delete", {"path": "missing"}),
        ModelOutput.from_content("mockllm/model", "done"),
    ]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1)  # else a tokenizer is downloaded
    task = inspect_ai.Task(
        dataset=[Sample(input="Change it.", metadata={"folder": str(root)})], solver=inspect_solver.on_folder(judge)
    )
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = inspect_ai.eval(task, model=model, display="none", log_dir=str(tmp_path / "logs"))
    assert log.status == "success", log.error
    assert seen == ["two\n"]
    assert (root / "notes.txt").read_text() == "one\n"


def test_a_checkpoint_of_langgraph_is_a_savepoint(root: Path):
    class State(TypedDict):
        step: int

    with act.session(root, allow=["files/**"]) as session:

        def write(state: State) -> dict[str, Any]:
            session.call("append", {"path": "notes.txt", "content": f"step {state['step']}\n"})
            return {"step": state["step"] + 1}

        builder = StateGraph(State).add_node("first", write).add_node("second", write)
        builder.add_edge(START, "first").add_edge("first", "second").add_edge("second", END)
        checkpoints = langgraph_checkpoints.Savepoints(session)
        graph = builder.compile(checkpointer=checkpoints)
        thread: Any = {"configurable": {"thread_id": "1"}}
        graph.invoke({"step": 1}, thread, durability="sync")
        assert (root / "notes.txt").read_text() == "one\nstep 1\nstep 2\n"
        before_second = next(each for each in graph.get_state_history(thread) if each.next == ("second",))
        config = checkpoints.travel(before_second.config)
        assert (root / "notes.txt").read_text() == "one\nstep 1\n"
        graph.update_state(config, {"step": 7})
        assert graph.invoke(None, config, durability="sync") == {"step": 3}
    assert (root / "notes.txt").read_text() == "one\nstep 1\nstep 2\n"
