/* SPDX-License-Identifier: Apache-2.0
 * info_plan.h: moiety info plan, behind moiety info. */
#ifndef INFO_PLAN_H
#define INFO_PLAN_H

int info_plan(int argc, char **argv);

#endif
