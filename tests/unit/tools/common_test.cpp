#include <array>
#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tools/common/element.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace {

using namespace convtrace;
using format::DType;

template <typename T>
double decoded(DType dtype, T raw) {
  return tools::decode_component(dtype, reinterpret_cast<const std::byte*>(&raw));
}

}  // namespace

TEST_CASE("escape: control characters, C1, DEL and invalid UTF-8 never reach a terminal",
          "[tools][escape]") {
  CHECK(tools::escape_text("gemm\x1b[31m\n\t") == "gemm\\x1b[31m\\x0a\\x09");
  CHECK(tools::escape_text("\x7f\xc2\x9b"
                           "31m") == "\\x7f\\x9b31m");
  CHECK(tools::escape_text("\xff\xc0\x80\xed\xa0\x80") == "\\xff\\xc0\\x80\\xed\\xa0\\x80");
  CHECK(tools::escape_text("a\xe2\x80\xae"
                           "b") == "a\\u{202e}b");
  CHECK(tools::escape_text("cut\xe2\x80") == "cut\\xe2\\x80");
}

TEST_CASE("escape: printable text of any language stays readable", "[tools][escape]") {
  CHECK(tools::escape_text("größe→Ω 核 h.0.mlp") == "größe→Ω 核 h.0.mlp");
  CHECK(tools::escape_text("a\\x1b") == "a\\\\x1b");
}

TEST_CASE("escape: markup, CSV, TOML and shell each neutralise their own syntax",
          "[tools][escape]") {
  CHECK(tools::escape_markup("<a b='\"&'>") == "&lt;a b=&#39;&quot;&amp;&#39;&gt;");
  CHECK(tools::escape_csv("a\"b,c") == "\"a\"\"b,c\"");
  CHECK(tools::escape_csv("=cmd()") == "\"'=cmd()\"");
  CHECK(tools::quote_toml("a\"b\\\x1b") == "\"a\\\"b\\\\\\u001B\"");
  CHECK(tools::quote_shell("train.py") == "train.py");
  CHECK(tools::quote_shell("a b'c") == "'a b'\\''c'");
  CHECK(tools::quote_shell("") == "''");
}

TEST_CASE("json: what JSON cannot hold becomes text", "[tools][json]") {
  CHECK(tools::json_number(std::nan("")) == "nan");
  CHECK(tools::json_number(-std::numeric_limits<double>::infinity()) == "-inf");
  CHECK(tools::json_number(0.5) == 0.5);
  CHECK(tools::hex_text(0xABC) == "0x0000000000000abc");
  CHECK(tools::wide_integer_text({0, 1}) == "18446744073709551616");
  CHECK(tools::wide_integer_text({~0ull, ~0ull}) == "-1");
  CHECK(tools::wide_integer_text({0, 1ull << 63}) == "-170141183460469231731687303715884105728");
}

TEST_CASE("json: a hash-only record shows its hash and count alone", "[tools][json]") {
  format::Stats stats;
  stats.count = 3;
  stats.hash = 7;
  const auto json = tools::stats_json(stats, DType::kF32, format::Capture::kHash);
  CHECK(json.size() == 2);
  CHECK(json["hash"] == "0x0000000000000007");
  CHECK(json["count"] == 3);
}

TEST_CASE("json: integer statistics are read by the class of the dtype", "[tools][json]") {
  format::Stats stats;
  stats.min = format::Scalar::i64(-5);
  stats.amax = format::Scalar::u64(1ull << 63);
  stats.sum = {~0ull, ~0ull};
  const auto json = tools::stats_json(stats, DType::kI64, format::Capture::kStats);
  CHECK(json["min"] == -5);
  CHECK(json["amax"] == 1ull << 63);
  CHECK(json["sum"] == "-1");
}

TEST_CASE("json: hostile names come out as printable ASCII", "[tools][json]") {
  CHECK(tools::dump_json(tools::Json("\x1b\x7f\xff")) == "\"\\u001b\\u007f\\ufffd\"");
}

TEST_CASE("element: every small float format decodes by its definition", "[tools][element]") {
  CHECK(decoded<uint16_t>(DType::kF16, 0x3C00) == 1.0);
  CHECK(decoded<uint16_t>(DType::kF16, 0x0001) == std::ldexp(1.0, -24));
  CHECK(std::isinf(decoded<uint16_t>(DType::kF16, 0xFC00)));
  CHECK(decoded<uint16_t>(DType::kBF16, 0xC000) == -2.0);
  CHECK(decoded<uint8_t>(DType::kF8E4M3FN, 0x7E) == 448.0);
  CHECK(std::isnan(decoded<uint8_t>(DType::kF8E4M3FN, 0x7F)));
  CHECK(decoded<uint8_t>(DType::kF8E5M2, 0x7B) == 57344.0);
  CHECK(std::isinf(decoded<uint8_t>(DType::kF8E5M2, 0x7C)));
  CHECK(decoded<int8_t>(DType::kI8, -3) == -3.0);
  CHECK(decoded<uint8_t>(DType::kF8E8M0FNU, 0) == 0x1p-127);
  CHECK(decoded<uint8_t>(DType::kF8E8M0FNU, 0xFE) == 0x1p127);
  CHECK(std::isnan(decoded<uint8_t>(DType::kF8E8M0FNU, 0xFF)));
}

