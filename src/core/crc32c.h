/* CRC-32C (Castagnoli: polynomial 0x1EDC6F41, bits reversed), as TensorBoard's records carry it. */
#ifndef FLIM_CORE_CRC32C_H
#define FLIM_CORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t flim_crc32c(const void *bytes, size_t count)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= ((const uint8_t *)bytes)[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ ((crc & 1) ? 0x82F63B78u : 0);
        }
    }
    return ~crc;
}

/* Rotated and moved, so that a checksum of data that holds checksums is none of a constant. */
static inline uint32_t flim_masked_crc32c(const void *bytes, size_t count)
{
    const uint32_t crc = flim_crc32c(bytes, count);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

#endif
