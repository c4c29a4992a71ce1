"""A language model of characters: a gated recurrent unit over the characters of made-up sentences, trained in
seconds, then asked for its own sentences.

The loop over time is one ``scan`` node, so compiling takes no longer for 60 characters than for 6.
``layers.RNN`` has more cells, directions and depths.
"""

import numpy as np

import mgraph
from mgraph import ExpressionGraph, Node, inits

WHO = "the cat|the dog|a small bird|the old man|my sister|a child".split("|")
DOES = "sees|likes|follows|hears|knows|finds".split("|")
WHAT = "the red ball|a fish|the river|its shadow|the moon|bread".split("|")
LENGTH, BATCH, STATE, UPDATES = 48, 32, 64, 300


def text(sentences: int, seed: int) -> str:
    """Sentences of a small grammar, one after the other."""
    random = np.random.default_rng(seed)
    made = (" ".join(random.choice(part) for part in (WHO, DOES, WHAT)) for _ in range(sentences))
    return ". ".join(made) + ". "


training, unseen = text(4000, seed=1), text(500, seed=2)
alphabet = sorted(set(training))
number = {character: i for i, character in enumerate(alphabet)}


def numbers(characters: str) -> np.ndarray:
    return np.array([number[c] for c in characters], np.uint32)


def step(graph: ExpressionGraph, state: Node, character: Node) -> tuple[Node, Node]:
    """The state after reading characters of shape (batch,), and scores of the next ones."""
    embedded = mgraph.rows(graph.param("E", (len(alphabet), 16)), character)
    inputs = mgraph.dot(embedded, graph.param("W", (16, 3 * STATE)))
    recurrent = mgraph.dot(state, graph.param("U", (STATE, 3 * STATE)))
    state = mgraph.gru_ops(state, inputs, recurrent, graph.param("b", (1, 3 * STATE), inits.zeros()))
    output = graph.param("V", (STATE, len(alphabet)))
    return state, mgraph.affine(state, output, graph.param("c", (1, len(alphabet)), inits.zeros()))


def cost_of(graph: ExpressionGraph, characters: np.ndarray) -> Node:
    """The mean cross entropy of a character given those before it, in a batch (time + 1, batch)."""
    time, batch = len(characters) - 1, characters.shape[1]
    read = graph.constant((time, batch), inits.from_tensor(characters[:-1]), "uint32")
    start = graph.zeros((batch, STATE))
    _, scores = mgraph.scan(lambda state, character: step(graph, state, character), start, read)
    asked = graph.indices(characters[1:].reshape(-1))
    return mgraph.mean(mgraph.cross_entropy(mgraph.reshape(scores, (time * batch, -1)), asked))


def batches(characters: str, count: int, seed: int) -> list[np.ndarray]:
    """Pieces of the text from random places, as columns."""
    ids, random = numbers(characters), np.random.default_rng(seed)
    starts = random.integers(0, len(ids) - LENGTH - 1, (count, BATCH))
    return [np.stack([ids[s : s + LENGTH + 1] for s in row], 1) for row in starts]


graph = ExpressionGraph(seed=1)
optimizer = mgraph.Adam(0.006, clip_norm=1.0)
for batch in batches(training, UPDATES, seed=3):
    graph.clear()
    cost = cost_of(graph, batch)
    graph.backprop()
    optimizer.update(graph)

# Bits for a character of unseen text, compared with what knowing only the last character would take.
bits = []
for batch in batches(unseen, 10, seed=4):
    graph.clear()
    cost = cost_of(graph, batch)
    graph.forward()
    bits.append(cost.scalar() / np.log(2))
pairs = np.ones((len(alphabet), len(alphabet)))
np.add.at(pairs, (numbers(training)[:-1], numbers(training)[1:]), 1)
chances = pairs / pairs.sum(1, keepdims=True)
by_pairs = -np.log2(chances[numbers(unseen)[:-1], numbers(unseen)[1:]]).mean()
print(f"bits for a character: {np.mean(bits):.2f}, by pairs of characters {by_pairs:.2f}")

# Sampling: one step as a function, its state passed on.
graph.clear()
state, character = graph.input("state", (1, STATE)), graph.input("character", (1,), "uint32")
after, scores = step(graph, state, character)
read_one = graph.function([after, mgraph.softmax(scores)], [state, character])
random, written, memory = np.random.default_rng(5), ". ", np.zeros((1, STATE), np.float32)
for c in written:
    memory, chance = read_one(memory, numbers(c))
while len(written) < 300:
    p = np.asarray(chance, np.float64).reshape(-1)
    written += alphabet[random.choice(len(alphabet), p=p / p.sum())]
    memory, chance = read_one(memory, numbers(written[-1]))
words = [word.strip(".") for word in written[2:].split()[:-1]]
known = set(" ".join(WHO + DOES + WHAT).split())
print(written[2:150])
print(f"{sum(word in known for word in words)} of {len(words)} words exist")
assert np.mean(bits) < 0.5 * by_pairs and sum(word in known for word in words) > 0.8 * len(words)
