/* SPDX-License-Identifier: Apache-2.0
 * kernel.cpp: machine code as nvrtc.cpp makes it: a shared library. */
#include "parts.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

namespace emu {

/* Its section headers are a linked file's end. */
static size_t bytes_of(const Elf64_Ehdr *head) { return head->e_shoff + (size_t)head->e_shnum * head->e_shentsize; }

emu_kernel *kernel_load(const void *image)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    char path[] = "/tmp/emulated-XXXXXX"; /* mkstemp's template: the loader knows a library by its name, so each has its own */
    const int file = head->e_type == ET_DYN ? mkstemp(path) : -1;
    if (file < 0) return 0;
    void *library = write(file, image, bytes_of(head)) == (ssize_t)bytes_of(head) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : 0;
    if (!library) fprintf(stderr, "emulator: %s\n", dlerror());
    close(file);
    unlink(path);
    if (!library) return 0;
    emu_kernel *k = new emu_kernel();
    k->library = library;
    k->entry = (void (*)(const void *))dlsym(library, "emu_entry");
    void (*bind)(machine *) = (void (*)(machine *))dlsym(library, "emu_bind");
    int (*args_bytes)() = (int (*)())dlsym(library, "emu_args_bytes");
    const char *(*name)() = (const char *(*)())dlsym(library, "emu_name");
    if (!k->entry || !bind || !args_bytes || !name) return kernel_unload(k), nullptr;
    snprintf(k->name, sizeof k->name, "%s", name());
    k->args_bytes = args_bytes();
    bind(&device);
    return k;
}

void kernel_unload(emu_kernel *k)
{
    dlclose(k->library);
    delete k;
}

int kernel_args_bytes(const emu_kernel *k) { return k->args_bytes; }

}
