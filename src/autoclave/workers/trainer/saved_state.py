"""Weights and optimizer of a model on disk, sharded as they are in memory (torch.distributed.checkpoint).

Every rank writes the parts that it holds, as safetensors files: nothing here is ever unpickled. Each part knows where
in the whole tensor it belongs, so another number of ranks can read it. `manifest.json` is written last: a folder
without it is not whole.

    model.<name>              weights that train; those that do not are as they were at the start of the run
    optimizer.<name>.<key>    what the optimizer keeps of a weight: `step`, `exp_avg`, `exp_avg_sq`
    steps                     (1,) int64, optimizer steps that were taken
"""

import warnings
from collections.abc import Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
import torch.distributed
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.fsdp import FSDPModule

from autoclave.core import CheckpointError, HostError
from autoclave.core.files import write_manifest

FILE_BYTES = 1 << 27
"""Tensors are spread over files of about so much, all ranks together: one is in memory, twice, while it is written."""

STEPS = "steps"

# A model in one process is nothing to be warned of.
warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)


class StateWriter:
    """Writes tensors while training goes on, one folder at a time. On several ranks, all are called alike."""

    def __init__(self) -> None:
        self._group: torch.distributed.ProcessGroup | None = None
        self._folder = Path()
        self._writing: Future[Any] | None = None

    def begin(self, tensors: Mapping[str, Tensor], folder: Path) -> None:
        """Copy `tensors` as they are now, and begin to write the copies to `folder`.

        Raises HostError: what was begun before could not be written.
        """
        self.finish(wait=True)
        self._folder = folder
        with self._translated():
            folder.mkdir(parents=True, exist_ok=True)
            self._writing = cast(
                "Future[Any]",
                async_save(
                    dict(tensors),
                    storage_writer=_Writer(str(folder), _spread(tensors)),
                    process_group=self.process_group(),
                    no_dist=not torch.distributed.is_initialized(),
                ),
            )

    def finish(self, *, wait: bool) -> bool:
        """Return whether all that was begun is written and durable; with `wait`, it is when this returns.

        Raises HostError: the disk is full or fails.
        """
        if self._writing is None:
            return True
        if not wait and not self._writing.done():
            return False
        writing, self._writing = self._writing, None
        with self._translated():
            writing.result()
        return True

    def process_group(self) -> torch.distributed.ProcessGroup | None:
        """Process group for writing and reading: apart from training, which goes on meanwhile."""
        if self._group is None and torch.distributed.is_initialized():
            self._group = cast("torch.distributed.ProcessGroup", torch.distributed.new_group(backend="gloo"))
        return self._group

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (CheckpointException, OSError, RuntimeError) as error:
            cause = _cause(error)
            reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause
            raise HostError(f"{self._folder}: cannot be written ({reason})") from error


class _Writer(HuggingFaceStorageWriter):
    """As its base, with the manifest as the last file."""

    def __init__(self, path: str, files: dict[str, int]) -> None:
        super().__init__(path, fqn_to_index_mapping=files, save_distributed=True)

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:
        """Called on rank 0 when all ranks have written."""
        write_manifest(Path(self.path))


