/* SPDX-License-Identifier: Apache-2.0
 * isa_generic.c: plain C bodies, for any machine. */
#include "isa.h"

static bool available(void) { return true; }

const moii_isa moii_isa_generic = { .name = "generic", .available = available };
