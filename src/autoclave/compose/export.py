"""The policy of a checkpoint in Hugging Face form."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from autoclave.compose.workers import make_actor
from autoclave.config import TrainConfig, TrainerConfig, load
from autoclave.core import InputError
from autoclave.core.files import atomic_folder
from autoclave.runs.folder import RunFolder
from autoclave.training.checkpoints import find_checkpoint
from autoclave.workers import ResourcePool, WorkerGroup


def export(run: Path, out: Path, *, which: str, say: Callable[[str], None] = print) -> None:
    """Write the policy of a checkpoint of the run in folder `run` to the folder `out`, on the CPU of this process.

    Args:
        run: the folder of a run, finished or not.
        out: the folder of the model; there or not, it holds nothing yet.
        which: the step of the checkpoint, `last`, or `best`.
        say: receives the lines a user should see.

    Raises:
        InputError: `run` is not the folder of a run, or `out` is not empty.
        CheckpointError: there is no such checkpoint, or it is damaged.
        HostError: the disk is full or fails.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out}: exists already; give a new folder")
    folder = RunFolder.existing(run, "RUN")
    checkpoint = find_checkpoint(folder.checkpoints, which)
    config = load(TrainConfig, run / "config.yaml").config
    here = config.model.model_copy(update={"device": "cpu"})
    config = config.model_copy(update={"model": here, "trainer": TrainerConfig(lora=config.trainer.lora)})
    with closing(ResourcePool("export")) as pool, atomic_folder(out) as model:
        actor = WorkerGroup(pool, partial(make_actor, config, folder.start))
        actor.load_weights(checkpoint.folder / "actor").result()
        actor.export(model).result()
    score = "" if checkpoint.score is None else f", held-out pass@1 {checkpoint.score:.3f}"
    say(f"model: {out} (step {checkpoint.step}{score})")
