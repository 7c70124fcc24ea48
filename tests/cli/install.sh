#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# make install gives what a program needs to build against the library, shared and static; make uninstall leaves no file.
. "$(dirname "$0")/support"
out=$(dirname "$MOIETY")
variant=$(basename "$out")
[ "$variant" = release ] || { echo "only for release builds"; exit 0; }
command -v pkg-config >/dev/null || { echo "no pkg-config"; exit 0; }
dest=$work/dest
# a folder that make itself would not choose: the install must follow PREFIX
make -s --no-print-directory -C "$root" BUILD="$(dirname "$out")" DESTDIR= PREFIX="$dest" install >log 2>&1 || { cat log; fail "make install"; }
headers=$(cd "$root" && echo include/*.h)
for f in bin/moiety $headers lib/libmoiety.a lib/libmoiety.so lib/pkgconfig/moiety.pc share/man/man1/moiety.1; do
    [ -s "$dest/$f" ] || fail "$f was not installed"
done
expect 0 "moiety" "$dest/bin/moiety" --version
cat >use.c <<'C'
#include <moiety.h>
#include <stdio.h>
int main(void)
{
    moi_ctx *ctx;
    if (moi_ctx_create(&ctx, NULL)) return 1;
    printf("moiety %s\n", moi_version());
    moi_ctx_free(ctx);
    return 0;
}
C
# every header can be the first that a program includes, in C and in C++
for f in $headers; do
    echo "#include <${f#include/}>" >first.c
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$dest/include" -fsyntax-only first.c || fail "$f does not stand alone"
    command -v c++ >/dev/null || continue
    c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$dest/include" -fsyntax-only -x c++ first.c || fail "$f does not stand alone in C++"
done
PKG_CONFIG_PATH=$dest/lib/pkgconfig
export PKG_CONFIG_PATH
version=$(pkg-config --modversion moiety) || fail "pkg-config does not find moiety"
# shellcheck disable=SC2046
cc -std=c11 use.c $(pkg-config --cflags --libs moiety) -o shared || fail "does not link with the shared library"
LD_LIBRARY_PATH=$dest/lib expect 0 "moiety $version" ./shared
# shellcheck disable=SC2046
cc -std=c11 use.c $(pkg-config --cflags moiety) "$dest/lib/libmoiety.a" $(pkg-config --libs-only-other --static moiety) \
    $(pkg-config --libs --static moiety | sed 's/-lmoiety//') -o static || fail "does not link with the static library"
expect 0 "moiety $version" ./static
readelf -d "$dest/lib/libmoiety.so" | grep -q "soname: \[libmoiety.so.${version%%.*}\]" || fail "the soname is not libmoiety.so.${version%%.*}"
nm -D --defined-only "$dest/lib/libmoiety.so" | awk '{print $3}' | grep -v '^moi_' | grep -v '^MOI' | grep -q . && fail "the shared library shows more than moi_*"
if command -v man >/dev/null 2>&1; then
    man -l "$dest/share/man/man1/moiety.1" 2>warnings | grep -q 'moiety bench' || fail "the manual page lacks a command"
    [ -s warnings ] && cat warnings && fail "the manual page has warnings"
fi
make -s --no-print-directory -C "$root" BUILD="$(dirname "$out")" DESTDIR= PREFIX="$dest" uninstall || fail "make uninstall"
[ -z "$(find "$dest" -type f -o -type l)" ] || fail "make uninstall left $(find "$dest" -type f -o -type l)"
exit 0
