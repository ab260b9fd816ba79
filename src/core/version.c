#include "flim/version.h"

const char *flim_version(void)
{
    return FLIM_VERSION;
}

const char *flim_version_date(void)
{
    return FLIM_VERSION_DATE;
}
