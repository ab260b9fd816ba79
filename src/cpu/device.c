#include "flim/backend.h"
static flim_status count(int *c, flim_error *err){(void)err;*c=1;return FLIM_OK;}
static flim_status open_device(int i, flim_device **o, flim_error *err){(void)i;(void)o;return flim_fail(err,FLIM_ERROR_DEVICE,"todo");}
const flim_backend flim_backend_cpu = {"cpu", count, open_device};
