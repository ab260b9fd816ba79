/* Philox4x32-10 written from Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11, section 3.3. */
#include "reference/reference.h"

void ref_philox(const flim_cell_id *id, uint32_t purpose, uint32_t index, uint32_t c[4])
{
    uint32_t key[2] = {(uint32_t)(id->seed & 0xffffffffu), (uint32_t)(id->seed >> 32)};
    c[0] = index;
    c[1] = id->cell;
    c[2] = id->epoch;
    c[3] = (purpose << 24) | ((id->repeat & 255u) << 16) | (id->fold & 65535u);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ key[1],
                                  (uint32_t)a};
        for (int i = 0; i < 4; i++) {
            c[i] = next[i];
        }
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

double ref_dropout_factor(const flim_cell_id *id, uint32_t unit, uint32_t channel, double p)
{
    uint32_t c[4];
    ref_philox(id, 4, (unit << 16) | (channel / 4), c); /* 4: FLIM_RANDOM_DROPOUT */
    const uint32_t threshold = (uint32_t)(p * 4294967296.0);
    return c[channel % 4] >= threshold ? 1.0 / (1.0 - p) : 0.0;
}
