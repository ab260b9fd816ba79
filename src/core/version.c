#include "flim/version.h"

const char *flim_version(void)
{
    return FLIM_VERSION;
}
