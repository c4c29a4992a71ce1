"""The options of ``mgraph train`` and of ``Trainer``."""

from __future__ import annotations

from nmt.settings.aliases import OF_TRAINING
from nmt.settings.checks import DECAY_STRATEGIES, checked_training, with_standard_input
from nmt.settings.model import CHARACTERS, MODEL_OPTIONS, ULR
from nmt.settings.option import Command, Option, ignored, later
from nmt.settings.shared import COMPILATION_CACHE, general
from nmt.settings.validating import VALIDATION

ONE_PROCESS = "JAX exchanges gradients between devices as it sees fit"

MODEL = (
    Option("model", str, "model.npz", "the model to make or to go on with: .npz or .bin", short="m"),
    Option("pretrained-model", str, "", "begin with the parameters of this model"),
    Option("ignore-model-config", help="take the options given, not those of the model file"),
    *MODEL_OPTIONS,
    *CHARACTERS,
    Option("dropout-rnn", float, 0.0, "probability that a recurrent layer's features are dropped", least=0),
    Option("dropout-src", float, 0.0, "probability that a source word is dropped", least=0),
    Option("dropout-trg", float, 0.0, "probability that a target word is dropped", least=0),
    Option(
        "transformer-dropout",
        float,
        0.0,
        "probability that a feature of a layer's output is dropped",
        least=0,
    ),
    Option(
        "transformer-dropout-attention",
        float,
        0.0,
        "probability that an attention weight is dropped",
        least=0,
    ),
    Option(
        "transformer-dropout-ffn", float, 0.0, "probability that a feed-forward feature is dropped", least=0
    ),
)

LOSS = (
    Option(
        "cost-type",
        str,
        "ce-sum",
        "the cost shown",
        choices=("ce-sum", "ce-mean", "ce-mean-words", "cross-entropy", "perplexity"),
    ),
    Option("multi-loss-type", str, "sum", "how several costs are added", choices=("sum", "scaled", "mean")),
    Option("unlikelihood-loss", help="word weights say which words to make unlikely"),
)

FILES = (
    Option("overwrite", help="keep the last model only, none of those before"),
    Option("overwrite-checkpoint", bool, True, "keep what is needed to go on with the last model only"),
    Option("no-reload", help="begin anew, though there is a model"),
    Option("no-optimizer-reload", help="go on with the model, but not with its optimizer's averages"),
    Option("train-sets", str, (), "files: each source, then the target", short="t", many=True),
    Option(
        "vocabs",
        str,
        (),
        "vocabularies of each source and the target; missing ones are made",
        short="v",
        many=True,
    ),
    Option(
        "sentencepiece-alphas", float, (), "sample pieces, for each vocabulary with this smoothing", many=True
    ),
    Option("sentencepiece-options", str, "", "options for SentencePiece's trainer"),
    Option("sentencepiece-max-lines", int, 2000000, "lines that SentencePiece learns from; 0: all", least=0),
    Option("no-spm-encode", help="the text is split into pieces of SentencePiece already"),
)

PROGRESS = (
    Option("after-epochs", int, 0, "stop after N epochs; 0: never", short="e", least=0),
    Option("after-batches", int, 0, "stop after N updates; 0: never", least=0),
    Option("after", str, "0e", "stop after so much: 100Ku, 10e, 10Gt, or several with commas", short="a"),
    Option("disp-freq", str, "1000u", "show the cost every N updates (u), target words (t) or epochs (e)"),
    Option("disp-first", int, 0, "show the cost of each of the first N updates", least=0),
    Option("disp-label-counts", bool, True, "show the cost with the number of words"),
    Option("save-freq", str, "10000u", "save every N updates (u), target words (t) or epochs (e)"),
    Option(
        "logical-epoch", str, ("1e", "0"), "what to count as an epoch, and the decimals to show", many=True
    ),
)

DATA = (
    Option(
        "max-length", int, 50, "most words of a sentence, </s> counted; longer ones are left out", least=1
    ),
    Option("max-length-crop", help="cut longer sentences to --max-length instead"),
    Option("tsv", help="the training text is one file of fields separated by tabs"),
    Option("tsv-fields", int, 0, "number of fields; 0: as many as the model needs", least=0),
    Option(
        "shuffle",
        str,
        "data",
        "what is shuffled: sentences and batches, only batches, or nothing",
        choices=("data", "batches", "none"),
    ),
    Option("no-shuffle", help="the same as --shuffle none"),
    Option("no-restore-corpus", help="when training goes on: begin an epoch"),
    Option("tempdir", str, "/tmp", "folder for temporary files", short="T"),
    ignored("sqlite", str, "", implicit="temporary", help="shuffling needs no database"),
    ignored("sqlite-drop", help="shuffling needs no database"),
)

