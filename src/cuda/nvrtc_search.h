/* SPDX-License-Identifier: Apache-2.0
 * nvrtc_search.h: where NVRTC may be (nvrtc.h lists the order), and notes of the versions met, so that a warm start opens none. */
#ifndef MOII_NVRTC_SEARCH_H
#define MOII_NVRTC_SEARCH_H

#include "env.h"

/* Calls `each` with one path after the other until it says true; whether it did. */
bool moii_nvrtc_search(const moii_env_cuda *env, bool (*each)(void *user, const char *path), void *user);

/* The version of the library at `path` as noted earlier, unless the file has changed since. */
bool moii_nvrtc_recall(const moii_env_cuda *env, const char *path, int *major, int *minor);
void moii_nvrtc_remember(const moii_env_cuda *env, const char *path, int major, int minor);

#endif
