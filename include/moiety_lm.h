/* SPDX-License-Identifier: Apache-2.0
 *
 * moiety_lm.h: Mixture-of-Experts language models on top of moiety.h: files, training, generation.
 *
 * Experimental: this part may still change between versions.  Objects here are used by one thread at a time; errors are
 * those of moiety.h.  Model: the Qwen3-MoE architecture, checkpoints in the hub's layout.
 */
#ifndef MOIETY_LM_H
#define MOIETY_LM_H

#include "moiety.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- safetensors ------------------------------------------------------------------------------------------------- */

/* A file of tensors, mapped read-only.  Everything in the header is checked when it is opened: lengths, JSON, dtypes,
 * shapes, offsets inside the file, no overlap, no holes, names in UTF-8 and unique. */
typedef struct moi_st moi_st;

enum { MOI_ST_MAX_RANK = 8 };

typedef struct moi_tensor {
    uint32_t size;
    const char *name; /* valid until the file is closed */
    moi_dtype dtype;
    int32_t rank;
    int64_t shape[MOI_ST_MAX_RANK];
    int64_t elements, bytes;
    const void *data; /* as the file has it: little-endian, and aligned to nothing */
} moi_tensor;

/* Errors: IO (cannot open or map), FORMAT (where and what), NOMEM. */
MOI_API moi_status moi_st_open(moi_st **out, const char *path);
MOI_API void moi_st_close(moi_st *file);
MOI_API int64_t moi_st_count(const moi_st *file);
MOI_API moi_status moi_st_get(const moi_st *file, int64_t index, moi_tensor *out); /* in the order of their data */
MOI_API moi_status moi_st_find(const moi_st *file, const char *name, moi_tensor *out); /* ARG: no such tensor */
/* A value of the file's "__metadata__", or NULL. */
MOI_API const char *moi_st_metadata(const moi_st *file, const char *key);
/* "F8_E4M3" and so on, as the format spells it; NULL for types it does not have. */
MOI_API const char *moi_st_dtype_name(moi_dtype dtype);
/* Gives back the pages of a tensor that was read, so that a pass over a large file stays small in memory.  Reads only data
 * and bytes, so a part of a tensor can be given back too. */
MOI_API void moi_st_forget(const moi_st *file, const moi_tensor *tensor);

/* Writes a file under a temporary name beside `path` and renames it when everything is on disk.  Declare every tensor,
 * then write their bytes in the same order in pieces of any size.  After an error the writer can only be cancelled.
 * Errors: ARG (a bad or second name, a type the format lacks, a call too late), SHAPE (more or fewer bytes than declared), IO. */
typedef struct moi_st_writer moi_st_writer;
MOI_API moi_status moi_st_writer_create(moi_st_writer **out, const char *path);
MOI_API moi_status moi_st_writer_metadata(moi_st_writer *writer, const char *key, const char *value);
MOI_API moi_status moi_st_writer_declare(moi_st_writer *writer, const char *name, moi_dtype dtype, int32_t rank, const int64_t *shape);
MOI_API moi_status moi_st_writer_write(moi_st_writer *writer, const void *data, int64_t bytes);
/* Checks that every declared byte came, syncs, renames.  The writer is freed whatever happens. */
MOI_API moi_status moi_st_writer_commit(moi_st_writer *writer);
MOI_API void moi_st_writer_cancel(moi_st_writer *writer); /* removes the temporary file; NULL is allowed */

/* ---- converting checkpoints -------------------------------------------------------------------------------------- */

typedef enum moi_file_format {
    MOI_FILE_MXFP8 = 1,     /* NAME (F8_E4M3) and NAME_scale (U8, E8M0, [rows, cols / 32]) */
    MOI_FILE_MXFP4 = 2,     /* NAME_packed (U8, two codes a byte) and NAME_scale */
    MOI_FILE_MXFP6 = 3,     /* NAME_packed (U8, E2M3, four codes in three bytes) and NAME_scale */
    MOI_FILE_FP8_BLOCK = 4  /* NAME (F8_E4M3) and NAME_scale_inv (F32, 128x128 blocks, multiplied) */
} moi_file_format;

typedef bool (*moi_progress_fn)(void *user, const char *tensor, int64_t done_bytes, int64_t total_bytes); /* false stops */

