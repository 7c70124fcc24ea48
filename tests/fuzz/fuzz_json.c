/* SPDX-License-Identifier: Apache-2.0
 * fuzz_json.c: any bytes as a JSON file of settings: an error with a message, or values inside their limits. */
#include <stdint.h>

#include "json_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *o;
    moi_status status = moii_json_parse(&o, "input", data, (int64_t)size);
    require((status == MOI_OK) == (o != NULL));
    if (!o) {
        require(status == MOI_ERR_FORMAT && *moi_last_error());
        return 0;
    }
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value) {
        int64_t i = 1;
        double d = 1;
        bool b = true;
        const char *s = "";
        moii_json_int(o, "input", key, MOII_JSON_REQUIRED, 0, 1000, &i);
        moii_json_real(o, "input", key, MOII_JSON_OPTIONAL, -1, 1e9, &d);
        moii_json_bool(o, "input", key, MOII_JSON_REQUIRED, &b);
        moii_json_string(o, "input", key, MOII_JSON_OPTIONAL, &s);
        require(i >= 0 && i <= 1000 && d >= -1 && d <= 1e9 && s != NULL);
    }
    json_decref(o);
    return 0;
}
