/* SPDX-License-Identifier: Apache-2.0 */
#ifndef EMU_TRANSLATE_HPP
#define EMU_TRANSLATE_HPP

#include <string>

/* Preprocessed device code for g++ with device.hpp: inline assembly becomes calls of ptx.hpp, shared memory what the machine has for a block.
 * Throws a std::string where it does not understand. */
std::string translate(const std::string &text);

#endif