/* What a conversion did; filled in, with what is known, before the first call of `progress` too. */
typedef struct moi_convert_report {
    uint32_t size;
    int64_t tensors, quantized; /* of the input; weights of the output that are quantised (packed experts count one by one) */
    int64_t files, files_kept;  /* kept: complete from an earlier run */
    int64_t bytes_in, bytes_out, bytes_kept; /* of the weight files; kept: of the input of files kept */
} moi_convert_report;
#define MOI_CONVERT_REPORT_INIT { .size = sizeof(moi_convert_report) }

typedef struct moi_convert_options {
    uint32_t size;
    moi_file_format format;
    moi_round round;
    const char *keep; /* comma-separated extra substrings of names to leave as they are, or NULL */
    moi_progress_fn progress;
    void *user;
    moi_convert_report *report; /* or NULL */
} moi_convert_options;
#define MOI_CONVERT_OPTIONS_INIT { .size = sizeof(moi_convert_options), .format = MOI_FILE_MXFP8 }

/* Computes  OUT = IN with every linear weight quantised along its last dimension.  A linear weight is a floating-point tensor
 *           of rank >= 2 whose name ends in "_proj.weight" or is a packed "experts.gate_up_proj" / "experts.down_proj";
 *           router, norms, embeddings, head and everything else are copied unchanged.
 * Memory    bounded: a few MB beside the mapped pages, whatever the size of the file.
 * Errors    IO, FORMAT, SHAPE (a last dimension that is no multiple of 32, for the MX formats), CANCELLED.  OUT appears
 *           complete or not at all. */
MOI_API moi_status moi_checkpoint_quantize(moi_ctx *ctx, const char *in, const char *out, const moi_convert_options *options);

/* The same for a model folder: model.safetensors, or the shards of model.safetensors.index.json, each to a file of its name.
 * Weights   packed experts are taken apart ("experts.E.gate_proj.weight" ...); mxfp8 and mxfp4 follow compressed-tensors (formats
 *           mxfp8-quantized, mxfp4-pack-quantized), fp8-block the convention of quant_method fp8; config.json says so.  mxfp6 is
 *           refused: no convention has it.  Other files of the folder are copied, but for weights and hidden files.
 * Unfinished  OUT has no config.json until all else is complete, so it is no model before.  moiety-quantize.json in it records
 *           settings and input.  Promise P:folder.resume  after a run that ended anyhow, the same call makes the same bytes as
 *           one without a break, keeping files that are complete.  An OUT of other settings or other input is refused.
 * Memory    as above, and the headers of all files.
 * Errors    as above; ARG (OUT is MODEL, lies inside it, or has other files); FORMAT (weights that are quantised already). */
MOI_API moi_status moi_folder_quantize(moi_ctx *ctx, const char *in, const char *out, const moi_convert_options *options);

/* ---- the model --------------------------------------------------------------------------------------------------- */

enum { MOI_LM_MAX_LAYERS = 512 };

/* config.json of Qwen3-MoE. */
typedef struct moi_lm_config {
    uint32_t size;
    int64_t vocab_size, hidden_size, num_hidden_layers;
    int64_t num_attention_heads, num_key_value_heads, head_dim;
    int64_t intermediate_size;     /* of dense layers */
    int64_t moe_intermediate_size; /* of each expert */
    int64_t num_experts, num_experts_per_tok;
    int64_t decoder_sparse_step;   /* layer l has experts if (l + 1) % step == 0 and it is not in mlp_only_layers */
    int64_t max_position_embeddings;
    float rms_norm_eps, rope_theta, initializer_range, router_aux_loss_coef;
    bool norm_topk_prob, tie_word_embeddings;
    uint8_t mlp_only[MOI_LM_MAX_LAYERS]; /* 1: this layer is dense ("mlp_only_layers") */
} moi_lm_config;
#define MOI_LM_CONFIG_INIT { .size = sizeof(moi_lm_config), .vocab_size = 256, .hidden_size = 128, .num_hidden_layers = 4, \
    .num_attention_heads = 4, .num_key_value_heads = 2, .head_dim = 32, .intermediate_size = 256, .moe_intermediate_size = 128, \
    .num_experts = 8, .num_experts_per_tok = 2, .decoder_sparse_step = 1, .max_position_embeddings = 4096, .rms_norm_eps = 1e-6f, \
    .rope_theta = 10000.0f, .initializer_range = 0.05f, .router_aux_loss_coef = 0.001f, .norm_topk_prob = true, .tie_word_embeddings = true }