DEVICE = (
    Option("devices", str, ("0",), "numbers of the GPUs to use, or all", short="d", many=True),
    ignored("no-nccl", help=ONE_PROCESS),
    ignored("sharding", str, "global", help=ONE_PROCESS),
    ignored("sync-freq", str, "200u", help=ONE_PROCESS),
    Option("cpu-threads", int, 0, "use the CPU, N threads; 0: GPUs if any", implicit="1", least=0),
)

BATCHES = (
    Option("mini-batch", int, 64, "sentences in a batch", least=1),
    Option("mini-batch-words", int, 0, "close a batch at more words than this; 0: count sentences", least=0),
    Option("mini-batch-fit", help="as many sentences as fit into --workspace"),
    Option(
        "mini-batch-fit-step", int, 10, "measure what --mini-batch-fit needs at every Nth length", least=1
    ),
    Option("gradient-checkpointing", help="less memory, more time"),
    Option("maxi-batch", int, 100, "batches to read ahead and sort by length", least=1),
    Option(
        "maxi-batch-sort",
        str,
        "trg",
        "what the sentences read ahead are sorted by",
        choices=("none", "src", "trg"),
    ),
    Option("shuffle-in-ram", help="shuffle in memory, without temporary files"),
    Option(
        "data-threads",
        int,
        8,
        "with 1, lines left out take no room among those read ahead; there is one thread always",
        least=1,
    ),
    Option("all-caps-every", int, 0, "write every Nth line in capitals; 0: none", least=0),
    Option("english-title-case-every", int, 0, "write every Nth line as a title; 0: none", least=0),
    Option(
        "mini-batch-words-ref", int, 0, "the options of training are meant for batches of N words", least=0
    ),
    Option("mini-batch-warmup", str, "0", "let batches grow until so many updates (u) or words (t)"),
    later("mini-batch-track-lr"),
    Option("mini-batch-round-up", bool, True, "batches that grow have sizes of powers of two"),
)

OPTIMIZER = (
    Option("optimizer", str, "adam", "how updates are made", short="o", choices=("sgd", "adagrad", "adam")),
    Option(
        "optimizer-params",
        float,
        (),
        "numbers of the optimizer; of adam beta1, beta2, epsilon, decay",
        many=True,
    ),
    Option("optimizer-delay", float, 1.0, "batches for an update, or the part of one", least=0),
    Option("sync-sgd", help="updates wait for all devices; they always do"),
    Option("learn-rate", float, 1e-4, "the learning rate", short="l", least=0),
    Option("lr-report", help="show the learning rate"),
    Option("lr-decay", float, 0.0, "factor of the learning rate when it decays; 0: never", least=0),
    Option(
        "lr-decay-strategy",
        str,
        "epoch+stalled",
        "when the learning rate decays",
        choices=tuple(DECAY_STRATEGIES),
    ),
    Option(
        "lr-decay-start",
        int,
        (10, 1),
        "the first epoch, update or stalled validation for it to decay",
        many=True,
    ),
    Option("lr-decay-freq", int, 50000, "updates between two decays of the learning rate", least=1),
    Option("lr-decay-reset-optimizer", help="the optimizer's averages begin anew with each decay"),
    Option("lr-decay-repeat-warmup", help="the warm-up is repeated with each decay"),
    Option(
        "lr-decay-inv-sqrt",
        str,
        ("0",),
        "from N updates (u), words (t) or epochs (e) on, divide the rate by the root of their number",
        many=True,
    ),
    Option(
        "lr-warmup",
        str,
        "0",
        "warm-up: let the learning rate grow until N updates (u), words (t) or epochs (e)",
    ),
    Option("lr-warmup-start-rate", float, 0.0, "the learning rate at which the warm-up begins"),
    Option("lr-warmup-cycle", help="repeat the warm-up again and again"),
    Option("lr-warmup-at-reload", help="repeat the warm-up when training goes on"),
    Option("label-smoothing", float, 0.0, "share of probability for all words", least=0),
    ignored("factor-weight", float, 1.0, help="factored vocabularies are not supported yet"),
    Option("clip-norm", float, 1.0, "greatest norm of the gradient; 0: any", least=0),
    Option(
        "exponential-smoothing",
        float,
        0.0,
        "average parameters with this weight of the new ones; 0: do not",
        implicit="1e-4",
        least=0,
    ),
    Option(
        "exponential-smoothing-replace-freq",
        str,
        "0",
        "go on from the average every N updates (u), words (t) or epochs (e)",
    ),
)

