/* Little-endian numbers in files, at places that were checked to lie inside. */
#ifndef FLIM_CORE_LITTLE_ENDIAN_H
#define FLIM_CORE_LITTLE_ENDIAN_H

#include <stdint.h>
#include <string.h>

static inline uint16_t flim_u16_at(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t flim_u32_at(const uint8_t *at)
{
    return (uint32_t)flim_u16_at(at) | (uint32_t)flim_u16_at(at + 2) << 16;
}

static inline uint64_t flim_u64_at(const uint8_t *at)
{
    return (uint64_t)flim_u32_at(at) | (uint64_t)flim_u32_at(at + 4) << 32;
}

static inline float flim_f32_at(const uint8_t *at)
{
    const uint32_t bits = flim_u32_at(at);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline double flim_f64_at(const uint8_t *at)
{
    const uint64_t bits = flim_u64_at(at);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
