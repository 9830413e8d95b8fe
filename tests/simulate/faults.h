#pragma once
/// @file faults.h
/// Plants faults in the programs of ranks.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulate/options.h"
#include "tests/simulate/program.h"

namespace convtrace::simulate {

/// One fault, and where it struck.
struct Fault {
  Origin origin;
  uint64_t element = 0;  ///< modulo the number of elements
  uint32_t bit = 0;      ///< modulo the width
  float factor = 1;
  bool struck = false;  ///< the job came so far
  std::string text;
  std::string op, group;  ///< of the collective that it struck, if any
  uint64_t number = 0;
};

/// Makes `program`, which is that of origin.rank in origin.step, go wrong.
/// @return false: nothing in it can go wrong in this way.
[[nodiscard]] bool plant(Fault& fault, Program& program, const Model& model, const Layout& layout,
                         const Groups& groups, uint64_t seed);

/// Steps after that of a fault of kind scale go wrong, too.
void plant_again(Fault& fault, Program& program);

}  // namespace convtrace::simulate
