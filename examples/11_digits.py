"""Digits like those of MNIST, drawn here, and a small convolutional network that tells them apart.

Each image is a drawn digit, moved, slanted, thinned out and covered with noise; the graph is rebuilt for
every batch, as in Marian, and compiled once.
"""

import numpy as np

import mgraph
from mgraph import ExpressionGraph, Node, inits

SHAPES = """
.###. ..#.. .###. ####. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# ....# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ..##. .###. #..#. ....# ####. ..#.. .###. .####
##..# ..#.. .#... ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. #.... ....# ...#. #...# #...# .#... #...# ....#
.###. .###. ##### ####. ...#. .###. .###. .#... .###. .###.
"""
SIZE, BATCH, UPDATES = 12, 64, 400
rows = [line.split() for line in SHAPES.split("\n") if line]
digits = np.array([[[c == "#" for c in row[digit]] for row in rows] for digit in range(10)], np.float32)


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of shape (count, 1, SIZE, SIZE) and their digits."""
    random = np.random.default_rng(seed)
    labels = random.integers(10, size=count)
    images = np.zeros((count, SIZE, SIZE), np.float32)
    for image, label in zip(images, labels, strict=True):
        top, left, slant = random.integers(1, 5), random.integers(2, 5), random.integers(-1, 2)
        for y, row in enumerate(digits[label]):
            start = left + slant * (3 - y) // 3
            image[top + y, start : start + 5] = row * random.uniform(0.6, 1.0, 5)
    images += 0.15 * random.standard_normal(images.shape).astype(np.float32)
    return images[:, None], labels


def scores(graph: ExpressionGraph, images: Node) -> Node:
    """The network: (batch, 1, 12, 12) to the scores of ten digits, (batch, 10)."""
    kernels = graph.param("conv_W", (1, 16, 3, 3), inits.normal(0.0, 0.3))
    x = mgraph.convolution(images, kernels, graph.param("conv_b", (1, 16, 1, 1), inits.zeros()), 1, 1)
    x = mgraph.max_pooling(mgraph.relu(x), 2, 2, stride_height=2, stride_width=2)
    x = mgraph.reshape(x, (images.shape.dim(0), -1))
    for i, width in enumerate((64, 10)):
        x = mgraph.relu(x) if i else x
        weights = graph.param(f"W{i}", (x.shape.back(), width))
        x = mgraph.affine(x, weights, graph.param(f"b{i}", (1, width), inits.zeros()))
    return x


graph = ExpressionGraph(seed=3)
optimizer = mgraph.optimizer_from_options({"optimizer": "adam", "learn-rate": 0.005})
images, labels = drawn(BATCH * UPDATES, seed=1)
costs = []
for update in range(UPDATES):
    part = slice(update * BATCH, (update + 1) * BATCH)
    graph.clear()
    batch = graph.constant((BATCH, 1, SIZE, SIZE), inits.from_tensor(images[part]))
    cost = mgraph.mean(mgraph.cross_entropy(scores(graph, batch), graph.indices(labels[part])), (0, 1))
    graph.backprop()
    optimizer.update(graph)
    costs.append(cost.scalar())
print(f"cost: {costs[0]:.2f} at first, {np.mean(costs[-20:]):.3f} after {UPDATES} updates")

# The trained network as a function of images, on digits that it has not seen.
graph.clear()
unseen, answers = drawn(1000, seed=2)
x = graph.input("images", unseen.shape)
best = graph.function(mgraph.argmax(scores(graph, x), -1)[1], [x])
found = np.asarray(best(unseen)).reshape(-1)
right = (found == answers).mean()
print(f"right of 1,000 unseen digits: {100 * right:.1f} %")
assert right > 0.96 and np.mean(costs[-20:]) < 0.1 * costs[0]
