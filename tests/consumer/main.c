/* A stranger's program: builds against an installed libflim and makes one simulated cell. */
#include <stdio.h>
#include <stdlib.h>

#include <flim/simulate.h>
#include <flim/version.h>

int main(void)
{
    flim_error err = {0};
    flim_simulate_options options = flim_simulate_defaults();
    flim_simulation *simulation;
    size_t voxels = (size_t)options.bins * (size_t)options.height * (size_t)options.width;
    uint16_t *counts = malloc(voxels * sizeof *counts);
    uint8_t *mask = malloc((size_t)options.height * (size_t)options.width);
    if (!counts || !mask || flim_simulation_create(&options, &simulation, &err) != FLIM_OK ||
        flim_simulation_cell(simulation, 0, counts, mask, &err) != FLIM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    long photons = 0;
    for (size_t v = 0; v < voxels; v++) {
        photons += counts[v];
    }
    flim_simulation_destroy(simulation);
    free(counts);
    free(mask);
    printf("flimcv %s: a cell of %ld photons\n", flim_version(), photons);
    return photons > 0 ? 0 : 1;
}
