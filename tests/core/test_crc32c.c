/* CRC-32C: values of RFC 3720 (B.4) and the usual check value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/crc32c.h"

static void known_values(void **state)
{
    uint8_t bytes[32] = {0};
    (void)state;
    assert_int_equal(flim_crc32c("123456789", 9), 0xE3069283u);
    assert_int_equal(flim_crc32c("", 0), 0);
    assert_int_equal(flim_crc32c(bytes, sizeof bytes), 0x8A9136AAu);
    memset(bytes, 0xFF, sizeof bytes);
    assert_int_equal(flim_crc32c(bytes, sizeof bytes), 0x62A8AB43u);
    for (uint8_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = i;
    }
    assert_int_equal(flim_crc32c(bytes, sizeof bytes), 0x46DD794Eu);
}

/* 0xE3069283 turned right by 15 is 0x2507C60D. */
static void masked(void **state)
{
    (void)state;
    assert_int_equal(flim_masked_crc32c("123456789", 9), 0x2507C60Du + 0xA282EAD8u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_values), cmocka_unit_test(masked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