/* How the model computes.  Linear layers of attention and experts use the recipe; embedding, head, norms, router and the
 * two products inside attention stay out of 8 bits. */
typedef struct moi_lm_options {
    uint32_t size;
    moi_recipe recipe;
    moi_dtype elem_forward, elem_gradient; /* default E4M3 */
    moi_round round;
} moi_lm_options;
#define MOI_LM_OPTIONS_INIT { .size = sizeof(moi_lm_options), .recipe = MOI_RECIPE_BF16, .elem_forward = MOI_E4M3, .elem_gradient = MOI_E4M3 }

typedef struct moi_lm moi_lm;

/* A new model with weights from `seed`: normal with initializer_range, norms 1.  Errors: ARG, SHAPE, NOMEM. */
MOI_API moi_status moi_lm_create(moi_lm **out, moi_ctx *ctx, const moi_lm_config *config, const moi_lm_options *options, uint64_t seed);
/* Reads config.json and model.safetensors (F32, F16 or BF16, per-expert tensor names) of a folder.  Errors: IO, FORMAT. */
MOI_API moi_status moi_lm_load(moi_lm **out, moi_ctx *ctx, const char *folder, const moi_lm_options *options);
/* Opens a folder (config.json; one file of weights or shards with an index) for inference only: weights stay mapped as the files
 * have them, nothing is converted or copied but norms.  Formats come from config.json: F32, F16 or BF16, and what its
 * quantization_config declares.  Per-expert and packed tensor names.  The files must not change while the model is open: what is
 * mapped is not read twice, and a file that shrinks ends the program.
 * options.recipe says what the inputs of linear layers are rounded to: BF16, or F32 (not rounded); they are never quantised.
 * Takes moi_lm_evaluate, moi_lm_forward, moi_session_*, moi_lm_parameters and moi_lm_get_config; training and saving are UNSUPPORTED.
 * Errors: IO, FORMAT (file, tensor, wanted, got), UNSUPPORTED (a recipe of 8 bits, a format or a size that has no path), NOMEM (the
 * files are larger than the memory of this machine; nothing was read then). */
MOI_API moi_status moi_lm_open(moi_lm **out, moi_ctx *ctx, const char *folder, const moi_lm_options *options);
/* Writes config.json and model.safetensors with per-expert tensor names.  dtype F32 or BF16.  Atomic. */
MOI_API moi_status moi_lm_save(const moi_lm *lm, const char *folder, moi_dtype dtype);
MOI_API void moi_lm_free(moi_lm *lm);
MOI_API moi_status moi_lm_get_config(const moi_lm *lm, moi_lm_config *out);
MOI_API int64_t moi_lm_parameters(const moi_lm *lm, bool active_only); /* active: those one token uses */

/* Computes  the mean negative log-likelihood (nats per token) of tokens[i+1] given tokens[0..i], for `batch` rows of seq + 1
 *           tokens, without touching gradients.  logits, if not NULL: [batch * seq, vocab].
 * Errors    ARG (a token outside the vocabulary), SHAPE, NOMEM (the model with the buffers for so many tokens is larger than the
 *           memory of this machine; refused before any of it is touched, as by moi_lm_forward, sessions and trainers). */
MOI_API moi_status moi_lm_evaluate(moi_lm *lm, const int32_t *tokens, int64_t batch, int64_t seq, double *loss, float *logits);

/* Computes  what lies behind `count` tokens, up to the logits: then moi_lm_logits gives those after token first, first + 1, ...,
 *           as many at a time as the caller has room for: [count, vocab].  So memory does not grow with the vocabulary times the
 *           length, and logits nobody asks for cost nothing.  The next moi_lm_forward or moi_lm_evaluate forgets the tokens.
 * Promise   P:lm.pieces.  The logits of moi_lm_evaluate but for the order of sums, in pieces of any size.
 * Errors    ARG (a token outside the vocabulary; moi_lm_logits: no moi_lm_forward before), SHAPE. */
