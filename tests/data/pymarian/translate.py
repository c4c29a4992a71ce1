import sys

from pymarian import Translator

model, vocab = sys.argv[1:]
translator = Translator(
    f"-m {model} -v {vocab} {vocab} --beam-size 2", normalize=0.6, quiet=True, workspace=200, cpu_threads=1
)
print(translator.translate(["three", "", "forty-two"]))
print(repr(translator.translate("three")))
print(repr(translator.translate("three\nforty-two")))
