# SPDX-License-Identifier: Apache-2.0
# make | test | demo | bench | sanitize | install | clean | help.   VARIANT=asan|tsan builds into its own folder.

PREFIX   ?= /usr/local
LIBDIR   ?= $(PREFIX)/lib
DESTDIR  ?=
VARIANT  ?= release
BUILD    ?= build
OUT      := $(BUILD)/$(VARIANT)
MULTIARCH := $(shell gcc -print-multiarch 2>/dev/null)

CC       ?= cc
BLAS_KIND := openmp
OPT      := -O2 -g
OPENMP   := -fopenmp
SAN      :=
ifeq ($(VARIANT),asan)
SAN      := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT      := -O1 -g
endif
ifeq ($(VARIANT),tsan)
# clang's OpenMP runtime tells the thread sanitizer about its barriers (libarcher); gcc's does not
CC       := clang
SAN      := -fsanitize=thread
OPT      := -O1 -g
BLAS_KIND := serial
endif
ifeq ($(VARIANT),fuzz)
CC       := clang
SAN      := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
OPT      := -O1 -g
BLAS_KIND := serial
endif

WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes $(if $(WERROR),-Werror)
comma    := ,
BLAS_DIR := /usr/lib/$(MULTIARCH)/openblas-$(BLAS_KIND)
BLAS     := $(if $(wildcard $(BLAS_DIR)/libopenblas.so),-L$(BLAS_DIR) -Wl$(comma)-rpath$(comma)$(BLAS_DIR)) -lopenblas
CPPFLAGS += -Iinclude -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64
STRICT   := -std=c11 -ffp-contract=off -fno-math-errno
CFLAGS_  := $(STRICT) $(OPT) $(WARN) $(OPENMP) -fPIC -fvisibility=hidden -MMD -MP $(SAN) $(CFLAGS)
LDLIBS   := $(BLAS) -ljansson -lpcre2-8 -lutf8proc -lm -lpthread -ldl
ISA_avx2 := -mavx2 -mfma -mf16c
# no value changes without trapping math, but loops with a comparison in them vectorise
FAST     := -O3 -fno-trapping-math

LIB_SRC  := $(wildcard src/core/*.c src/ops/*.c src/cpu/*.c src/cuda/*.c src/lm/*.c)
LIB_OBJ  := $(LIB_SRC:%.c=$(OUT)/%.o)
CLI_OBJ  := $(patsubst %.c,$(OUT)/%.o,$(wildcard cli/*.c bench/*.c))
TESTS    := $(patsubst tests/%.c,$(OUT)/tests/%,$(wildcard tests/test_*.c))
TEST_TOOLS := $(patsubst tests/%.c,$(OUT)/tests/%,$(wildcard tests/cli_*.c))
TEST_SUPPORT := $(patsubst %.c,$(OUT)/%.o,$(wildcard tests/support*.c))
EXAMPLES := $(patsubst examples/%.c,$(OUT)/examples/%,$(wildcard examples/*.c))
VERSION  := $(shell sed -n 's/^#define MOI_VERSION_[A-Z]* \([0-9]*\)/\1/p' include/moiety.h | paste -sd.)
COMMIT   := $(or $(shell git rev-parse --short=12 HEAD 2>/dev/null),unknown)
SOMAJOR  := $(firstword $(subst ., ,$(VERSION)))

.PHONY: all lib test demo bench sanitize install uninstall clean help setup checks
.PHONY: .FORCE
.SUFFIXES:
.SECONDARY:
all: $(OUT)/moiety $(OUT)/libmoiety.so

lib: $(OUT)/libmoiety.a $(OUT)/libmoiety.so

help:
	@echo "make            the program and the libraries, in $(BUILD)/$(VARIANT)"
	@echo "make test       install what is missing, build, run the checks and all tests"
	@echo "make demo       train a model in BF16 and in MXFP8 on this machine, compare, generate (a few minutes)"
	@echo "make bench      check and time the kernels, into $(BUILD)/bench.csv"
	@echo "make sanitize   all tests under address, undefined-behaviour and thread sanitizers, then the fuzzers"
	@echo "make gpu-bundle programs and libraries for a machine with a GPU, in $(BUILD)/gpu; make check-gpu runs them there"
	@echo "make install    to DESTDIR/PREFIX; make uninstall takes it back"
	@echo "make setup      install the packages needed;   make clean"
	@echo
	@echo "PREFIX=$(PREFIX) LIBDIR=$(LIBDIR) DESTDIR=$(DESTDIR) CC=$(CC) CFLAGS=$(CFLAGS)"
	@echo "WERROR=1 makes warnings errors; VARIANT=release, asan, tsan or fuzz"
	@echo "DATA=path and DEMO_STEPS=n for the demo; SANITIZE_SHORT=1 for a selection"

setup:
	@tools/setup

$(OUT)/src/cpu/isa_%.o: src/cpu/isa_%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Isrc/core -Isrc/cpu $(CFLAGS_) $(FAST) $(ISA_$*) -c $< -o $@
$(OUT)/src/cpu/%_fast.o: src/cpu/%_fast.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Isrc/core -Isrc/cpu $(CFLAGS_) $(FAST) -c $< -o $@
$(OUT)/src/%.o: src/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Isrc/core -I$(<D) $(CFLAGS_) -c $< -o $@
$(OUT)/cli/%.o: cli/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -I$(OUT)/cli $(CFLAGS_) -c $< -o $@
$(OUT)/bench/%.o: bench/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -I$(OUT)/bench $(CFLAGS_) -c $< -o $@
# each bench/shapes/OP.csv as a C string
$(OUT)/bench/shapes.o: $(OUT)/bench/shapes.inc
$(OUT)/bench/shapes.inc: $(wildcard bench/shapes/*.csv)
	@mkdir -p $(@D)
	@for f in $^; do echo "{ \"$$(basename $$f .csv)\","; sed 's/.*/"&\\n"/' $$f; echo '},'; done >$@