MOI_API moi_status moi_lm_forward(moi_lm *lm, const int32_t *tokens, int64_t count);
MOI_API moi_status moi_lm_logits(moi_lm *lm, int64_t first, int64_t count, float *logits);

/* ---- training data ----------------------------------------------------------------------------------------------- */

/* Text as bytes (token = byte).  A file, or every regular file under a folder in order of path.  Nothing is loaded: windows
 * are read when asked for.  The stream is cut into chunks; one chunk in `validation_every` is kept for validation. */
typedef struct moi_data moi_data;

typedef struct moi_data_options {
    uint32_t size;
    int64_t validation_every; /* default 20 */
    const char *suffix;       /* only files whose names end so, e.g. ".h"; NULL: all */
} moi_data_options;
#define MOI_DATA_OPTIONS_INIT { .size = sizeof(moi_data_options), .validation_every = 20 }

MOI_API moi_status moi_data_open(moi_data **out, const char *path, const moi_data_options *options);
MOI_API void moi_data_close(moi_data *data);
MOI_API int64_t moi_data_bytes(const moi_data *data, bool validation);
/* Training rows [batch, seq + 1] of step `step`: a function of (seed, step) alone, so that a resumed run sees the same. */
MOI_API moi_status moi_data_batch(moi_data *data, uint64_t seed, int64_t step, int64_t batch, int64_t seq, int32_t *tokens);
/* Validation rows: the same for every call with the same index. */
MOI_API moi_status moi_data_validation(moi_data *data, int64_t index, int64_t batch, int64_t seq, int32_t *tokens);

/* ---- training ---------------------------------------------------------------------------------------------------- */

typedef struct moi_train_config {
    uint32_t size;
    int64_t batch, seq;
    int64_t steps, warmup_steps; /* linear warm-up, then cosine from lr to min_lr at `steps` */
    float lr, min_lr, beta1, beta2, eps, weight_decay, clip_norm;
    uint64_t seed;
} moi_train_config;
#define MOI_TRAIN_CONFIG_INIT { .size = sizeof(moi_train_config), .batch = 8, .seq = 128, .steps = 200, .warmup_steps = 20, .lr = 2e-3f, \
    .min_lr = 2e-4f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .clip_norm = 1.0f, .seed = 1 }

typedef struct moi_train_stats {
    uint32_t size;
    int64_t step;    /* steps done so far */
    double loss;     /* cross-entropy of this step's batch, before the update */
    double aux_loss; /* load balancing, summed over layers */
    double grad_norm, lr;
} moi_train_stats;

typedef struct moi_trainer moi_trainer;

/* AdamW (decoupled weight decay, none on norms) with FP32 masters and moments; gradients clipped by their global norm.
 * The trainer uses `lm` and does not own it. */
MOI_API moi_status moi_trainer_create(moi_trainer **out, moi_lm *lm, const moi_train_config *config);
MOI_API void moi_trainer_free(moi_trainer *trainer);
/* One step on tokens [batch, seq + 1].  Gradients that are not finite count as a step and change no weight. */
MOI_API moi_status moi_trainer_step(moi_trainer *trainer, const int32_t *tokens, moi_train_stats *stats);
/* A checkpoint folder: the model (F32) beside optimizer.safetensors (moments) and trainer.json (step, settings).  Atomic: each
 * save is complete or the one before stays; moi_trainer_load continues with the same bits.  options NULL: those of the save. */
MOI_API moi_status moi_trainer_save(const moi_trainer *trainer, const char *folder);
MOI_API moi_status moi_trainer_load(moi_trainer **out, moi_lm **lm, moi_ctx *ctx, const char *folder, const moi_lm_options *options);
MOI_API int64_t moi_trainer_steps_done(const moi_trainer *trainer);
MOI_API moi_status moi_trainer_get_config(const moi_trainer *trainer, moi_train_config *out);

/* ---- tokeniser --------------------------------------------------------------------------------------------------- */

