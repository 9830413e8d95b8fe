/* The few functions of NCCL that tests of its wrappers need, as libnccl.so.2 and inside a library of
 * another name: each answers with a number of its own. It is of an age that has no ncclAlltoAll. */
#ifndef FIRST_ANSWER
#define FIRST_ANSWER 30
#endif

/* As in NCCL, each has a second name. */
#define FUNCTION(name, answer)                       \
  __attribute__((weak)) int name(void);              \
  int name(void) { return FIRST_ANSWER + (answer); } \
  int p##name(void) __attribute__((alias(#name)));
FUNCTION(ncclAllReduce, 1)
FUNCTION(ncclSend, 2)
FUNCTION(ncclCommDestroy, 3)
FUNCTION(ncclGroupStart, 4)

/* Without a second name. */
int ncclGroupEnd(void);
int ncclGroupEnd(void) { return FIRST_ANSWER + 5; }
int ncclCommCount(const void* comm, int* count);
int ncclCommCount(const void* comm, int* count) {
  *count = comm != 0 ? FIRST_ANSWER : 0;
  return 0;
}
/* No wrapper. */
int ncclGetVersion(void);
int ncclGetVersion(void) { return FIRST_ANSWER + 6; }

/* Calls of the library itself go where the loader bound them. */
int calls_all_reduce(void);
int calls_all_reduce(void) {
  volatile int answer = ncclAllReduce(); /* no tail call, which would hide who calls */
  return answer;
}
