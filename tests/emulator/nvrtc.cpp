/* SPDX-License-Identifier: Apache-2.0
 *
 * nvrtc.cpp: the calls of NVRTC that we make, for the emulated device: device code becomes a shared library by way of g++.
 *   EMU_CXX     the compiler: g++
 *   EMU_CHECK   set: it tells of each access (races.cpp)
 *   EMU_KEEP    set: what it was given and what became of it stays in /tmp/emulated-* */
#include <elf.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "translate.hpp"

using std::string;
extern char **environ;

struct _nvrtcProgram {
    string name, folder, log;
    std::vector<char> cubin;
};
typedef _nvrtcProgram *program;

enum { OK = 0, FAILED = 6 };

static bool put(const string &path, const string &text)
{
    FILE *f = fopen(path.c_str(), "w");
    const bool all = f && fwrite(text.data(), 1, text.size(), f) == text.size();
    return f && fclose(f) == 0 && all;
}

template <class T> static bool get(const string &path, T &out)
{
    FILE *f = fopen(path.c_str(), "r");
    char part[4096];
    for (size_t n; f && (n = fread(part, 1, sizeof part, f)) > 0;) out.insert(out.end(), part, part + n);
    return f && fclose(f) == 0;
}

/* Runs a program; what it says goes to the log. */
static bool run(program p, const std::vector<string> &words)
{
    const string said = p->folder + "/said";
    std::vector<char *> argv;
    for (const string &w : words) argv.push_back(const_cast<char *>(w.c_str()));
    argv.push_back(0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, said.c_str(), 01101 /* write, create, truncate */, 0600);
    pid_t child;
    int status = -1;
    if (posix_spawnp(&child, argv[0], &actions, 0, argv.data(), environ) == 0) waitpid(child, &status, 0);
    else p->log += "cannot run " + words[0] + "\n";
    posix_spawn_file_actions_destroy(&actions);
    get(said, p->log);
    return status == 0;
}

static bool checks() { return getenv("EMU_CHECK") != 0; }

static bool compile(program p, int count, const char *const *options)
{
    const char *set = getenv("EMU_CXX");
    const string gxx = set ? set : "g++", stem = p->name.substr(0, p->name.rfind('.')), at = p->folder + "/";
    std::vector<string> first = { gxx, "-E", "-P", "-x", "c++", "-std=c++17", "-D__CUDACC_RTC__", "-D__CUDA_ARCH__=900", "-DMOII_MANY_NANS", "-I" + p->folder };
    for (int i = 0; i < count; i++)
        if (string(options[i]).compare(0, 2, "-D") == 0) first.push_back(options[i]);
    first.insert(first.end(), { at + p->name, "-o", at + "plain" });
    string plain, code;
    if (!run(p, first) || !get(at + "plain", plain)) return false;
    try {
        code = translate(plain);
    } catch (const string &what) {
        p->log += "the emulator does not understand " + what;
        return false;
    }
    code = "#include \"device.hpp\"\n" + code + "\nEMU_ENTRY(" + stem + ")\n";
    if (!put(at + "code.cpp", code) || !put(at + "mark", "emulated")) return false;
    std::vector<string> second = { gxx, "-std=c++17", "-O1", "-w", "-Wno-psabi", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing",
                                   "-fno-stack-protector", "-I" EMU_FOLDER, "-c", at + "code.cpp", "-o", at + "code.o" };
    if (checks()) second.insert(second.end(), { "-DEMU_CHECK", "-fsanitize=thread" });
    if (!run(p, second) || !run(p, { gxx, "-shared", at + "code.o", "-o", at + "code.so" })) return false;
    /* by which moii_cubin_read finds the entry */
    return run(p, { "objcopy", "--add-section", ".text." + stem + "=" + at + "mark", at + "code.so" }) && get(at + "code.so", p->cubin);
}

#define CALL extern "C" __attribute__((visibility("default"))) unsigned int

CALL nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 99, OK; } /* which no real one has */

CALL nvrtcCreateProgram(program *out, const char *text, const char *name, int headers, const char *const *texts, const char *const *names)
{
    char folder[] = "/tmp/emulated-XXXXXX"; /* mkdtemp's template */
    if (!mkdtemp(folder)) return FAILED;
    program p = *out = new _nvrtcProgram();
    p->name = name, p->folder = folder;
    bool written = put(p->folder + "/" + name, text);
    for (int i = 0; i < headers; i++) written = put(p->folder + "/" + names[i], texts[i]) && written;
    return written ? OK : FAILED;
}

CALL nvrtcDestroyProgram(program *p)
{
    if (!getenv("EMU_KEEP")) run(*p, { "rm", "-rf", (*p)->folder });
    delete *p;
    *p = 0;
    return OK;
}

CALL nvrtcCompileProgram(program p, int count, const char *const *options) { return compile(p, count, options) ? OK : FAILED; }
CALL nvrtcGetCUBINSize(program p, size_t *bytes) { return *bytes = p->cubin.size(), OK; }
CALL nvrtcGetCUBIN(program p, char *cubin) { return std::copy(p->cubin.begin(), p->cubin.end(), cubin), OK; }
CALL nvrtcGetProgramLogSize(program p, size_t *bytes) { return *bytes = p->log.size() + 1, OK; }
CALL nvrtcGetProgramLog(program p, char *log) { return std::copy(p->log.c_str(), p->log.c_str() + p->log.size() + 1, log), OK; }
