#include "interposer/core/runtime/lock_free_queue.h"

#include <map>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace convtrace::engine;

namespace {

struct Thing {
  int thread = 0;
  int number = 0;
  std::unique_ptr<Thing> next;
};

std::unique_ptr<Thing> make(int thread, int number) {
  auto thing = std::make_unique<Thing>();
  thing->thread = thread;
  thing->number = number;
  return thing;
}

}  // namespace

TEST_CASE("hand_over: what many threads put in comes out once, each thread's in order",
          "[engine]") {
  constexpr int kThreads = 4, kEach = 10'000;
  LockFreeQueue<Thing> between;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&between, t] {
      for (int i = 0; i < kEach; ++i) between.put(make(t, i));
    });
  }
  std::map<int, int> expected;
  int out_of_order = 0;
  for (int taken = 0; taken < kThreads * kEach;) {
    for (auto one = between.take_all(); one != nullptr; one = std::move(one->next)) {
      out_of_order += one->number != expected[one->thread]++;
      ++taken;
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(out_of_order == 0);
  CHECK(between.take_all() == nullptr);
}

TEST_CASE("hand_over: a long list that nobody takes is freed", "[engine]") {
  LockFreeQueue<Thing> between;
  for (int i = 0; i < 1'000'000; ++i) between.put(make(0, i));
}
