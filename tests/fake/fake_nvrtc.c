/* SPDX-License-Identifier: Apache-2.0
 * fake_nvrtc.c: a libnvrtc.so.12 that is too old. */
unsigned int nvrtcVersion(int *major, int *minor);
unsigned int nvrtcVersion(int *major, int *minor) { return *major = 12, *minor = 4, 0; }