TEST_CASE("element: a stored byte of f4e2m1fn is two samples, its lower half first",
          "[tools][element]") {
  const std::vector<std::byte> stored = {std::byte{0x10}, std::byte{0x32}, std::byte{0x54},
                                         std::byte{0x76}, std::byte{0x98}, std::byte{0xFE}};
  const auto samples = tools::as_samples(DType::kF4E2M1FN, stored);
  CHECK(tools::decode_elements(DType::kF4E2M1FN, samples) ==
        std::vector<double>{0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -4, -6});
  CHECK(std::signbit(decoded<uint8_t>(DType::kF4E2M1FN, 8)));
  CHECK(tools::as_samples(DType::kF8E8M0FNU, stored) == stored);
}

TEST_CASE("element: complex elements are two real components", "[tools][element]") {
  const std::array<float, 4> raw{1, -2, 3, -4};
  const auto values = tools::decode_elements(DType::kC64, std::as_bytes(std::span(raw)));
  CHECK(values == std::vector<double>{1, -2, 3, -4});
}

TEST_CASE("text: counts, failures and kernel names read well", "[tools][text]") {
  CHECK(tools::count_text(1234567) == "1,234,567");
  CHECK(tools::count_text(999) == "999");
  CHECK(tools::counted(1, "step") == "1 step");
  CHECK(tools::status_text(Status::make(StatusCode::kIoError, "open", 2)) ==
        "No such file or directory");
  CHECK(tools::number_text(-std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(tools::demangled("_Z3addPfS_") == "add(float*, float*)");
  CHECK(tools::demangled("triton_poi_fused_0") == "triton_poi_fused_0");
  CHECK(tools::kernel_title("_Z3addPfS_") == "add");
  CHECK(tools::kernel_title("triton_poi_fused_0") == "triton_poi_fused_0");
  CHECK(tools::kernel_title("void a::b<c::{lambda(int)#1}, 4>(int, a::d<void (*)(int)>)") ==
        "a::b<c::{lambda(int)#1}, 4>");
  CHECK(tools::kernel_title("std::enable_if<!(false), void>::type a::gemv<int, float>(int)") ==
        "a::gemv<int, float>");
  CHECK(tools::kernel_title("void at::native::(anonymous namespace)::copy<at::native::Op>(int)") ==
        "copy<Op>");
  for (const std::string_view odd : {"()", "a)", "(a", "a<(b)", "void (*)(int)"})
    CHECK(tools::kernel_title(odd).size() <= odd.size());
  CHECK(tools::kernel_title(std::string(120, 'a')) == std::string(120, 'a'));
  // What tells kernels of one template apart is often behind.
  CHECK(tools::kernel_title(std::string(100, 'a') + std::string(100, 'b')) ==
        std::string(60, 'a') + "..." + std::string(57, 'b'));
  CHECK(tools::kernel_title(std::string(59, 'a') + "\u00e4" + std::string(100, 'b')) ==
        std::string(59, 'a') + "..." + std::string(57, 'b'));
}

TEST_CASE("text: shares and factors are plain numbers", "[tools][text]") {
  CHECK(tools::percent_text(1.8, 2) == "180 %");
  CHECK(tools::percent_text(0.00213) == "0.213 %");
  CHECK(tools::percent_text(0.02) == "2 %");
  CHECK(tools::percent_text(18.34, 2) == "1,800 %");
  CHECK(tools::percent_text(0) == "0 %");
  CHECK(tools::percent_text(1) == "100 %");
  CHECK(tools::percent_text(0.9999999) == "over 99.99 %");
  CHECK(tools::percent_text(0.5, 5) == "50 %");
  CHECK(tools::percent_text(1.0 / 6.5e6, 5) == "under 0.0001 %");
  CHECK(tools::percent_text(std::numeric_limits<double>::infinity()) == "inf %");
  CHECK(tools::times_text(2.5) == "2.5");
  CHECK(tools::times_text(499'999.7) == "500,000");
  CHECK(tools::times_text(9.996) == "10");
  CHECK(tools::times_text(1e30) == "over 1,000,000,000");
  for (double value = 1.1e-6; value < 1e12; value *= 1.7) {
    for (const char* exponent : {"e+", "e-"}) {
      CHECK(tools::percent_text(value, 2).find(exponent) == std::string::npos);
      CHECK(tools::times_text(value * 1e4).find(exponent) == std::string::npos);
    }
  }
}

TEST_CASE("tools: sums of integers are exact near 0 on both sides", "[tools][element]") {
  constexpr uint64_t kAll = ~uint64_t{0};
  const auto of = [](uint64_t low, uint64_t high) {
    return tools::wide_as_double(DType::kI64, {low, high});
  };
  CHECK(of(3, 0) == 3);
  CHECK(of(0 - uint64_t{3}, kAll) == -3);
  CHECK(of(kAll, kAll) == -1);
  CHECK(of(0, kAll) == -0x1p64);
  CHECK(of(0, uint64_t{1} << 63) == -0x1p127);
  CHECK(of(kAll, kAll >> 1) == 0x1p127);
}
