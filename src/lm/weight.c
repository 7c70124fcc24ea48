/* SPDX-License-Identifier: Apache-2.0 */
#include "weight.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "num.h"
#include "status.h"

typedef long long ll;
typedef struct found { moi_tensor tensor; const char *file; } found;

const char *moii_module_name(moii_module *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(m->text, sizeof m->text, format, args);
    va_end(args);
    return m->text;
}

static moi_status find(const moii_mapped *m, const char *name, found *out)
{
    out->tensor.size = sizeof out->tensor;
    MOII_REQUIRE(moii_shards_find(m->shards, name, &out->tensor, &out->file), MOI_ERR_FORMAT, "%s: %s is missing; config.json asks for it",
                 m->folder, name);
    return MOI_OK;
}

typedef struct text { char text[128]; } text;

static const char *show_shape(text *t, int32_t rank, const int64_t *shape)
{
    size_t n = 0;
    t->text[0] = '\0';
    for (int32_t i = 0; i < rank && n < sizeof t->text - 24; i++)
        n += (size_t)snprintf(t->text + n, sizeof t->text - n, "%s%lld", i ? ", " : "", (ll)shape[i]);
    return t->text;
}

static moi_status check_shape(const found *f, int32_t rank, const int64_t *shape)
{
    text want, got;
    bool same = f->tensor.rank == rank;
    for (int32_t i = 0; same && i < rank; i++) same = f->tensor.shape[i] == shape[i];
    MOII_REQUIRE(same, MOI_ERR_FORMAT, "%s: %s must be [%s], as config.json says; got [%s]", f->file, f->tensor.name, show_shape(&want, rank, shape),
                 show_shape(&got, f->tensor.rank, f->tensor.shape));
    return MOI_OK;
}

static const char *spell(moi_dtype d) { return moi_st_dtype_name(d) ? moi_st_dtype_name(d) : moi_dtype_name(d); }

static moi_status check_float(const found *f)
{
    const moi_dtype d = f->tensor.dtype;
    MOII_REQUIRE(d == MOI_F32 || d == MOI_F16 || d == MOI_BF16, MOI_ERR_FORMAT, "%s: %s must be F32, F16 or BF16, got %s", f->file, f->tensor.name, spell(d));
    return MOI_OK;
}

static moi_format plain_format(moi_dtype d)
{
    moi_format f = d == MOI_F32 ? MOI_FORMAT_F32 : MOI_FORMAT_BF16;
    f.elem = d;
    return f;
}

/* A buffer that lives as long as the model. */
static moi_status keep(moii_mapped *m, size_t bytes, void **out)
{
    void *p = malloc(bytes ? bytes : 1), **more = realloc(m->copies, (size_t)(m->copy_count + 1) * sizeof *more);
    if (more) m->copies = more;
    if (!p || !more) free(p);
    MOII_REQUIRE(p && more, MOI_ERR_NOMEM, "moi_lm_open: no memory for %zu bytes", bytes);
    m->copies[m->copy_count++] = *out = p;
    return MOI_OK;
}

/* The tensor's data, copied if it does not lie where its elements may (a header of odd length, or a tensor before of odd size). */
static moi_status place(moii_mapped *m, const moi_tensor *t, const void **out)
{
    void *copy = NULL;
    *out = t->data;
    if (moii_aligned(t->data, moii_max(moi_dtype_bits(t->dtype) / 8, 1))) return MOI_OK;
    MOII_TRY(keep(m, (size_t)t->bytes, &copy));
    memcpy(copy, t->data, (size_t)t->bytes);
    *out = copy;
    return MOI_OK;
}

moi_status moii_plain_find(moii_mapped *m, const char *name, int64_t rows, int64_t cols, moii_view *out)
{
    found f;
    const int64_t shape[] = { rows, cols };
    MOII_TRY(find(m, name, &f));
    MOII_TRY(check_float(&f));
    MOII_TRY(check_shape(&f, 2, shape));
    *out = (moii_view){ .format = plain_format(f.tensor.dtype), .rows = rows, .cols = cols };
    return place(m, &f.tensor, &out->at.data);
}

/* The scales of 128x128 squares are few and may be BF16: converted, as products read FP32. */
static moi_status place_scales(moii_mapped *m, const moi_tensor *t, const void **out)
{
    void *copy = NULL;
    if (t->dtype != MOI_BF16) return place(m, t, out);
    MOII_TRY(keep(m, (size_t)t->elements * 4, &copy));
    for (int64_t i = 0; i < t->elements; i++) {
        uint16_t code;
        memcpy(&code, (const char *)t->data + 2 * i, 2);
        ((float *)copy)[i] = moii_bf16_decode(code);
    }
    *out = copy;
    return MOI_OK;
}

moi_status moii_weight_find(moii_mapped *m, const char *module, int64_t experts, int64_t rows, int64_t cols, moii_view *out)
{
    moii_module name;
    moii_quant_weight w;
    const int64_t shape[] = { experts, rows, cols };
    moii_module_name(&name, experts ? "%s" : "%s.weight", module);
    MOII_TRY(moii_quant_find(m->quant, m->shards, name.text, experts ? 3 : 2, experts ? shape : shape + 1, &w));
    *out = (moii_view){ .format = w.quantized ? w.format : plain_format(w.codes.dtype), .rows = rows, .cols = cols };
    MOII_TRY(place(m, &w.codes, &out->at.data));
    return w.quantized ? place_scales(m, &w.scales, &out->at.scale) : MOI_OK;
}

bool moii_weight_exists(const moii_mapped *m, const char *module)
{
    static const char *const endings[] = { "", "_packed", "_blocks" };
    moii_module name;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (moii_shards_index(m->shards, moii_module_name(&name, "%s%s", module, endings[i])) >= 0) return true;
    return false;
}

bool moii_weight_cuts(const moii_view *v, int64_t row)
{
    return moii_format_plain(&v->format) || v->format.block == MOI_BLOCK_VECTOR || row % MOII_BLK == 0;
}

moii_view moii_weight_part(const moii_view *v, int64_t expert, int64_t first, int64_t rows)
{
    moii_view part = *v;
    part.rows = rows;
    part.at.data = (const char *)v->at.data + (expert * v->rows + first) * moi_row_bytes(v->format.elem, v->cols);
    if (v->at.scale)
        part.at.scale = (const char *)v->at.scale + expert * moi_scale_bytes(&v->format, v->rows, v->cols, 0) + moi_scale_bytes(&v->format, first, v->cols, 0);
    return part;
}

moi_status moii_vector_read(const moii_mapped *m, const char *name, int64_t count, float *to)
{
    found f;
    uint16_t code;
    MOII_TRY(find(m, name, &f));
    MOII_TRY(check_float(&f));
    MOII_TRY(check_shape(&f, 1, &count));
    if (f.tensor.dtype == MOI_F32) memcpy(to, f.tensor.data, (size_t)count * 4);
    else
        for (int64_t i = 0; i < count; i++) {
            memcpy(&code, (const char *)f.tensor.data + 2 * i, 2);
            to[i] = f.tensor.dtype == MOI_BF16 ? moii_bf16_decode(code) : moii_f16_decode(code);
        }
    return MOI_OK;
}
