"""Bytes of what a training process holds, counted tensor by tensor.

Activations are the tensors that autograd keeps for the backward pass of the layers in `transformers` with the attention
of `torch.nn.functional.scaled_dot_product_attention`; a test counts them on real models. **B** rows of **L** tokens,
**N** tokens with logits, **V** vocabulary. Not here: what libraries and the CUDA context take for themselves.
"""

from autoclave.planning.accounting.shape import ModelShape

GIB, MIB = 1 << 30, 1 << 20
FLOAT32, FLOAT64 = 4, 8
ADAM_MOMENTS = 2
"""Running means of gradient and squared gradient, in the number format of the weights."""

LOGIT_COPIES = 2
"""float32 arrays (N, V) that stand beside the logits at the peak: log-probs, and scaled logits or probabilities. In the
backward pass as many stand beside the gradient of the logits."""


def activation_bytes(shape: ModelShape, rows: int, length: int, width: int, *, recomputes: bool = False) -> int:
    """Bytes that the forward pass of an update keeps of `rows` x `length` tokens (padding included), logits left out.

    Args:
        rows: B, of which at least one is padded, so that attention takes a mask.
        width: bytes of a number of weights and activations.
        recomputes: activation checkpointing: the input of each layer is kept, and one layer at a time is whole.
    """
    tokens = rows * length
    layer = _layer_bytes(shape, length, width)
    final_norm = _norm_bytes(shape, shape.hidden_size, width)
    if recomputes:
        return tokens * (shape.layers * shape.hidden_size * width + layer + final_norm)
    return tokens * (shape.layers * layer + final_norm)


def _layer_bytes(shape: ModelShape, length: int, width: int) -> int:
    """Per token."""
    norms = 2 * _norm_bytes(shape, shape.hidden_size, width)
    # Queries, keys and values as attention takes them (shared heads repeated, because there is a mask), its output,
    # the logarithms of its denominators, and the mask, which each layer makes into numbers of its own.
    attention = 4 * shape.query_width * width + shape.heads * FLOAT32 + length * width
    if shape.has_query_key_norm:
        attention += (FLOAT32 + width) * (shape.query_width + shape.key_value_width)
    feed_forward = (4 if shape.is_gated else 2) * shape.intermediate_size * width
    return norms + attention + feed_forward


def _norm_bytes(shape: ModelShape, size: int, width: int) -> int:
    """Per token: RMSNorm keeps input (float32), normalised input and output; LayerNorm input and output."""
    return size * (FLOAT32 + 2 * width) if shape.norm_parameters == 1 else size * 2 * width


def logits_bytes(shape: ModelShape, num_tokens: int, width: int, *, chunk: int | None = None) -> int:
    """Bytes that logits and the arrays made from them take at the peak of log-probs and entropies, or of their
    gradient.

    Args:
        num_tokens: N of a micro-batch.
        width: bytes of a logit as the model gives it.
        chunk: most tokens whose logits exist at a time; None for all.
    """
    at_once = num_tokens if chunk is None else min(num_tokens, chunk)
    return at_once * shape.vocabulary * (width + LOGIT_COPIES * FLOAT32)


def logits_backward_bytes(shape: ModelShape, num_tokens: int, width: int, *, chunk: int) -> int:
    """Bytes that the backward pass of logits takes: their gradient, and that of the output embedding.

    The latter is made for each chunk, beside the sum over those before it and the new sum.
    """
    gradients = 1 if num_tokens <= chunk else 3
    return (min(num_tokens, chunk) * shape.vocabulary + gradients * shape.embedding) * width


def forward_bytes(shape: ModelShape, rows: int, length: int, width: int) -> int:
    """Bytes that a forward pass without gradient holds at a time: the widest moment of one layer, and the mask."""
    widest = 3 * shape.intermediate_size if shape.is_gated else 2 * shape.intermediate_size
    return rows * length * ((widest + 3 * shape.hidden_size) * width + length * (1 + width))


def layer_output_bytes(shape: ModelShape, tokens: int, width: int, parts: int) -> int:
    """The widest moment of a layer of an engine that is split over `parts` devices and needs no mask."""
    widest = (3 if shape.is_gated else 2) * shape.intermediate_size // parts
    return tokens * (widest + 3 * shape.hidden_size) * width


def key_value_bytes(shape: ModelShape, rows: int, length: int, width: int) -> int:
    """Keys and values of `rows` sequences with room for `length` tokens each, in all layers."""
    return rows * length * token_key_value_bytes(shape.layers, shape.key_value_width, width)


def token_key_value_bytes(layers: int, key_value_width: int, width: int) -> int:
    """Keys and values of a token, of `key_value_width` numbers each in each layer."""
    return 2 * layers * key_value_width * width


def draw_bytes(shape: ModelShape, rows: int, width: int) -> int:
    """Bytes that drawing one token for each of `rows` takes: logits, log-probs and two float64 arrays, (R, V) each."""
    return rows * shape.vocabulary * (width + FLOAT32 + 2 * FLOAT64)


def decoding_bytes(shape: ModelShape, rows: int, length: int, width: int) -> int:
    """Bytes that the layers take to decode a token for each of `rows`.

    For each place a random number and an entry of the mask; where heads share keys and values, those of one layer
    repeated for every head.
    """
    is_shared = shape.key_value_heads < shape.heads
    repeated = 2 * shape.query_width * width if is_shared else 0
    return rows * length * (repeated + 2 * FLOAT64)


def adam_bytes(parameters: int, width: int) -> int:
    """The optimizer's state for so many weights that learn."""
    return ADAM_MOMENTS * parameters * width


def gathered_bytes(shape: ModelShape, width: int, *, keeps_layers: bool) -> int:
    """Weights that FSDP2 has whole beside the parts at rest, while it computes.

    Those outside of the layers, and of the layers the one that computes and the one that is fetched ahead, or all.
    """
    layers = shape.layers if keeps_layers else min(2, shape.layers)
    return (shape.outer_parameters + layers * shape.layer_parameters) * width


def reduced_bytes(shape: ModelShape, width: int) -> int:
    """Whole gradients that FSDP2 has in a backward pass before they are summed over ranks, which is done in float32."""
    units = shape.outer_parameters, shape.layer_parameters
    return sum(units) * width + max(units) * FLOAT32


def size_text(number: int) -> str:
    if not number:
        return "-"
    return f"{number / GIB:.2f} GiB" if number >= GIB / 10 else f"{number / MIB:.2f} MiB"
