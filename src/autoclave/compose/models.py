"""Whether the models of a run can be used, found out before any of them is loaded."""

from __future__ import annotations

from autoclave.config import TrainConfig
from autoclave.models import (
    load_architecture,
    load_tokenizer,
    require_same_architecture,
    require_same_tokens,
    require_targets,
    tiny_architecture,
)
from autoclave.training.checkpoints import Checkpoint
from autoclave.training.run_folder import RunFolder


def require_usable_models(config: TrainConfig, existing: RunFolder | None, checkpoint: Checkpoint | None) -> None:
    """Find out whether the models of a run fit each other and the settings.

    Args:
        config: the settings.
        existing: the folder of a run that is resumed.
        checkpoint: what it goes on from.

    Raises:
        InputError: the policy cannot be used, or the run began with another one.
    """
    path, tiny = config.model.path, config.model.tiny
    architecture = load_architecture(path) if path else tiny_architecture(tiny, tiny.vocabulary)
    if path:
        load_tokenizer(path)
    if config.trainer.lora:
        require_targets(architecture, config.trainer.lora)
    if existing and existing.start.is_dir():
        saved = str(checkpoint.model) if checkpoint else ""
        for other in filter(None, (path, saved)):
            _require_same_model(other, str(existing.start))


def _require_same_model(path: str, start: str) -> None:
    mend = "put the model back that was there, or start another run with --out"
    require_same_architecture(
        load_architecture(path),
        load_architecture(start),
        place=path,
        against=f"that of {start}, which the run began with",
        mend=mend,
    )
    require_same_tokens(load_tokenizer(path), load_tokenizer(start), place=path, mend=mend)
