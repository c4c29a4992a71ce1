"""Your own training loop: Marian's model and loss as a function, updated by optax, on the number words.

Whatever Marian has no option for goes here: another loss, another optimizer, another order of the data.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mgraph import ExpressionGraph
from nmt import load_vocab, numbers
from nmt.files import create_model
from nmt.models import Source
from nmt.numbers import corpus
from nmt.settings.model_options import ModelOptions
from nmt.training.learning.objective import LossOptions, Target, training_loss

ROWS, LENGTH, UPDATES = 64, 16, 150
vocab = load_vocab(str(numbers.model_dir() / "vocab.spm"))


def padded(lines: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of the words of each line, and which are not padding; both of shape (rows, length)."""
    words = [vocab.encode(line)[:LENGTH] for line in lines]
    ids = np.array([line + [0] * (LENGTH - len(line)) for line in words], np.int32)
    return ids, np.array([[i < len(line) for i in range(LENGTH)] for line in words], np.float32)


# The model and its loss, recorded once; what changes from batch to batch are inputs.
options = ModelOptions(
    type="transformer", dim_emb=32, transformer_heads=4, transformer_dim_ffn=64, enc_depth=1, dec_depth=1,
    tied_embeddings_all=True, dim_vocabs=(len(vocab), len(vocab)),
)  # fmt: skip
model = create_model(options, seed=1)
graph = ExpressionGraph()
inputs = {
    name: graph.input(name, (ROWS, LENGTH), kind)
    for name, kind in (("source", "int32"), ("source mask", "float32"), ("ids", "int32"), ("mask", "float32"))
}
source, source_mask, ids, mask = inputs.values()
loss = training_loss(model, [Source(source, source_mask)], Target(ids, mask), LossOptions(0.1))
function = graph.function(list(loss), inputs)


def mean_cost(params: dict[str, jax.Array], batch: dict[str, np.ndarray]) -> jax.Array:
    """The smoothed cross entropy of a word."""
    cost, labels = function.pure(params, batch)
    return jnp.squeeze(cost / labels)


schedule = optax.warmup_cosine_decay_schedule(0.0, 0.01, 20, UPDATES)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.nadamw(schedule, b2=0.98))


@jax.jit
def update(params: dict, state: optax.OptState, batch: dict) -> tuple:
    """The parameters and the optimizer's state after an update, and the cost before it."""
    cost, gradient = jax.value_and_grad(mean_cost)(params, batch)
    changes, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, changes), state, cost


params = {name: jnp.asarray(value) for name, value in model.params.items()}
state, costs = optimizer.init(params), []
pairs = corpus.training(ROWS * UPDATES)
for start in range(0, len(pairs), ROWS):
    _, english, german = map(list, zip(*pairs[start : start + ROWS], strict=True))
    batch = dict(zip(inputs, (*padded(english), *padded(german)), strict=True))
    params, state, cost = update(params, state, batch)
    costs.append(cost)
costs = np.asarray(costs)
print(f"cost of a word: {costs[0]:.2f} at first, {costs[-10:].mean():.2f} after {UPDATES} updates")
assert costs[-10:].mean() < 0.6 * costs[0]
