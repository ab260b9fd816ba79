/* For failed_card.c: an error that no call of this process survives. */
__global__ void fail_kernel()
{
    __trap();
}

extern "C" void fail_card(void)
{
    fail_kernel<<<1, 1>>>();
    (void)cudaDeviceSynchronize();
}