GUIDANCE = (
    Option("guided-alignment", str, "none", "file of word alignments to learn, or the field of --tsv"),
    Option("guided-alignment-cost", str, "ce", "how alignments are compared", choices=("ce", "mse", "mult")),
    Option("guided-alignment-weight", float, 0.1, "weight of the cost of alignments"),
    Option("data-weighting", str, "", "file of weights, or the field of --tsv"),
    Option("data-weighting-type", str, "sentence", "what has a weight", choices=("sentence", "word")),
    Option("embedding-vectors", str, (), "word2vec files: each source, then the target", many=True),
    Option("embedding-normalization", help="scale the vectors to between -1 and 1"),
    Option("embedding-fix-src", help="do not train the embeddings of sources"),
    Option("embedding-fix-trg", help="do not train the embeddings of the target"),
)

PRECISION = (
    Option("fp16", help="compute with 16 bits, scale the cost"),
    Option("precision", str, ("float32", "float32"), "element types of computing and of updating", many=True),
    Option(
        "cost-scaling",
        str,
        (),
        "scale the cost: factor, updates until it grows, by what, least factor",
        many=True,
        implicit="8.f 10000 1.f 8.f",
    ),
    Option(
        "throw-on-divergence",
        str,
        (),
        "stop if the last N2 costs exceed the last N1 by X deviations: N1, N2, X",
        many=True,
        implicit="1000 10 5.0f",
    ),
    Option(
        "custom-fallbacks",
        dict,
        (),
        "options to go on with after divergence, {name: value, ...}, one set after the other",
        many=True,
    ),
    Option("fp16-fallback-to-fp32", help="go on with 32 bits after divergence"),
    Option("gradient-norm-average-window", int, 100, "updates over which the norm is averaged", least=1),
    Option(
        "dynamic-gradient-scaling",
        str,
        (),
        "scale down gradients whose norm is X deviations above the average: X, log",
        many=True,
        implicit="2.f log",
    ),
    Option("check-gradient-nan", help="skip updates whose gradient is not finite"),
    Option("normalize-gradient", help="divide the gradient by the number of words"),
    Option("normalize-gradient-by-ratio", help="divide the gradient by words / average words"),
    later("train-embedder-rank", str, (), many=True, implicit="0.3f 0.0f"),
    Option("quantize-bits", int, 0, "round parameters to this many bits; 0 turns it off", least=0),
    Option(
        "quantize-optimization-steps", int, 0, "steps towards the best scale of rounded parameters", least=0
    ),
    Option("quantize-log-based", help="round parameters to powers of two"),
    Option("quantize-biases", help="round biases too"),
)

TASK = Option(
    "task",
    str,
    (),
    "the options of a kind of model and of its training",
    many=True,
    choices=tuple(str(alias.value) for alias in OF_TRAINING if alias.option == "task"),
)

OURS = (
    Option("marian-exact", help="train as Marian where it departs from the right gradients", dumped=False),
    Option("log-json", str, "", "write what is logged to this file, a JSON object a line", dumped=False),
    Option("tensorboard", str, "", "folder for events that TensorBoard shows", dumped=False),
    Option("progress", help="show a progress bar", dumped=False),
    Option("cpu-devices", int, 0, "divide the CPU into N devices; 0: one", least=0, dumped=False),
    COMPILATION_CACHE,
    Option("shard-state", help="divide parameters and averages among the devices", dumped=False),
    Option("coordinator", str, "", "HOST:PORT of the first of several processes", dumped=False),
    Option("num-processes", int, 1, "how many there are", least=1, dumped=False),
    Option("process-id", int, 0, "which of them this is, from 0", least=0, dumped=False),
)

TRAIN = Command(
    "train",
    "train a model on sentences and their translations",
    {
        "General options": (
            *general(
                Option("workspace", int, 2048, "megabytes that --mini-batch-fit may fill", short="w"),
                Option("quiet-translation", help="do not log each translation"),
                Option("seed", int, 0, "of all that is random; 0: another one in each run", least=0),
                later("check-nan"),
                Option("relative-paths", help="write paths into MODEL.decoder.yml relative to it"),
            ),
            Option(
                "sigterm",
                str,
                "save-and-exit",
                "what to do at SIGTERM",
                choices=("save-and-exit", "exit-immediately"),
            ),
        ),
        "Model options": MODEL,
        "Training options": (
            *LOSS,
            *FILES,
            *PROGRESS,
            *DATA,
            *DEVICE,
            *BATCHES,
            *OPTIMIZER,
            *GUIDANCE,
            *PRECISION,
            *ULR,
            TASK,
        ),
        "Validation set options": VALIDATION,
        "Options that Marian does not have": OURS,
    },
    aliases=OF_TRAINING,
    complete=with_standard_input,
    check=checked_training,
    goes_on=True,
)
