/* SPDX-License-Identifier: Apache-2.0
 * bench_model.c: a generated token of a model whose weights are mapped from a folder, bound by reading the weights that the token
 * needs.  The folder has random weights and is removed afterwards. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "moiety_lm.h"

enum { ROOM = 512, CHECKED = 24, PIECE = 1 << 16 };

typedef struct job {
    char folder[256], file[300], config[300];
    int64_t layers, h, f, experts, top_k, q, kv, heads, kv_heads, head_dim, vocab;
    bool mx; /* linear weights in MXFP8, else BF16 */
    double needed; /* bytes of weights that a token reads */
    moi_lm *lm;
    moi_session *session;
    float *logits;
} job;

/* ---- the folder ---- */

typedef struct writer { bench *b; job *j; moi_st_writer *st; bool declare; } writer;

static moi_status write_normals(writer *w, int64_t count, float scale)
{
    static float x[PIECE];
    static uint16_t half[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;
        bench_normal(w->b, x, n, scale);
        bench_to(MOI_BF16, half, x, n);
        moi_status status = moi_st_writer_write(w->st, half, n * 2);
        if (status) return status;
    }
    return MOI_OK;
}

/* Codes of E4M3 without NaN, or scales about the one that gives weights of 0.02. */
static moi_status write_bytes(writer *w, int64_t count, bool scales)
{
    static unsigned char x[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;
        for (int64_t i = 0; i < n; i++) {
            w->b->random ^= w->b->random << 13, w->b->random ^= w->b->random >> 7, w->b->random ^= w->b->random << 17;
            unsigned char byte = (unsigned char)(w->b->random >> 24);
            x[i] = scales ? (unsigned char)(113 + byte % 2) : (byte & 0x7F) == 0x7F ? byte - 1 : byte;
        }
        moi_status status = moi_st_writer_write(w->st, x, n);
        if (status) return status;
    }
    return MOI_OK;
}

/* One tensor, declared in the first pass and written in the second.  cols 0: a vector.  part: of it that a token reads. */
static moi_status tensor(writer *w, const char *name, int64_t rows, int64_t cols, bool linear, double part)
{
    int64_t shape[2] = { rows, cols }, count = rows * (cols ? cols : 1);
    bool mx = linear && w->j->mx;
    char scale[160];
    snprintf(scale, sizeof scale, "%.140s_scale", name);
    if (w->declare) {
        w->j->needed += part * (double)(mx ? count + count / 32 : 2 * count);
        moi_status status = moi_st_writer_declare(w->st, name, mx ? MOI_E4M3 : MOI_BF16, cols ? 2 : 1, shape);
        shape[1] /= 32;
        return status || !mx ? status : moi_st_writer_declare(w->st, scale, MOI_U8, 2, shape);
    }
    if (!mx) return write_normals(w, count, cols ? 0.02f : 1.0f);
    moi_status status = write_bytes(w, count, false);
    return status ? status : write_bytes(w, count / 32, true);
}

static moi_status expert(writer *w, int64_t layer, int64_t e)
{
    static const char *const parts[] = { "gate", "up", "down" };
    const job *j = w->j;
    moi_status status = MOI_OK;
    for (int i = 0; i < 3 && !status; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s_proj.weight", (int)layer, (int)e, parts[i]);
        status = tensor(w, name, i < 2 ? j->f : j->h, i < 2 ? j->h : j->f, true, (double)j->top_k / (double)j->experts);
    }
    return status;
}

static moi_status layer(writer *w, int64_t l)
{
    const job *j = w->j;
    const struct { const char *name; int64_t rows, cols; bool linear; } list[] = {
        { "input_layernorm", j->h, 0, false }, { "self_attn.q_proj", j->q, j->h, true }, { "self_attn.k_proj", j->kv, j->h, true },
        { "self_attn.v_proj", j->kv, j->h, true }, { "self_attn.o_proj", j->h, j->q, true }, { "self_attn.q_norm", j->head_dim, 0, false },
        { "self_attn.k_norm", j->head_dim, 0, false }, { "post_attention_layernorm", j->h, 0, false }, { "mlp.gate", j->experts, j->h, false },
    };
    moi_status status = MOI_OK;
    for (size_t i = 0; i < sizeof list / sizeof *list && !status; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", (int)l, list[i].name);
        status = tensor(w, name, list[i].rows, list[i].cols, list[i].linear, 1);
    }
    for (int64_t e = 0; e < j->experts && !status; e++) status = expert(w, l, e);
    return status;
}

static moi_status tensors(writer *w)
{
    const job *j = w->j;
    moi_status status = tensor(w, "model.embed_tokens.weight", j->vocab, j->h, false, 1 / (double)j->vocab);
    for (int64_t l = 0; l < j->layers && !status; l++) status = layer(w, l);
    if (!status) status = tensor(w, "model.norm.weight", j->h, 0, false, 1);
    return status ? status : tensor(w, "lm_head.weight", j->vocab, j->h, false, 1);
}

static bool write_config(const job *j)
{
    FILE *f = fopen(j->config, "w");
    if (!f) return false;
    fprintf(f, "{\"model_type\": \"qwen3_moe\", \"vocab_size\": %lld, \"hidden_size\": %lld, \"num_hidden_layers\": %lld,"
               "\"num_attention_heads\": %lld, \"num_key_value_heads\": %lld, \"head_dim\": %lld, \"intermediate_size\": %lld,"
               "\"moe_intermediate_size\": %lld, \"num_experts\": %lld, \"num_experts_per_tok\": %lld, \"norm_topk_prob\": true",
            (long long)j->vocab, (long long)j->h, (long long)j->layers, (long long)j->heads, (long long)j->kv_heads, (long long)j->head_dim,
            (long long)(8 * j->f), (long long)j->f, (long long)j->experts, (long long)j->top_k);
    if (j->mx) fputs(", \"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"MXFP8\", \"ignore\": [\"lm_head\"]}", f);
    fputs("}\n", f);
    return !fclose(f);
}

