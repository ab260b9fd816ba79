/* Philox4x32-10 written from Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11, section 3.3. */
#include "reference/reference.h"

double ref_dropout_factor(const flim_cell_id *id, uint32_t unit, uint32_t channel, double p)
{
    const uint32_t purpose = 4; /* FLIM_RANDOM_DROPOUT */
    uint32_t key[2] = {(uint32_t)(id->seed & 0xffffffffu), (uint32_t)(id->seed >> 32)};
    uint32_t c[4] = {(unit << 16) | (channel / 4), id->cell, id->epoch,
                     (purpose << 24) | ((id->repeat & 255u) << 16) | (id->fold & 65535u)};
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
    const uint32_t threshold = (uint32_t)(p * 4294967296.0);
    return c[channel % 4] >= threshold ? 1.0 / (1.0 - p) : 0.0;
}
