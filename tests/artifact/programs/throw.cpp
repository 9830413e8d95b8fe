// Exceptions that cross frames, with dlsym called below a cleanup.
#include <dlfcn.h>

#include <cstdio>
#include <stdexcept>

struct Cleanup {
  ~Cleanup() { std::puts("cleanup"); }
};

static void deep(int depth) {
  const Cleanup cleanup;
  if (depth == 0) throw std::runtime_error(dlsym(nullptr, "puts") != nullptr ? "caught" : "lost");
  deep(depth - 1);
}

int main() {
  try {
    deep(2);
  } catch (const std::exception& error) {
    std::puts(error.what());
  }
}
