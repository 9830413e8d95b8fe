/// @file exit_notice.c
/// Explains at the end of CMD why `convtrace run -- CMD` made no trace. The process of CMD itself prints
/// the message if neither it nor a process that it started left the mark of a traced process
/// (format/settings/run_mark.h), and no child still runs. For a command that failed the message only
/// says so: the reason is in the command's own last lines.
///
/// Threads:  runs at the process's end, after its exit handlers.
/// Errors:   none; a closed stderr is left alone, and so is a mark that the program has closed.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cupti/abi/hooks_v1.h"
#include "format/settings/run_mark_name.h"

int convtrace_explained_v1 = 0;

/// @return the descriptor of the mark, -1 if this is not the command of `convtrace run`.
static int mark_of_command(void) {
  const char* announced = getenv("CONVTRACE_RUN");
  char* rest = NULL;
  if (announced == NULL || strtol(announced, &rest, 10) != (long)getpid() || *rest != ':')
    return -1;
  return (int)strtol(rest + 1, NULL, 10);
}

static int is_empty_mark(int descriptor) {
  static const char kLink[] = CONVTRACE_RUN_MARK_LINK;
  char path[64], target[sizeof kLink];
  struct stat file;
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  /* By its number: a libc before 2.33 has no function of that name. */
  return readlink(path, target, sizeof target) == (ssize_t)sizeof kLink - 1 &&
         memcmp(target, kLink, sizeof kLink - 1) == 0 &&
         syscall(SYS_fstat, descriptor, &file) == 0 && file.st_size == 0;
}

static int has_children(void) {
  siginfo_t child;
  return waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* As QuietWrites of format/base/guarded_file.h: a pipe that nobody reads, or a full file, would end the
 * process by a signal, and with another status than the command's. */
static void say(const char* text) {
  static const int kRaised[] = {SIGPIPE, SIGXFSZ};
  const struct timespec now = {0, 0};
  sigset_t raised, ours, before;
  sigemptyset(&before);
  sigpending(&before);
  sigemptyset(&raised);
  sigemptyset(&ours);
  for (size_t i = 0; i < sizeof kRaised / sizeof *kRaised; ++i) {
    sigaddset(&raised, kRaised[i]);
    if (!sigismember(&before, kRaised[i])) sigaddset(&ours, kRaised[i]);
  }
  if (sigprocmask(SIG_BLOCK, &raised, &before) != 0) return;
  const ssize_t written = write(STDERR_FILENO, text, strlen(text));
  if (written < 0) sigtimedwait(&ours, NULL, &now);
  sigprocmask(SIG_SETMASK, &before, NULL);
}

/// @param status  as exit() was given it, of which the system keeps eight bits.
static void explain(int status) {
  const int mark = mark_of_command();
  if (mark < 0 || convtrace_explained_v1 || !is_empty_mark(mark) || has_children()) return;
  char line[256];
  if ((status & 0xff) == 0) {
    say("convtrace: CT-2202 nothing was traced on this machine: no kernel was launched and no "
        "PyTorch module called within sight; `convtrace doctor -- CMD` looks for what is in the "
        "way\n");
  } else {
    snprintf(line, sizeof line,
             "convtrace: CT-2202 nothing was traced on this machine: the command ended with exit "
             "code %d before it launched a kernel or called a PyTorch module\n",
             status & 0xff);
    say(line);
  }
}

/* Weak: a musl program has no such function, and loads this library too. */
extern int on_exit(void (*handler)(int, void*), void* argument) __attribute__((weak));

static int knows_status;

static void leave_with_status(int status, void* unused) {
  (void)unused;
  explain(status);
}

/* Called before main: what is registered then runs behind the destructors of all libraries. */
void convtrace_await_exit(void) {
  knows_status = on_exit != NULL && mark_of_command() >= 0 && on_exit(leave_with_status, NULL) == 0;
}

__attribute__((destructor)) static void leave_process(void) {
  if (!knows_status) explain(0);
}
