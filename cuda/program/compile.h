/* From a network, batch sizes and a precision to a program whose schedules, convolutions and memory are settled.
 *
 * For: backend.c.
 * Owns: the caller destroys the program; nothing is allocated on the device yet.
 * Errors: those of the search for convolutions; FLIM_ERROR_USAGE for networks that the kernels cannot do.
 */
#ifndef FLIM_CUDA_COMPILE_H
#define FLIM_CUDA_COMPILE_H

#include "cuda/device/cuda_device.h"

flim_status flim_cuda_compile(flim_device *device, const flim_network *net, const flim_program_options *options,
                              flim_program **out, flim_error *err);

#endif
