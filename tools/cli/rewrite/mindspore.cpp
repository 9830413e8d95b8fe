// A key of the dump without an equivalent is named in a comment of the output, never dropped silently.
// Source: MindSpore's documentation of MINDSPORE_DUMP_CONFIG.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "format/settings/pattern.h"
#include "format/settings/step_set.h"
#include "tools/cli/base/commands.h"
#include "tools/cli/base/output.h"
#include "tools/common/complaints.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"

namespace convtrace::tools {
namespace {

constexpr std::string_view kRegex = "name-regex(";

/// Keys that are converted, and the text that stands for all files.
constexpr std::string_view kUnderstood[] = {
    "iteration",  "support_device", "path",      "op_debug_mode", "saved_data",  "sample_mode",
    "sample_num", "enable",         "dump_mode", "kernels",       "input_output"};

/// Keys that configure how MindSpore dumps, not what.
constexpr std::pair<std::string_view, std::string_view> kMeaningless[] = {
    {"net_name", "the output pattern names the run"},
    {"trans_flag", "values are taken in their logical layout"},
    {"stat_calc_mode", "statistics are computed where the tensor lies"},
    {"device_stat_precision_mode", "floating sums are f64 always"},
    {"statistic_category", "every statistic is recorded"},
    {"overflow_number", "the trace is bounded by max_bytes"},
    {"file_format", "convtrace export --format npy writes .npy files"},
    {"initial_iteration", "steps count from 0 in this process"},
    {"save_kernel_args", "the parameters of a launch are recorded always"},
    {"sample_mode", "samples says how many values are kept"},
};

/// Collects rules separately, because TOML keys must precede the first table.
class Converter {
 public:
  explicit Converter(const Json& dump) : dump_(dump) {}
  [[nodiscard]] std::string convert();

 private:
  /// @return the value of a key in any of the file's groups; null if there is none.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] int64_t number(std::string_view key, int64_t otherwise);
  /// @return "" if the key is missing or no text; the latter is reported.
  [[nodiscard]] std::string text(std::string_view key);

  void note(const std::string& line) { head_ += "# " + line + '\n'; }
  void set(const std::string& key, const std::string& value) {
    head_ += key + " = " + value + '\n';
  }
  void add_steps_and_ranks();
  void add_output();
  void add_amount();
  void add_kernels();
  void add_rule(const std::string& name);
  void add_meaningless();
  void add_unknown(const Json& group);

