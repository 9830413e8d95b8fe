/* A library that takes NCCL's place, without second names, and calls NCCL from its own functions. */
#include <dlfcn.h>
#include <stddef.h>

static void* nccl;

void shim_uses(void* library);
void shim_uses(void* library) { nccl = library; }

int ncclAllReduce(void);
int ncclAllReduce(void) {
  int (*const real)(void) = nccl != NULL ? (int (*)(void))dlsym(nccl, "ncclAllReduce") : NULL;
  volatile int answer = real != NULL ? 100 + real() : 91; /* no tail call */
  return answer;
}
int ncclGroupStart(void);
int ncclGroupStart(void) { return 94; }