/* Text to token ids and back: the byte-level BPE of Qwen2 and Qwen3 folders (tokenizer.json).  Never changed once open, so
 * any number of threads may use one at the same time (P:tok.threads).  A folder without tokenizer.json whose config.json has
 * vocab_size 256 (what moi_trainer_save writes) gets the tokeniser of bytes: ids are the bytes of the text, there are no other
 * tokens.
 *
 * Invalid UTF-8: each maximal invalid part becomes one U+FFFD, as bytes.decode(errors="replace") does in Python, before
 * anything else.  NUL is a character like others.  Ids are those of the "tokenizers" package 0.23; what is read, what is
 * refused, and what differs is in docs/tokeniser.md. */
typedef struct moi_tokenizer moi_tokenizer;

/* Reads tokenizer.json and, where they exist, config.json, generation_config.json, tokenizer_config.json and
 * chat_template.jinja.  What this library would do differently from the reference is refused, never guessed: models other than
 * BPE, normalizers other than NFC, pre-tokenizers other than Split (Regex) + ByteLevel, dropout, byte_fallback, subword prefixes,
 * duplicate ids, a byte without a token, a merge of tokens that the vocabulary lacks, added tokens with other ids than
 * the reference gives them.  Ids that no token has are allowed.
 * Errors: IO (cannot read), FORMAT (file, field, wanted, got), NOMEM. */
MOI_API moi_status moi_tokenizer_open(moi_tokenizer **out, const char *folder);
MOI_API void moi_tokenizer_close(moi_tokenizer *tokenizer); /* NULL is allowed */
/* One more than the highest id.  A model's vocab_size is often larger, for alignment: such ids are nobody's. */
MOI_API int64_t moi_tokenizer_vocab_size(const moi_tokenizer *tokenizer);
/* Whether it is the tokeniser of bytes. */
MOI_API bool moi_tokenizer_is_bytes(const moi_tokenizer *tokenizer);
/* The id of a token spelt as tokenizer.json spells it ("<|im_end|>"; "\u0120the" for " the"), or -1. */
MOI_API int32_t moi_tokenizer_id(const moi_tokenizer *tokenizer, const char *token);
/* That spelling, or NULL where the id is nobody's; "" for the bytes of the tokeniser of bytes.  Valid until it is closed. */
MOI_API const char *moi_tokenizer_token(const moi_tokenizer *tokenizer, int32_t id);
/* Whether generation ends at this token: "eos_token_id" of generation_config.json, else of config.json (one id or a list),
 * else the "eos_token" of tokenizer_config.json. */
MOI_API bool moi_tokenizer_is_eos(const moi_tokenizer *tokenizer, int32_t id);
/* All of those: up to `room` ids, and how many there are. */
MOI_API moi_status moi_tokenizer_eos(const moi_tokenizer *tokenizer, int32_t *ids, int64_t room, int64_t *count);

enum {
    MOI_TOKENIZE_PLAIN = 1,   /* encode: added tokens spelt out in the text ("<|im_end|>", "<think>") are ordinary text */
    MOI_TOKENIZE_VISIBLE = 2  /* decode: leave special tokens out */
};

/* Computes  the ids of `bytes` bytes of text.  Added tokens in the text are recognised, unless the flag says otherwise.
 *           Nothing is put before or behind them.
 * Memory    writes the first `room` ids (ids may be NULL with room 0); *count is always the number of all.  There are at most
 *           3 ids per byte (one U+FFFD is three bytes).
 * Promise   P:tok.same.  The ids of the reference, for text of any size.   P:tok.near_linear.  Time grows as n log n, also for one word.
 * Errors    ARG, NOMEM. */
MOI_API moi_status moi_tokenizer_encode(const moi_tokenizer *tokenizer, const char *text, int64_t bytes, uint32_t flags, int32_t *ids,
                                        int64_t room, int64_t *count);
/* Computes  the bytes of these tokens, one behind the other, without a NUL.  They need not be UTF-8, as a character may
 *           be spread over several tokens.  An id that is nobody's gives no bytes, as in the reference.
 * Memory    writes the first `room` bytes (text may be NULL with room 0); *bytes is always the number of all.
 * Promise   P:tok.back.  decode(encode(text)) is text in NFC, with U+FFFD for what was no UTF-8.
 * Errors    ARG (a negative id). */
MOI_API moi_status moi_tokenizer_decode(const moi_tokenizer *tokenizer, const int32_t *ids, int64_t count, uint32_t flags, char *text,
                                        int64_t room, int64_t *bytes);

