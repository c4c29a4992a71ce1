"""The options of ``Translator``, ``Scorer`` and ``Trainer`` as keywords with types, for editors and checkers.

Made from the declarations of the options by ``python -m tests.helpers.keywords``; do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

Path: TypeAlias = str | os.PathLike[str]
Paths: TypeAlias = Path | Sequence[Path]
Word: TypeAlias = str | float | os.PathLike[str]
"""What becomes a text as on the command line."""
Words: TypeAlias = Word | Sequence[Word]
Whole: TypeAlias = int | Sequence[int]
Real: TypeAlias = float | Sequence[float]
Maps: TypeAlias = Mapping[str, object] | Sequence[Mapping[str, object]]
Named: TypeAlias = Words | Mapping[str, object]
"""``NAME=VALUE``, or a map."""


class SharedKeywords(TypedDict, total=False):
    """Options that all three take."""

    ignore_model_config: bool
    type: Word
    dim_vocabs: Whole
    dim_emb: int
    factors_dim_emb: int
    lemma_dependency: Word
    lemma_dim_emb: int
    dim_rnn: int
    enc_cell_depth: int
    enc_depth: int
    dec_cell_base_depth: int
    dec_cell_high_depth: int
    dec_depth: int
    skip: bool
    layer_normalization: bool
    right_left: bool
    input_types: Words
    input_reorder: Whole
    input_join_fields: bool
    best_deep: bool
    tied_embeddings: bool
    tied_embeddings_src: bool
    tied_embeddings_all: bool
    output_omit_bias: bool
    transformer_heads: int
    transformer_no_projection: bool
    transformer_rnn_projection: bool
    transformer_pool: bool
    transformer_dim_ffn: int
    transformer_decoder_dim_ffn: int
    transformer_ffn_depth: int
    transformer_decoder_ffn_depth: int
    transformer_dim_aan: int
    transformer_aan_depth: int
    transformer_aan_nogate: bool
    transformer_tied_layers: Whole
    transformer_guided_alignment_layer: Word
    transformer_preprocess: Word
    transformer_postprocess_emb: Word
    transformer_postprocess: Word
    transformer_postprocess_top: Word
    transformer_train_position_embeddings: bool
    transformer_depth_scaling: bool
    transformer_alibi_shift: bool
    separator_symbol: Word
    transformer_disable_position_embeddings: bool
    transformer_alibi_trainable: bool
    alibi: bool
    transformer_no_bias: bool
    transformer_no_affine: bool
    bert_mask_symbol: Word
    bert_sep_symbol: Word
    bert_class_symbol: Word
    bert_masking_fraction: float
    bert_train_type_embeddings: bool
    bert_type_vocab_size: int
    comet_final_sigmoid: bool
    comet_stop_grad: bool
    comet_mix: bool
    comet_mix_norm: bool
    comet_pool: Word
    comet_mix_transformation: Word
    comet_dropout: float
    comet_mixup: float
    comet_mixup_reg: bool
    comet_augment_bad: float
    comet_pooler_ffn: Whole
    comet_prepend_zero: bool
    comet_use_separator: bool
    char_stride: int
    char_highway: int
    char_conv_filters_num: Whole
    char_conv_filters_widths: Whole
    ulr: bool
    ulr_query_vectors: Word
    ulr_keys_vectors: Word
    ulr_trainable_transformation: bool
    ulr_dim_emb: int
    ulr_dropout: float
    ulr_softmax_temperature: float
    n_best: bool
    word_scores: bool
    max_length: int
    max_length_crop: bool
    tsv: bool
    tsv_fields: int
    devices: Words
    cpu_threads: int
    compilation_cache: Word
    mini_batch: int
    mini_batch_words: int
    maxi_batch: int
    maxi_batch_sort: Literal["none", "src", "trg"]
    fp16: bool
    precision: Words


class InferenceKeywords(SharedKeywords, total=False):
    """Options that ``Translator`` and ``Scorer`` take."""

    factors_combine: Word
    enc_type: Word
    enc_cell: Word
    dec_cell: Word
    transformer_ffn_activation: Word
    transformer_aan_activation: Word
    transformer_decoder_autoreg: Word
    transformer_attention_mask: Word
    pieces: Paths
    alignment: Word
    optimize: bool
    gemm_type: Literal[
        "float32", "intgemm8", "intgemm8ssse3", "intgemm8avx2", "intgemm8avx512", "intgemm8avx512vnni"
    ]
    quantize_range: float


class DecodeKeywords(InferenceKeywords, total=False):
    """The options of ``Translator``, as of ``mgraph decode``."""

    seed: int
    beam_size: int
    normalize: float
    max_length_factor: float
    word_penalty: float
    allow_unk: bool
    allow_special: bool
    force_decode: bool
    no_spm_decode: bool
    no_spm_encode: bool
    skip_cost: bool
    shortlist: Words
    weights: Real
    output_sampling: Words
    output_approx_knn: Words
    mbr_samples: int
    encryption_key_path: Word
    marian_exact: bool
    cpu_devices: int


class ScoreKeywords(InferenceKeywords, total=False):
    """The options of ``Scorer``, as of ``mgraph score``."""

    n_best_feature: Word
    normalize: bool


class TrainKeywords(SharedKeywords, total=False):
    """The options of ``Trainer``, as of ``mgraph train``."""

    workspace: int
    quiet_translation: bool
    seed: int
    check_nan: bool
    relative_paths: bool
    sigterm: Literal["save-and-exit", "exit-immediately"]
    model: Path
    pretrained_model: Path
    factors_combine: Literal["sum"]
    enc_type: Literal["bidirectional", "bi-unidirectional", "alternating"]
    enc_cell: Literal["gru", "gru-nematus", "lstm", "mlstm", "mgru", "tanh", "relu", "sru", "ssru"]
    dec_cell: Literal["gru", "gru-nematus", "lstm", "mlstm", "mgru", "tanh", "relu", "sru", "ssru"]
    transformer_ffn_activation: Literal[
        "swish", "relu", "gelu", "sigmoid", "tanh", "leakyrelu", "prelu", "linear", ""
    ]
    transformer_aan_activation: Literal[
        "swish", "relu", "gelu", "sigmoid", "tanh", "leakyrelu", "prelu", "linear", ""
    ]
    transformer_decoder_autoreg: Literal["self-attention", "average-attention", "rnn"]
    transformer_attention_mask: Literal["default"]
    dropout_rnn: float
    dropout_src: float
    dropout_trg: float
    transformer_dropout: float
    transformer_dropout_attention: float
    transformer_dropout_ffn: float
    cost_type: Literal["ce-sum", "ce-mean", "ce-mean-words", "cross-entropy", "perplexity"]
    multi_loss_type: Literal["sum", "scaled", "mean"]
    unlikelihood_loss: bool
    overwrite: bool
    overwrite_checkpoint: bool
    no_reload: bool
    no_optimizer_reload: bool
    train_sets: Paths
    vocabs: Paths
    sentencepiece_alphas: Real
    sentencepiece_options: Word
    sentencepiece_max_lines: int
    no_spm_encode: bool
    after_epochs: int
    after_batches: int
    after: Word
    disp_freq: Word
    disp_first: int
    disp_label_counts: bool
    save_freq: Word
    logical_epoch: Words
    shuffle: Literal["data", "batches", "none"]
    no_shuffle: bool
    no_restore_corpus: bool
    tempdir: Word
    sqlite: Path
    sqlite_drop: bool
    no_nccl: bool
    sharding: Word
    sync_freq: Word
    mini_batch_fit: bool
    mini_batch_fit_step: int
    gradient_checkpointing: bool
    shuffle_in_ram: bool
    data_threads: int
    all_caps_every: int
    english_title_case_every: int
    mini_batch_words_ref: int
    mini_batch_warmup: Word
    mini_batch_track_lr: bool
    mini_batch_round_up: bool
    optimizer: Word
    optimizer_params: Real
    optimizer_delay: float
    sync_sgd: bool
    learn_rate: float
    lr_report: bool
    lr_decay: float
    lr_decay_strategy: Literal["epoch", "batches", "stalled", "epoch+batches", "epoch+stalled"]
    lr_decay_start: Whole
    lr_decay_freq: int
    lr_decay_reset_optimizer: bool
    lr_decay_repeat_warmup: bool
    lr_decay_inv_sqrt: Words
    lr_warmup: Word
    lr_warmup_start_rate: float
    lr_warmup_cycle: bool
    lr_warmup_at_reload: bool
    label_smoothing: float
    factor_weight: float
    clip_norm: float
    exponential_smoothing: float
    exponential_smoothing_replace_freq: Word
    guided_alignment: Word
    guided_alignment_cost: Literal["ce", "mse", "mult"]
    guided_alignment_weight: float
    data_weighting: Path
    data_weighting_type: Literal["sentence", "word"]
    embedding_vectors: Paths
    embedding_normalization: bool
    embedding_fix_src: bool
    embedding_fix_trg: bool
    cost_scaling: Words
    throw_on_divergence: Words
    custom_fallbacks: Maps
    fp16_fallback_to_fp32: bool
    gradient_norm_average_window: int
    dynamic_gradient_scaling: Words
    check_gradient_nan: bool
    normalize_gradient: bool
    normalize_gradient_by_ratio: bool
    train_embedder_rank: Words
    quantize_bits: int
    quantize_optimization_steps: int
    quantize_log_based: bool
    quantize_biases: bool
    task: Words
    valid_sets: Paths
    valid_freq: Word
    valid_metrics: Words
    valid_reset_stalled: bool
    valid_reset_all: bool
    early_stopping: int
    early_stopping_epsilon: Real
    early_stopping_on: Literal["first", "all", "any"]
    beam_size: int
    normalize: float
    max_length_factor: float
    word_penalty: float
    allow_unk: bool
    valid_mini_batch: int
    valid_max_length: int
    valid_script_path: Path
    valid_script_args: Words
    valid_translation_output: Path
    keep_best: bool
    valid_log: Path
    quiet_validation: bool
    marian_exact: bool
    optax_params: Named
    lr_schedule: Word
    lr_schedule_params: Named
    log_json: Path
    tensorboard: Path
    progress: bool
    cpu_devices: int
    shard_state: bool
    tensor_parallel: int
    coordinator: Word
    num_processes: int
    process_id: int


class OverrideKeywords(DecodeKeywords, total=False):
    """What overrides the configuration of a directory or a file."""

    models: Paths
    vocabs: Paths


class ScoreOverrideKeywords(ScoreKeywords, total=False):
    """What overrides the files of a directory."""

    model: Path
    vocabs: Paths