  const Json& dump_;
  bool recorder_ = false;  ///< a flight recorder, which stores no values
  bool stores_ = false;
  bool any_rule_ = false;
  std::string head_, rules_;
};

const Json* Converter::find(std::string_view key) const {
  const Json* found = nullptr;
  for (const auto& [name, group] : dump_.items()) {
    if (name == key) found = &group;
    if (group.is_object() && group.contains(key)) found = &group[std::string(key)];
  }
  return found;
}

/// A number, or one in quotes.
std::optional<int64_t> number_in(const Json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

int64_t Converter::number(std::string_view key, int64_t otherwise) {
  const Json* const value = find(key);
  if (value == nullptr) return otherwise;
  const std::optional<int64_t> number = number_in(*value);
  if (!number) note(std::string(key) + ": it is no number; taken as " + std::to_string(otherwise));
  return number.value_or(otherwise);
}

std::string Converter::text(std::string_view key) {
  const Json* const value = find(key);
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  note(std::string(key) + ": " + escape_text(value->dump()) + " is no text; left out");
  return "";
}

void Converter::add_steps_and_ranks() {
  if (const std::string steps = text("iteration"); !steps.empty()) {
    if (settings::StepSet::parse_steps(steps).ok()) {
      set("steps", quote_toml(steps));
    } else {
      note("iteration: " + escape_text(steps) + " is not a list of steps; left out");
    }
  }
  const Json* const devices = find("support_device");
  if (devices == nullptr || (devices->is_array() && devices->empty())) return;
  if (!devices->is_array()) return note("support_device: it is no list of devices; left out");
  std::string ranks;
  for (const Json& device : *devices) {
    const std::optional<int64_t> number = number_in(device);
    if (!number || *number < 0)
      note("support_device: " + escape_text(device.dump()) + " is no device; left out");
    else
      ranks += (ranks.empty() ? "" : ",") + std::to_string(*number);
  }
  if (ranks.empty()) return note("support_device: it names no device; left out");
  note("support_device: devices of a host; ranks count through all hosts");
  set("ranks", quote_toml(ranks));
}

void Converter::add_output() {
  std::string folder;
  for (const char c : text("path")) folder += c == '%' ? "%%" : std::string(1, c);
  if (!folder.empty()) set("output", quote_toml(folder + "/%h-%r-%p.ctrace"));
}

void Converter::add_amount() {
  const int64_t debug = number("op_debug_mode", 0);
  recorder_ = debug == 3 || debug == 4;
  if (recorder_) {
    note("op_debug_mode: the last steps are kept in memory and written at a NaN or an overflow;");
    note("the inputs of the op are among them");
    set("ring", quote_toml("2,nan"));
  }
  const std::string saved = text("saved_data");
  if (!saved.empty() && saved != "statistic" && saved != "tensor" && saved != "full")
    note("saved_data: " + escape_text(saved) + " is not known; statistics are taken");
  stores_ = !recorder_ && (saved.empty() || saved == "tensor" || saved == "full");
  if (recorder_ && saved != "statistic")
    note("saved_data: a flight recorder keeps statistics, no tensors");
  if (number("sample_mode", 0) == 1) {
    const int64_t count = number("sample_num", 100);
    set("samples", std::to_string(count < 0 ? 0 : count > 4096 ? 4096 : count));
  }
  const Json* const enable = find("enable");
  if (enable != nullptr && !enable->is_boolean()) note("enable: it is not true or false; left out");
  if (enable != nullptr && *enable == Json(false)) set("enabled", "false");
}

void Converter::add_kernels() {
  const int64_t dump_mode = number("dump_mode", 0);
  const Json* const kernels = find("kernels");
  const bool listed = dump_mode == 1 && kernels != nullptr;
  if (dump_mode < 0 || dump_mode > 2)
    note("dump_mode: " + std::to_string(dump_mode) + " is not known; everything is taken");
  if (dump_mode == 0 && kernels != nullptr && !kernels->empty())
    note("kernels: dump_mode 0 takes everything, so the list is left out");
  if (listed && !kernels->is_array()) note("kernels: it is no list of names; left out");
  if (listed && kernels->is_array()) {
    if (number("input_output", 0) != 2)
      note(
          "input_output: a kernel's parameters do not say which it reads; name those in `inputs` "
          "of its rule");
    for (const Json& name : *kernels) {
      if (name.is_string() && !name.get_ref<const std::string&>().empty()) {
        add_rule(name.get<std::string>());
      } else {
        note("kernels: " + escape_text(name.dump()) + " is no name; left out");
      }
    }
  }
  if (dump_mode == 2)
    note("dump_mode 2: set_dump names cells in the script; write a [[rule]] with their scope");
  if (stores_ && listed && !any_rule_) {
    note("no kernel of the list could be converted: statistics are taken of all modules");
    set("mode", "\"stats\"");
  } else if (stores_ && !any_rule_) {
    note("every value of every step: name modules in a [[rule]] instead of all, it is far smaller");
    set("mode", "\"snapshot\"");
    set("all", "true");
  } else {
    set("mode", stores_ ? "\"snapshot\"" : "\"stats\"");
  }
}

/// An expression for a substring of the type in any case; convtrace's expressions have no flag for
/// that.
std::string any_case(std::string_view word) {
  std::string expression = "re:";
  for (const char c : word) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalpha(letter) != 0) {
      expression += {'[', static_cast<char>(std::toupper(letter)),
                     static_cast<char>(std::tolower(letter)), ']'};
    } else {
      if (std::isalnum(letter) == 0 && c != '_') expression += '\\';
      expression += c;
    }
  }
  return expression;
}

/// "Default/network-Net/_backbone-ResNet/layer1-Cell/conv1-Conv2d/Conv2D-op12" is the module
/// layer1.conv1: each part names a cell and its class, the last one the kernel.
std::string scope_of(std::string_view full_name) {
  std::vector<std::string_view> cells;
  for (size_t begin = 0; begin < full_name.size();) {
    const size_t end = std::min(full_name.find('/', begin), full_name.size());
    const std::string_view part = full_name.substr(begin, end - begin);
    const std::string_view cell = part.substr(0, part.find('-'));
    const bool wraps =
        cell == "Default" || cell == "Gradients" || cell == "network" || cell == "_backbone";
    if (end != full_name.size() && !wraps) cells.push_back(cell);
    begin = end + 1;
  }
  std::string scope;
  for (const std::string_view cell : cells) scope.append(scope.empty() ? "" : ".").append(cell);
  return scope;
}

void Converter::add_rule(const std::string& name) {
  const std::string from = "\n# kernels: " + escape_text(name) + '\n';
  const std::string capture = stores_ ? "capture = \"snapshot\"\n" : "capture = \"stats\"\n";
  const bool is_regex = name.starts_with(kRegex) && name.ends_with(')');
  const std::string scope = is_regex ? "" : scope_of(name);
  if (!scope.empty()) {
    rules_ += from + "[[rule]]\nscope = " + quote_toml("*" + scope) + '\n' + capture;
    any_rule_ = true;
    return;
  }
  const std::string kernel =
      is_regex ? "re:" + name.substr(kRegex.size(), name.size() - kRegex.size() - 1)
               : any_case(name);
  if (!settings::Pattern::compile(kernel).ok()) {
    rules_ += from + "# this is no regular expression here (ECMAScript): write a [[rule]] anew\n";
  } else if (name.find('/') != std::string::npos) {
    rules_ += from + "# kernels of CUDA have no such paths: write a [[rule]] with their scope\n";
  } else {
    rules_ +=
        from + "[[rule]]\nkernel = " + quote_toml(kernel) + "\noutputs = \"auto\"\n" + capture;
    any_rule_ = true;
  }
}

void Converter::add_meaningless() {
  for (const auto& [key, why] : kMeaningless) {
    if (find(key) != nullptr) note(std::string(key) + " has no meaning here: " + std::string(why));
  }
}

/// Reports unknown keys, which MindSpore ignores silently.
void Converter::add_unknown(const Json& group) {
  for (const auto& [key, value] : group.items()) {
    if (value.is_object()) {
      add_unknown(value);
    } else if (std::ranges::find(kUnderstood, key) == std::end(kUnderstood) &&
               std::ranges::find(kMeaningless, key, [](const auto& known) {
                 return known.first;
               }) == std::end(kMeaningless)) {
      note(escape_text(key) + " is not a field of MindSpore's Dump known here; left out");
    }
  }
}

std::string Converter::convert() {
  add_output();
  add_steps_and_ranks();
  add_amount();
  add_kernels();
  add_meaningless();
  add_unknown(dump_);
  return head_ + rules_;
}

struct ConfigOptions {
  std::string dump;
};

ExitCode print_config(const ConfigOptions& options) {
  const std::string& path = options.dump;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const Json dump = Json::parse(text.str(), nullptr, false);
  const bool sound = dump.is_object() && dump.contains("common_dump_settings") &&
                     dump["common_dump_settings"].is_object();
  if (!sound) {
    const bool read = file.is_open() && !text.str().empty();
    complain(MessageId::kBadDump, path,
             read ? "it is no JSON object with common_dump_settings" : "it cannot be read");
    return ExitCode::kUsage;
  }
  Output output;
  output.line(Converter(dump).convert());
  return output.finish(ExitCode::kClean);
}

}  // namespace

void add_config(Commands& commands) {
  auto [command, options] = commands.add<ConfigOptions>(
      "config", "Settings made of other programs' configurations", print_config);
  command
      .add_option("--from-mindspore", options.dump,
                  "A MindSpore Dump configuration: prints the TOML file that asks for the same")
      ->required()
      ->type_name("FILE");
}

}  // namespace convtrace::tools