static moi_status write_folder(bench *b, job *j)
{
    writer w = { .b = b, .j = j, .declare = true };
    moi_status status = moi_st_writer_create(&w.st, j->file);
    if (status) return status;
    for (int pass = 0; pass < 2 && !status; pass++, w.declare = false) status = tensors(&w);
    if (!status) return moi_st_writer_commit(w.st);
    moi_st_writer_cancel(w.st);
    return status;
}

/* ---- running ---- */

static bool feed(job *j, int32_t token)
{
    if (moi_session_length(j->session) == ROOM) {
        moi_session_free(j->session);
        if (moi_session_create(&j->session, j->lm, ROOM)) return false;
    }
    return !moi_session_feed(j->session, &token, 1, j->logits);
}

static bool run(void *user, int64_t repetition)
{
    job *j = user;
    return feed(j, (int32_t)((repetition * 7919 + 13) % j->vocab));
}

/* How far logits of tokens fed one by one are from those of all of them together, relative. */
static double check(bench *b, job *j)
{
    int32_t tokens[CHECKED + 1];
    double loss, squares = 0, off = 0;
    float *all = bench_alloc(CHECKED * j->vocab * 4);
    for (int i = 0; i <= CHECKED; i++) tokens[i] = (int32_t)bench_below(b, j->vocab);
    bool good = !moi_lm_evaluate(j->lm, tokens, 1, CHECKED, &loss, all);
    for (int i = 0; i < CHECKED && good; i++) {
        good = feed(j, tokens[i]);
        if (i == 0) bench_corrupt(b, MOI_F32, j->logits);
        for (int64_t v = 0; v < j->vocab && good; v++) {
            const double want = (double)all[i * j->vocab + v];
            squares += want * want, off += ((double)j->logits[v] - want) * ((double)j->logits[v] - want);
        }
    }
    free(all);
    return good ? sqrt(off / squares) : (double)NAN;
}

static bool read_line(job *j, const shapes *s, int line)
{
    const char *format = shapes_text(s, line, "format", "mxfp8");
    j->layers = shapes_int(s, line, "layers", 2), j->h = shapes_int(s, line, "hidden", 2048), j->f = shapes_int(s, line, "width", 768);
    j->experts = shapes_int(s, line, "experts", 128), j->top_k = shapes_int(s, line, "top_k", 8);
    j->heads = shapes_int(s, line, "heads", 32), j->kv_heads = shapes_int(s, line, "kv_heads", 4);
    j->head_dim = shapes_int(s, line, "head_dim", 128), j->vocab = shapes_int(s, line, "vocab", 8192);
    j->q = j->heads * j->head_dim, j->kv = j->kv_heads * j->head_dim;
    j->mx = !strcmp(format, "mxfp8");
    return j->mx || !strcmp(format, "bf16");
}

static bool measure(bench *b, job *j, bench_case *c)
{
    static machine_limit limit;
    double worst;
    char why[96];
    if (!write_config(j) || write_folder(b, j) || moi_lm_open(&j->lm, b->ctx, j->folder, NULL) || moi_session_create(&j->session, j->lm, ROOM))
        return bench_refuse(b, c->op, c->name, c->row, moi_last_error());
    j->logits = bench_alloc(j->vocab * 4);
    worst = check(b, j);
    snprintf(why, sizeof why, "wrong result: token by token is %.3g from all together", worst);
    if (!(worst <= 0.05)) return bench_refuse(b, c->op, c->name, c->row, why);
    if (!machine_limit_read(&limit, moi_ctx_threads(b->ctx))) return bench_refuse(b, c->op, c->name, c->row, "no memory");
    c->limit = &limit;
    c->bytes = j->needed;
    c->work = (timing_work){ run, j };
    const bool good = bench_time(b, c);
    machine_limit_free(&limit);
    return good;
}

bool bench_model(bench *b, const shapes *s, int line, const char *row)
{
    bench_case c = { .op = "model", .row = "mapped" };
    job j = { .lm = NULL };
    const char *where = getenv("TMPDIR");
    (void)row;
    if (!read_line(&j, s, line)) return bench_refuse(b, c.op, "?", c.row, "format must be mxfp8 or bf16");
    snprintf(c.name, sizeof c.name, "l%lld h%lld f%lld e%lld top%lld v%lld %s", (long long)j.layers, (long long)j.h, (long long)j.f,
             (long long)j.experts, (long long)j.top_k, (long long)j.vocab, j.mx ? "mxfp8" : "bf16");
    /* mkdtemp(3) wants six X at the end and puts a name of its own in their place */
    snprintf(j.folder, sizeof j.folder, "%.200s/moiety-bench-XXXXXX", where && *where ? where : "/tmp");
    if (!mkdtemp(j.folder)) return bench_refuse(b, c.op, c.name, c.row, "cannot make a folder below TMPDIR");
    snprintf(j.file, sizeof j.file, "%s/model.safetensors", j.folder);
    snprintf(j.config, sizeof j.config, "%s/config.json", j.folder);
    const bool good = measure(b, &j, &c);
    moi_session_free(j.session);
    moi_lm_free(j.lm);
    free(j.logits);
    unlink(j.file), unlink(j.config), rmdir(j.folder);
    return good;
}