def state_of(module: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> dict[str, Tensor]:
    """All that a checkpoint holds of a model, by name; the tensors are those in use, no copies."""
    tensors = {f"model.{name}": tensor for name, tensor in _trained_weights(module).items()}
    for name, weight in module.named_parameters():
        kept = optimizer.state.get(weight, {})
        tensors |= {f"optimizer.{_plain(name)}.{key}": value for key, value in kept.items()}
    return tensors | {STEPS: torch.tensor([steps])}


def load_state(
    module: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    folder: Path,
    group: torch.distributed.ProcessGroup | None = None,
) -> int:
    """Put what `state_of` gave and `StateWriter` wrote, on however many ranks, into a model of the same shape.

    Without an optimizer, only the weights.

    Returns:
        The optimizer steps that were taken.

    Raises:
        CheckpointError: it is damaged, or of a model of another shape.
    """
    try:
        saved = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
        sizes = {name: cast("Any", tensor).size for name, tensor in saved.items()}
        weights = {f"model.{name}": tensor for name, tensor in _trained_weights(module).items()}
        unknown = sorted(name for name in sizes if name.startswith("model.") and name not in weights)
        if unknown:
            raise CheckpointError(f"{folder}: of another model: this one has no {unknown[0].removeprefix('model.')}")
        kept = _room_for(module, sizes) if optimizer else {}
        steps = torch.zeros(1, dtype=torch.int64)
        moments = {f"optimizer.{name}.{key}": value for name, values in kept.items() for key, value in values.items()}
        load(
            weights | moments | {STEPS: steps},
            storage_reader=HuggingFaceStorageReader(str(folder)),
            process_group=group,
            no_dist=not torch.distributed.is_initialized(),
        )
    except (CheckpointException, SafetensorError, OSError, RuntimeError, KeyError) as error:
        _refuse(folder, error)
    if optimizer:
        _hand_over(optimizer, module, kept)
    return int(steps.item())


def _trained_weights(module: nn.Module) -> dict[str, Tensor]:
    """Weights that train, each under one name, also where two share it; sharded where the model is."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()  # after a forward pass without a backward one, some are whole on every rank
    own = {name for name, _ in module.named_parameters()}
    aliases = {name for name, _ in module.named_parameters(remove_duplicate=False)} - own
    found = get_model_state_dict(module, options=StateDictOptions(ignore_frozen_params=True))
    return {name: cast("Tensor", tensor) for name, tensor in found.items() if name not in aliases}


def _room_for(module: nn.Module, sizes: Mapping[str, torch.Size]) -> dict[str, dict[str, Tensor]]:
    """Empty tensors for what is saved of the optimizer, by weight and key; sharded as the weights are.

    `torch.distributed.checkpoint.state_dict` would make them by a step with gradients of 0, which counts as a step
    where nothing was saved.
    """
    room: dict[str, dict[str, Tensor]] = {}
    for name, weight in module.named_parameters():
        prefix = f"optimizer.{_plain(name)}."
        room[_plain(name)] = {
            saved.removeprefix(prefix): torch.zeros_like(weight, requires_grad=False)
            if size == weight.shape
            else torch.zeros(size)
            for saved, size in sizes.items()
            if saved.startswith(prefix) and "." not in saved.removeprefix(prefix)
        }
    return room


def _hand_over(optimizer: torch.optim.Optimizer, module: nn.Module, kept: Mapping[str, dict[str, Tensor]]) -> None:
    """Make `kept` the state of the optimizer, which puts each tensor where it wants it."""
    numbers = {weight: n for n, weight in enumerate(w for group in optimizer.param_groups for w in group["params"])}
    state = {numbers[w]: kept[_plain(n)] for n, w in module.named_parameters() if w in numbers and kept[_plain(n)]}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _plain(name: str) -> str:
    """The name of a weight without those of the wrappers of its module, which `get_model_state_dict` leaves out."""
    return name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")


def _spread(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """The file that each tensor goes to, counted from 1; `numel` of a sharded tensor is that of all ranks."""
    files: dict[str, int] = {}
    before = 0
    for name, tensor in tensors.items():
        files[name] = 1 + before // FILE_BYTES
        before += tensor.numel() * tensor.element_size()
    return files


def _cause(error: BaseException) -> BaseException:
    """Error of the first rank that failed."""
    return next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error


def _refuse(folder: Path, error: BaseException) -> NoReturn:
    cause = _cause(error)
    if isinstance(cause, CheckpointError):
        raise cause
    reason = " ".join(str(cause).split())[:200]
    raise CheckpointError(f"{folder}: damaged, or of another model ({reason})") from error
