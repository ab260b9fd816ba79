#include "common/spinning.h"

#include <stdlib.h>
#include <unistd.h>

void limit_spinning(char **argv)
{
    if (!getenv("OMP_WAIT_POLICY") && !getenv("GOMP_SPINCOUNT") && setenv("GOMP_SPINCOUNT", "1000", 1) == 0) {
        execv("/proc/self/exe", argv);
    }
}
