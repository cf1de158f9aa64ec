"""Check that an engine computes with the weights that the trainer published, by digests of its own memory."""

from collections.abc import Collection, Mapping

from torch import Tensor

from autoclave.core import FaultError
from autoclave.models import Digest, digests
from autoclave.rollout import AdapterEngine, Engine, InspectableEngine


def verify_weights(
    engine: Engine, weights: Mapping[str, Tensor], arrived: Mapping[str, Tensor], published: Mapping[str, Digest]
) -> int:
    """Compare what `engine` holds with `weights`, which it was handed, and what arrived with what was published.

    Args:
        engine: has taken `weights` over.
        weights: by name, as the engine was given them.
        arrived: what they were made of: themselves, or frozen weights and the matrices of an adapter.
        published: digests of the trainer's, by the names of `arrived`.

    Returns:
        How many weights the engine cannot report.

    Raises:
        FaultError: some differ; the message names them and the fix.
    """
    held = _held(engine, is_adapter=isinstance(engine, AdapterEngine) and engine.holds_adapter)
    # Equal to the trainer's: proven in one comparison. A weight that an adapter was added to is not what arrived.
    proven = {n for n in weights if n in held and arrived.get(n) is weights[n] and held[n] == published.get(n)}
    came = digests({name: tensor for name, tensor in arrived.items() if name not in proven})
    if wrong := [name for name in published.keys() - proven if came.get(name) != published[name]]:
        raise FaultError(
            f"{_named(wrong, published)} arrived here otherwise than the trainer holds them: a rank did not write its "
            "part, or the memory was written over. Fix: resume the run, so that trainer and samplers start again"
        )
    open_names = [name for name in weights if name in held and name not in proven]
    expected = digests({name: weights[name].to(held[name].dtype) for name in open_names})
    if stale := [name for name in open_names if held[name] != expected[name]]:
        raise FaultError(
            f"{_named(stale, weights)} in the memory of the engine are not what it was handed: it kept older weights, "
            "or a copy of some of them (packed or tied embeddings). Fix: resume the run with new samplers; if it "
            "happens again, use another engine, and report this one"
        )
    return len(weights.keys() - held.keys())


def verify_frozen(engine: Engine, frozen: Mapping[str, Digest]) -> int:
    """Compare the weights that an engine adds adapters to with those of the trainer, by its digests of them.

    Returns:
        How many of them the engine cannot report.

    Raises:
        FaultError: some differ; the message names them and the fix.
    """
    held = _held(engine, is_adapter=False)
    if wrong := [name for name in frozen if name in held and held[name] != frozen[name]]:
        raise FaultError(
            f"{_named(wrong, frozen)} under the adapter differ between sampler and trainer: they were loaded from "
            "different folders. Fix: resume the run with new samplers; publish.content=weights sends all weights"
        )
    return len(frozen.keys() - held.keys())


def _held(engine: Engine, *, is_adapter: bool) -> Mapping[str, Digest]:
    if is_adapter and isinstance(engine, AdapterEngine):
        return engine.adapter_digests()
    return engine.weight_digests() if isinstance(engine, InspectableEngine) else {}


def _named(names: Collection[str], every: Collection[str]) -> str:
    first = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} of {len(every)} weights ({first})"
