/// @file farewell.c
/// Whoever says `convtrace run -- CMD` and gets no trace is told why at the end of CMD. Only that
/// very process speaks: which of its children was meant to be traced nobody can know, so one that
/// had children says nothing.
///
/// Threads:  runs at the process's end, after its exit handlers.
/// Errors:   none; a closed stderr is left alone.

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cupti/hooks_v1.h"

int convtrace_explained_v1 = 0;

static int is_command_of_run(void) {
  const char* process = getenv("CONVTRACE_RUN");
  return process != NULL && strtol(process, NULL, 10) == (long)getpid();
}

/// Those that were waited for have left their use of memory behind; the others can be waited for.
static int has_or_had_children(void) {
  struct rusage used;
  siginfo_t child;
  return (getrusage(RUSAGE_CHILDREN, &used) == 0 && used.ru_maxrss != 0) ||
         waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0;
}

__attribute__((destructor)) static void leave_process(void) {
  static const char kLine[] =
      "convtrace: nothing was traced: no kernel was launched and no PyTorch module called; "
      "`convtrace doctor -- CMD` looks for what is in the way\n";
  if (convtrace_explained_v1 || !is_command_of_run() || has_or_had_children()) return;
  const ssize_t written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
  (void)written;
}
