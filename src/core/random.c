#include "flim/random.h"

#include <math.h>

#include "core/random_block.h"

void flim_random_block(const flim_cell_id *id, flim_random_purpose purpose, uint32_t index, uint32_t out[4])
{
    flim_random_block_of(id, purpose, index, out);
}

flim_random flim_random_begin(const flim_cell_id *id, flim_random_purpose purpose)
{
    return (flim_random){.id = *id, .purpose = purpose, .used = 4};
}

uint32_t flim_random_u32(flim_random *random)
{
    if (random->used == 4) {
        flim_random_block(&random->id, random->purpose, random->next_index++, random->word);
        random->used = 0;
    }
    return random->word[random->used++];
}

static uint64_t next_u64(flim_random *random)
{
    uint64_t high = flim_random_u32(random);
    return high << 32 | flim_random_u32(random);
}

double flim_random_uniform(flim_random *random)
{
    return (double)(next_u64(random) >> 11) * 0x1p-53;
}

double flim_random_normal(flim_random *random)
{
    double u = 1.0 - flim_random_uniform(random); /* (0, 1] */
    double angle = 6.283185307179586 * flim_random_uniform(random);
    return sqrt(-2.0 * log(u)) * cos(angle);
}

uint64_t flim_random_below(flim_random *random, uint64_t bound)
{
    /* Values under 2^64 mod bound would make some results likelier than others. */
    uint64_t reject = (0 - bound) % bound;
    uint64_t value;
    do {
        value = next_u64(random);
    } while (value < reject);
    return value % bound;
}

void flim_random_shuffle(flim_random *random, int64_t *items, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)flim_random_below(random, i);
        int64_t swap = items[i - 1];
        items[i - 1] = items[j];
        items[j] = swap;
    }
}

int flim_random_keep(const flim_cell_id *id, uint32_t unit, uint32_t channel, float p)
{
    uint32_t word[4];
    flim_random_block(id, FLIM_RANDOM_DROPOUT, unit << 16 | channel / 4, word);
    return word[channel % 4] >= (uint32_t)((double)p * 4294967296.0);
}