/* Decoding token by token, to print text while it is generated: bytes that only begin a UTF-8 character wait for the rest of
 * it.  What comes out, all together, is what moi_tokenizer_decode gives (P:tok.stream).  Uses the tokenizer and does not own it. */
typedef struct moi_detokenizer moi_detokenizer;
MOI_API moi_status moi_detokenizer_create(moi_detokenizer **out, const moi_tokenizer *tokenizer, uint32_t flags);
MOI_API void moi_detokenizer_free(moi_detokenizer *detokenizer); /* NULL is allowed */
/* *text: *bytes bytes (0 is usual), and a NUL behind them; valid until the next call.  Errors: ARG (a negative id). */
MOI_API moi_status moi_detokenizer_feed(moi_detokenizer *detokenizer, int32_t id, const char **text, int64_t *bytes);
/* The end: the bytes that still wait, as they are.  The detokenizer can then begin another text. */
MOI_API moi_status moi_detokenizer_flush(moi_detokenizer *detokenizer, const char **text, int64_t *bytes);

typedef struct moi_chat_message {
    const char *role;    /* "system", "user", "assistant" or "tool" */
    const char *content; /* UTF-8; put into the text as it is, so "<|im_end|>" in it ends the turn, as in the reference */
} moi_chat_message;

typedef struct moi_chat_options {
    uint32_t size;
    bool generation_prompt; /* end with the beginning of the assistant's turn */
    bool no_thinking;       /* the reference's enable_thinking=False: an empty think block behind the generation prompt */
} moi_chat_options;
#define MOI_CHAT_OPTIONS_INIT { .size = sizeof(moi_chat_options), .generation_prompt = true }

/* Computes  the text of a conversation as the chat template of Qwen3 folders writes it (without tools), to be given to
 *           moi_tokenizer_encode: "<|im_start|>ROLE\nCONTENT<|im_end|>\n" for each message, results of tools inside a user turn,
 *           thoughts ("<think>...</think>") of the assistant dropped in turns before the last question.  This is a writer of
 *           that one format, not an interpreter of templates.  It looks at the folder's template for facts: one without
 *           "<|im_start|>" and "<|im_end|>" is refused; without "</think>" thoughts are left as they are; without
 *           "enable_thinking" no_thinking is refused; where the generation prompt opens "<think>", so does this one;
 *           where it has a system message of its own ("system\nYou ..."), the first message must be one.
 * Memory    writes the first `room` bytes (text may be NULL with room 0); *bytes is always the number of all.  No NUL.
 * Errors    ARG (no messages, an unknown role), UNSUPPORTED (the folder has no template, or not one of this format). */
MOI_API moi_status moi_tokenizer_chat(const moi_tokenizer *tokenizer, const moi_chat_message *messages, int64_t count,
                                      const moi_chat_options *options, char *text, int64_t room, int64_t *bytes);

/* ---- generation -------------------------------------------------------------------------------------------------- */

/* One sequence with its KV cache. */
typedef struct moi_session moi_session;

MOI_API moi_status moi_session_create(moi_session **out, moi_lm *lm, int64_t max_tokens);
MOI_API void moi_session_free(moi_session *session);
/* Appends tokens and writes the logits [vocab] behind the last of them.  One token uses moe_decode.  Errors: SHAPE (cache full). */
MOI_API moi_status moi_session_feed(moi_session *session, const int32_t *tokens, int64_t count, float *logits);
MOI_API int64_t moi_session_length(const moi_session *session);

typedef struct moi_sampling {
    uint32_t size;
    float temperature; /* 0: greedy */
    int32_t top_k;     /* 0: all */
    float top_p;       /* 1: all */
    uint64_t state;    /* seed before the first call; advanced by each */
} moi_sampling;
#define MOI_SAMPLING_INIT { .size = sizeof(moi_sampling), .temperature = 0.8f, .top_k = 0, .top_p = 0.95f, .state = 1 }

/* Computes  a token from softmax(logits / temperature), among the top_k largest, then the smallest set of them whose
 *           probability reaches top_p.  Ties go to the lower id.  Errors: ARG (bad settings, no finite logit). */
MOI_API moi_status moi_sample(const float *logits, int64_t vocab, moi_sampling *sampling, int32_t *token);

#ifdef __cplusplus
}
#endif
#endif
