#include "cupti/driver/context_table.h"

#include <optional>

#include "tests/support/catch.h"

namespace convtrace::cupti {
namespace {

CUcontext context(uintptr_t number) { return reinterpret_cast<CUcontext>(number); }

TEST_CASE("context_table: a context is on its device until it is removed", "[context_table]") {
  ContextTable table;
  CHECK_FALSE(table.device_of(context(1)).has_value());
  CHECK(table.add(context(1), 3));
  CHECK(table.add(context(2), 4));
  CHECK_FALSE(table.add(context(1), 3));
  CHECK(table.device_of(context(1)) == uint8_t{3});
  CHECK(table.device_of(context(1)) == uint8_t{3});
  CHECK(table.device_of(context(2)) == uint8_t{4});
  table.remove(context(1));
  CHECK_FALSE(table.device_of(context(1)).has_value());
  CHECK(table.device_of(context(2)) == uint8_t{4});
  CHECK(table.add(context(1), 5));  // the same handle, for a context of another device
  CHECK(table.device_of(context(1)) == uint8_t{5});
}

TEST_CASE("context_table: a handle of another id is another context", "[context_table]") {
  ContextTable table;
  CHECK_FALSE(table.is_another(context(1), 7));  // not known at all
  CHECK(table.add(context(1), 3));
  CHECK_FALSE(table.is_another(context(1), 7));  // its id is learnt
  CHECK_FALSE(table.is_another(context(1), 7));
  CHECK(table.is_another(context(1), 8));
  CHECK(table.add(context(2), 3, 9));
  CHECK(table.is_another(context(2), 7));
}

TEST_CASE("context_table: what one table answered is no answer of another", "[context_table]") {
  std::optional<ContextTable> table(std::in_place);
  table->add(context(1), 3);
  CHECK(table->device_of(context(1)) == uint8_t{3});
  table.emplace();  // at the same place
  CHECK_FALSE(table->device_of(context(1)).has_value());
}

}  // namespace
}  // namespace convtrace::cupti