# device code as C arrays: NVRTC compiles it at run time
DEVICE_TEXT := src/core/num.h src/core/block.h src/core/silu.h $(sort $(wildcard src/cuda/kernels/*))
$(OUT)/src/cuda/texts.o: CPPFLAGS += -I$(OUT)/src/cuda
$(OUT)/src/cuda/texts.o: $(OUT)/src/cuda/texts.inc
$(OUT)/src/cuda/texts.inc: $(DEVICE_TEXT) tools/embed
	@mkdir -p $(@D)
	@tools/embed $(DEVICE_TEXT) >$@
# rewritten only when the commit changes
$(OUT)/cli/cmd.o: $(OUT)/cli/build_info.h
$(OUT)/cli/build_info.h: .FORCE
	@mkdir -p $(@D)
	@echo '#define BUILD_COMMIT "$(COMMIT)"' | cmp -s - $@ || echo '#define BUILD_COMMIT "$(COMMIT)"' >$@
$(OUT)/tests/%.o: tests/%.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -Isrc/core -Itests $(CFLAGS_) -c $< -o $@

$(OUT)/libmoiety.a: $(LIB_OBJ)
	@rm -f $@
	ar rcs $@ $^
$(OUT)/libmoiety.so: $(LIB_OBJ) moi.map
	$(CC) -shared -Wl,-soname,libmoiety.so.$(SOMAJOR) -Wl,--version-script=moi.map $(if $(SAN),,-Wl$(comma)-z$(comma)defs) $(SAN) $(OPENMP) $(LIB_OBJ) -o $@ $(LDLIBS)
$(OUT)/moiety: $(CLI_OBJ) $(OUT)/libmoiety.a
	$(CC) $(SAN) $(OPENMP) $^ -o $@ $(LDLIBS)
$(OUT)/tests/test_%: $(OUT)/tests/test_%.o $(TEST_SUPPORT) $(OUT)/libmoiety.a
	$(CC) $(SAN) $(OPENMP) $^ -o $@ -lcmocka $(LDLIBS)
$(OUT)/tests/cli_%: $(OUT)/tests/cli_%.o $(OUT)/libmoiety.a
	$(CC) $(SAN) $(OPENMP) $^ -o $@ $(LDLIBS)
# stand-ins for NVIDIA's libraries, opened by the tests in their place
FAKES    := $(OUT)/tests/fake/libcuda.so.1 $(OUT)/tests/fake/libnvrtc.so.12
$(OUT)/tests/fake/libcuda.so.1: tests/fake/fake_cuda.c src/cuda/driver.def src/cuda/driver_types.h tests/emulator/emulator.h
$(OUT)/tests/fake/libnvrtc.so.12: tests/fake/fake_nvrtc.c
$(FAKES):
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(STRICT) $(OPT) $(WARN) -fPIC -shared $< -o $@ -ldl
# a device that runs kernels on x86-64: for the driver's stand-in, and a compiler for it.  Its caches hold kernels of this build of it
EMULATOR := $(OUT)/tests/emulator/libemulator.so $(OUT)/tests/emulator/libnvrtc.so.13
$(OUT)/tests/emulator/libemulator.so: PARTS := machine copies races products kernel
$(OUT)/tests/emulator/libnvrtc.so.13: PARTS := nvrtc translate
$(EMULATOR): $(wildcard tests/emulator/*)
	@mkdir -p $(@D) && rm -rf $(@D)/cache*
	$(CXX) -std=c++17 $(OPT) -O3 -march=x86-64-v2 $(filter-out -W%-prototypes,$(WARN)) -fvisibility=hidden -DEMU_FOLDER='"$(CURDIR)/tests/emulator"' -fPIC -shared \
	    $(PARTS:%=tests/emulator/%.cpp) -o $@ -ldl
$(OUT)/examples/%: examples/%.c $(OUT)/libmoiety.a
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS_) $(filter %.c %.a,$^) -o $@ $(LDLIBS)

# VARIANT=fuzz: the readers of files as libFuzzer programs (tools/fuzz runs them); no row is reached, so neither BLAS nor OpenMP
$(OUT)/fuzz_%: tests/fuzz/fuzz_%.c $(OUT)/libmoiety.a
	$(CC) $(CPPFLAGS) -Isrc/core -Isrc/lm $(STRICT) $(OPT) $(WARN) -fsanitize=fuzzer $(SAN) $(filter %.c %.a,$^) -o $@ -ljansson -lpcre2-8 -lutf8proc -lm
.PHONY: fuzz
fuzz: $(patsubst tests/fuzz/%.c,$(OUT)/%,$(wildcard tests/fuzz/fuzz_*.c))

# everything to test on a GPU, for a machine that has a driver but none of our packages: the programs, and the libraries they need
GPU      := $(BUILD)/gpu
GPU_TESTS := $(patsubst tests/%.c,%,$(shell grep -lE 'support_(gpu|decode|quantize).h' tests/test_*.c)) test_cuda
GPU_LINK := -s -Wl,-z,noseparate-code -static-libgcc -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/lib:$$ORIGIN/../lib'
.PHONY: gpu-bundle check-gpu
gpu-bundle: $(GPU)/moiety $(GPU)/libmoiety.so $(GPU_TESTS:%=$(GPU)/tests/%)
	tools/gpu_bundle $(GPU)
$(GPU)/moiety: $(CLI_OBJ) $(OUT)/libmoiety.a
	@mkdir -p $(@D)
	$(CC) $(GPU_LINK) $(OPENMP) $^ -o $@ $(LDLIBS)
$(GPU)/libmoiety.so: $(LIB_OBJ) moi.map
	@mkdir -p $(@D)
	$(CC) -shared $(GPU_LINK) -Wl,--version-script=moi.map $(OPENMP) $(LIB_OBJ) -o $@ $(LDLIBS)
$(GPU)/tests/test_%: $(OUT)/tests/test_%.o $(TEST_SUPPORT) $(OUT)/libmoiety.a
	@mkdir -p $(@D)
	$(CC) $(GPU_LINK) $(OPENMP) $^ -o $@ -lcmocka $(LDLIBS)
check-gpu:
	@[ -x $(GPU)/check ] || { echo "no bundle in $(GPU): run 'make gpu-bundle' where the packages are, then bring the folder here"; exit 1; }
	@$(GPU)/check

demo:
	@tools/demo

bench: $(OUT)/moiety
	$(OUT)/moiety bench all --csv $(BUILD)/bench.csv

sanitize:
	@tools/sanitize

LIB_DEST := $(DESTDIR)$(LIBDIR)
INC_DEST := $(DESTDIR)$(PREFIX)/include
install: all lib
	install -d $(LIB_DEST)/pkgconfig $(INC_DEST) $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 include/*.h $(INC_DEST)
	install -m 644 $(OUT)/libmoiety.a $(LIB_DEST)
	install -m 755 $(OUT)/libmoiety.so $(LIB_DEST)/libmoiety.so.$(VERSION)
	ln -sf libmoiety.so.$(VERSION) $(LIB_DEST)/libmoiety.so.$(SOMAJOR)
	ln -sf libmoiety.so.$(SOMAJOR) $(LIB_DEST)/libmoiety.so
	sed -e 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|; s|@PRIVATE@|$(OPENMP) $(LDLIBS)|' moiety.pc.in \
	    >$(LIB_DEST)/pkgconfig/moiety.pc
	install -m 755 $(OUT)/moiety $(DESTDIR)$(PREFIX)/bin
	tools/manpage $(OUT)/moiety >$(DESTDIR)$(PREFIX)/share/man/man1/moiety.1

uninstall:
	rm -f $(patsubst include/%,$(INC_DEST)/%,$(wildcard include/*.h)) $(LIB_DEST)/libmoiety.a $(LIB_DEST)/libmoiety.so* \
	    $(LIB_DEST)/pkgconfig/moiety.pc $(DESTDIR)$(PREFIX)/bin/moiety $(DESTDIR)$(PREFIX)/share/man/man1/moiety.1

checks:
	tools/check_layers
	tools/check_sizes
	tools/check_promises

test: setup
	@$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell getconf _NPROCESSORS_ONLN)) WERROR=1 checks all tests
	tests/run $(OUT)

.PHONY: tests
tests: $(TESTS) $(FAKES) $(if $(SAN)$(filter-out x86_64%,$(MULTIARCH)),,$(EMULATOR)) $(TEST_TOOLS) $(OUT)/moiety $(EXAMPLES)

clean:
	rm -rf $(BUILD)

-include $(shell find $(OUT) -name '*.d' 2>/dev/null)
