/* Calls each driver function that stdin names, in a child of its own, with three sets of arguments,
 * in front of cuInit and behind it, and prints "name set init result", or "signal" and its number
 * for a call that crashed. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*any_fn)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                      uintptr_t, uintptr_t, uintptr_t, uintptr_t);

enum { kNothing, kOnes, kMemory, kSets };

static void call_in_child(any_fn function, const char* name, int set, int init) {
  static char memory[1 << 16];
  int result = 0, ends[2];
  if (pipe(ends) != 0) exit(1);
  const pid_t child = fork();
  if (child == 0) {
    const uintptr_t value = set == kMemory ? (uintptr_t)memory : (uintptr_t)(set == kOnes);
    alarm(10);
    result = function(value, value, value, value, value, value, value, value, value, value, value);
    if (write(ends[1], &result, sizeof result) != sizeof result) _exit(1);
    _exit(0);
  }
  close(ends[1]);
  int status = 0;
  const int answered = read(ends[0], &result, sizeof result) == sizeof result;
  close(ends[0]);
  waitpid(child, &status, 0);
  if (answered) {
    printf("%s %d %d %d\n", name, set, init, result);
  } else {
    printf("%s %d %d signal %d\n", name, set, init, WTERMSIG(status));
  }
  fflush(stdout);
}

int main(void) {
  char names[256][64];
  size_t count = 0;
  while (count < 256 && scanf("%63s", names[count]) == 1) ++count;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == NULL) return 1;
  for (int init = 0; init < 2; ++init) {
    if (init != 0) printf("cuInit %d\n", ((int (*)(unsigned))dlsym(driver, "cuInit"))(0));
    fflush(stdout);
    for (size_t i = 0; i < count; ++i) {
      const any_fn function = (any_fn)dlsym(driver, names[i]);
      for (int set = 0; function != NULL && set < kSets; ++set)
        call_in_child(function, names[i], set, init);
    }
  }
  return 0;
}
