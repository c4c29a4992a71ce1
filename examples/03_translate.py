"""Translate with a model that Marian trained: the number words that ship with the package."""

from nmt import Scorer, Translator, numbers

folder = numbers.model_dir()
model, vocab = str(folder / "model.npz"), str(folder / "vocab.spm")

translator = Translator(model, [vocab, vocab], beam_size=4, normalize=0.6)
lines = ["seventy-two thousand four hundred eleven", "six", "one hundred one"]
for line, translation in zip(lines, translator.translate(lines), strict=True):
    print(f"{line} -> {translation}")

scorer = Scorer(model, [vocab, vocab])
right, wrong = scorer.score([lines[0]] * 2, ["zweiundsiebzigtausendvierhundertelf", "elf"])
print(f"log-probability of the right translation {right:.3f}, of a wrong one {wrong:.3f}")
assert right > wrong
