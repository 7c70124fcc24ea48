/* SPDX-License-Identifier: Apache-2.0
 * cubin.c: ELF sections that matter here: .text.ENTRY (up to sm_89 the upper byte of its sh_info is the register count), .nv.info
 * (attributes of a function by symbol: 0x11 its stack frame, 0x2F its registers), .nv.shared.ENTRY and .nv.local.ENTRY. */
#include "cubin.h"

#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct elf {
    const unsigned char *data;
    size_t bytes;
    Elf64_Ehdr head;
} elf;

enum { ATTR_FRAME_SIZE = 0x11, ATTR_REGISTERS = 0x2F, FORMAT_SIZED = 4 };

static bool span(const elf *e, uint64_t offset, uint64_t length) { return offset <= e->bytes && length <= e->bytes - offset; }

static bool section(const elf *e, unsigned int i, Elf64_Shdr *out)
{
    uint64_t at = e->head.e_shoff + (uint64_t)i * sizeof *out;
    if (i >= e->head.e_shnum || !span(e, at, sizeof *out)) return false;
    memcpy(out, e->data + at, sizeof *out);
    return out->sh_type == SHT_NOBITS || span(e, out->sh_offset, out->sh_size);
}

static const char *string(const elf *e, const Elf64_Shdr *table, uint32_t at)
{
    if (at >= table->sh_size) return "";
    const char *s = (const char *)e->data + table->sh_offset + at;
    return memchr(s, 0, table->sh_size - at) ? s : "";
}

static bool find(const elf *e, const char *prefix, const char *entry, Elf64_Shdr *out)
{
    char name[256];
    Elf64_Shdr names;
    if (!section(e, e->head.e_shstrndx, &names) || names.sh_type == SHT_NOBITS) return false;
    snprintf(name, sizeof name, "%s%s", prefix, entry);
    for (unsigned int i = 0; i < e->head.e_shnum; i++)
        if (section(e, i, out) && !strcmp(string(e, &names, out->sh_name), name)) return true;
    return false;
}

/* The largest value of an attribute among the functions: they may call each other. */
static int largest(const elf *e, unsigned int wanted)
{
    Elf64_Shdr info;
    int most = 0;
    if (!find(e, ".nv.info", "", &info) || info.sh_type == SHT_NOBITS) return 0;
    for (uint64_t at = 0; at + 4 <= info.sh_size;) {
        const unsigned char *p = e->data + info.sh_offset + at;
        unsigned int format = p[0], attribute = p[1], size = (unsigned int)p[2] | (unsigned int)p[3] << 8;
        at += 4;
        if (format != FORMAT_SIZED) continue;
        if (attribute == wanted && size == 8 && at + 8 <= info.sh_size) {
            int value;
            memcpy(&value, p + 8, sizeof value);
            if (value > most) most = value;
        }
        at += size;
    }
    return most;
}

bool moii_cubin_read(const unsigned char *cubin, size_t bytes, const char *entry, moii_cubin_use *out)
{
    elf e = { .data = cubin, .bytes = bytes };
    Elf64_Shdr text, other;
    memset(out, 0, sizeof *out);
    if (bytes < sizeof e.head) return false;
    memcpy(&e.head, cubin, sizeof e.head);
    if (memcmp(e.head.e_ident, ELFMAG, SELFMAG) != 0 || e.head.e_ident[EI_CLASS] != ELFCLASS64) return false;
    if (e.head.e_shentsize != sizeof(Elf64_Shdr) || !find(&e, ".text.", entry, &text)) return false;
    out->registers = (int)(text.sh_info >> 24);
    int stated = largest(&e, ATTR_REGISTERS);
    if (stated > out->registers) out->registers = stated;
    out->stack_bytes = largest(&e, ATTR_FRAME_SIZE);
    if (find(&e, ".nv.local.", entry, &other) && out->stack_bytes < (int)other.sh_size) out->stack_bytes = (int)other.sh_size;
    if (find(&e, ".nv.shared.", entry, &other)) out->shared_bytes = (int)other.sh_size;
    return true;
}
