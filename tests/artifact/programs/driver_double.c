/* The few driver functions that the gate concerns, as libcuda.so.1: each answers with a number of
 * its own, so that a test sees which one was reached. */
#include <stdint.h>
#include <string.h>

#define LAUNCH(name, answer) \
  int name(void) { return answer; }
LAUNCH(cuLaunchKernel, 11)
LAUNCH(cuLaunchKernel_ptsz, 12)
LAUNCH(cuLaunchKernelEx, 13)
LAUNCH(cuLaunchKernelEx_ptsz, 14)
LAUNCH(cuLaunchCooperativeKernel, 15)
LAUNCH(cuLaunchCooperativeKernel_ptsz, 16)
LAUNCH(cuGraphLaunch, 17)
LAUNCH(cuGraphLaunch_ptsz, 18)
LAUNCH(cuInit, 19)
LAUNCH(cuGraphInstantiate, 20)
LAUNCH(cuGraphInstantiate_v2, 21)
LAUNCH(cuGraphInstantiateWithFlags, 22)
LAUNCH(cuGraphExecDestroy, 23)
LAUNCH(cuMemAlloc, 24)
LAUNCH(cuMemAlloc_v2, 25)
LAUNCH(cuDevicePrimaryCtxReset, 26)
LAUNCH(cuDevicePrimaryCtxReset_v2, 27)

int cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags,
                        int* status);

/* Of these versions, as drivers 535 to 555 answer. */
static void* of_version(int version, int first, int since, void* older, void* newer) {
  return version >= since ? newer : version >= first ? older : 0;
}

int cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  const int per_thread = (flags & 2) != 0;
  *function = 0;
  if (strcmp(symbol, "cuLaunchKernel") == 0)
    *function = per_thread ? (void*)cuLaunchKernel_ptsz : (void*)cuLaunchKernel;
  if (strcmp(symbol, "cuGraphInstantiate") == 0)
    *function = of_version(version, 10000, 11000, cuGraphInstantiate, cuGraphInstantiate_v2);
  if (strcmp(symbol, "cuGraphInstantiateWithFlags") == 0)
    *function = of_version(version, 11040, 11040, 0, cuGraphInstantiateWithFlags);
  if (strcmp(symbol, "cuMemAlloc") == 0)
    *function = of_version(version, 2000, 3020, cuMemAlloc, cuMemAlloc_v2);
  if (strcmp(symbol, "cuDevicePrimaryCtxReset") == 0)
    *function =
        of_version(version, 7000, 11000, cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);
  if (strcmp(symbol, "cuInit") == 0) *function = (void*)cuInit;
  if (strcmp(symbol, "cuGetProcAddress") == 0)
    *function = of_version(version, 11030, 12000, cuGetProcAddress, cuGetProcAddress_v2);
  return *function != 0 ? 0 : 500;
}

int cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags,
                        int* status) {
  const int result = cuGetProcAddress(symbol, function, version, flags);
  if (status != 0) *status = result == 0 ? 0 : 1;
  return 0;
}
