/// @file prepared.h
/// Waits until convtrace can compute on the devices: its kernels have been launched once in each context.
#ifndef CONVTRACE_TESTS_INTEGRATION_PROGRAMS_PREPARED_H
#define CONVTRACE_TESTS_INTEGRATION_PROGRAMS_PREPARED_H

#include <stdint.h>
#include <time.h>

uint64_t fakecuda_launches(void); /* tests/fakecuda/hook.h */

static inline void sleep_for_ms(long ms) {
  const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
}

/// `most_ms`: how long, where they never are, as in a program that is not traced.
static inline void wait_until_prepared(unsigned contexts, long most_ms) {
  enum {
    kWarmUp = 4,
    kStepMs = 5,
    kLastMs = 250
  }; /* launches in a context; for what is done behind them */
  for (long ms = 0; ms < most_ms - kLastMs && fakecuda_launches() < contexts * kWarmUp;
       ms += kStepMs)
    sleep_for_ms(kStepMs);
  sleep_for_ms(most_ms < kLastMs ? most_ms : kLastMs);
}

#endif
