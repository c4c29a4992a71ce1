import sys

from pymarian import Embedder

model, vocab, text, output = sys.argv[1:]
embedder = Embedder(f"-m {model} -v {vocab} -t {text} -o {output} --cpu-threads 1 --workspace 200 --quiet")
print(embedder.embed())
with open(output) as lines:
    for line in lines:
        print(*[round(float(number), 3) for number in line.split()[:3]])
