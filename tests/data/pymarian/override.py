import sys

from pymarian import Translator

model, vocab = sys.argv[1:]
translator = Translator(
    f"-m {model} -v {vocab} {vocab} --beam-size 2", normalize=0.6, quiet=True, workspace=200, cpu_threads=1
)
print(translator.translate(["three", "four"], n_best=True))
print(repr(translator.translate("forty-two\tzwei", force_decode=True, tsv=True, tsv_fields=2)))
