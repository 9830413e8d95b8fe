/* Another tool's preload library: wraps getpid by dlsym(RTLD_NEXT, ...) like a thousand others. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

pid_t getpid(void) {
  pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "getpid");
  return next == getpid || next == 0 ? -1 : -next();
}
