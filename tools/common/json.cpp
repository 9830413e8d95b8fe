#include "tools/common/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace convtrace::tools {
namespace {

using format::NumberClass;

Json scalar_json(format::Scalar value, NumberClass number, bool is_signed) {
  if (number == NumberClass::kFloat) return json_number(value.as_f64());
  return number == NumberClass::kSigned && is_signed ? Json(value.as_i64()) : Json(value.as_u64());
}

Json wide_json(format::WideScalar value, NumberClass number) {
  return number == NumberClass::kFloat ? json_number(value.as_f64())
                                       : Json(wide_integer_text(value));
}

}  // namespace

Json step_json(uint32_t step) { return step == format::kNoStep ? Json() : Json(step); }

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

std::string hex_text(uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string wide_integer_text(format::WideScalar value) {
  __extension__ using Wide = unsigned __int128;
  Wide magnitude = Wide{value.hi} << 64 | value.lo;
  const bool negative = (value.hi >> 63) != 0;
  if (negative) magnitude = Wide{0} - magnitude;
  std::string text;
  do {
    text += static_cast<char>('0' + static_cast<int>(magnitude % 10));
    magnitude /= 10;
  } while (magnitude != 0);
  if (negative) text += '-';
  std::reverse(text.begin(), text.end());
  return text;
}

Json stats_json(const format::Stats& s, format::DType dtype, format::Capture capture) {
  Json json;
  json["count"] = s.count;
  if (capture != format::Capture::kHash) {
    const NumberClass number = format::number_class(dtype);
    json["finite"] = s.finite;
    json["nan"] = s.nan;
    json["pos_inf"] = s.pos_inf;
    json["neg_inf"] = s.neg_inf;
    json["pos_zero"] = s.pos_zero;
    json["neg_zero"] = s.neg_zero;
    json["positive"] = s.positive;
    json["negative"] = s.negative;
    json["subnormal"] = s.subnormal;
    json["saturated"] = s.saturated;
    json["min"] = scalar_json(s.min, number, true);
    json["max"] = scalar_json(s.max, number, true);
    json["amax"] = scalar_json(s.amax, number, false);
    json["amin_nonzero"] = scalar_json(s.amin_nonzero, number, false);
    json["sum"] = wide_json(s.sum, number);
    json["l1"] = wide_json(s.l1, number);
    json["l2"] = json_number(s.l2);
    json["mean"] = json_number(s.mean);
    json["std"] = json_number(s.std);
    Json& sketch = json["sketch"];
    if (s.sketch.is_known()) {
      for (const float bucket : s.sketch.bucket)
        sketch.push_back(json_number(std::ldexp(static_cast<double>(bucket), s.sketch.exponent)));
    }
  }
  json["hash"] = hex_text(s.hash);
  return json;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string dump_json(const Json& json, int indent) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

}  // namespace convtrace::tools
