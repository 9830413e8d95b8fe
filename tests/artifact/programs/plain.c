/* Built against musl, and statically: says how it was started and, given arguments, becomes them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const char* core = getenv("CONVTRACE_CORE");
  if (argc > 1) return execvp(argv[1], argv + 1);
  puts(core != NULL ? "traced" : "plain");
  return 0;
}
