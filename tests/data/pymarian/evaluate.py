import sys

import yaml
from pymarian import Evaluator

model, vocab, text = sys.argv[1:]
evaluator = Evaluator(
    f"-m {model} -v {vocab} {vocab} --like comet-qe --max-length 64",
    mini_batch=1,
    cpu_threads=1,
    workspace=200,
    quiet=True,
)
print(evaluator.model_type, yaml.safe_load(evaluator.get_model_config())["comet-pooler-ffn"])
with open(text) as lines:
    for score in evaluator.evaluate(lines):
        print(f"{score:.5f}")
evaluator = Evaluator.new(
    model, vocab, like="comet-qe", mini_batch=1, cpu_threads=1, max_length=64, workspace=200, quiet=""
)
print([round(score, 5) for score in evaluator.evaluate(["three\tdrei", "nine\tneun"], average="append")])
