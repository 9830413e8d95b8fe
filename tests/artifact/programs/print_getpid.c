/* Says whether getpid comes negated exactly once (programs/second_preload.c). */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
  puts(getpid() == -(pid_t)syscall(SYS_getpid) ? "next definition" : "something else");
  return 0;
}
