#include "tools/cli/run/preload_commands.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/cli/base/output.h"
#include "tools/cli/run/run.h"

namespace convtrace::tools {
namespace {

/// A word of a POSIX shell.
std::string shell_word(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,";
  if (text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

/// A string of JSON, which YAML reads as well.
std::string json_string(const std::string& text) { return nlohmann::json(text).dump(); }

/// The folder that holds lib/, bin/ and share/.
std::string tree_of(const std::string& library) {
  return std::filesystem::path(library).parent_path().parent_path().string();
}

std::string for_shell(const std::string& library) {
  return "export LD_PRELOAD=" + shell_word(library) + "${LD_PRELOAD:+:$LD_PRELOAD}";
}

std::string for_slurm(const std::string& library) {
  return "# The path must exist on every node.\n"
         "srun --export=" +
         shell_word("ALL,LD_PRELOAD=" + library) + " python train.py";
}

std::string for_docker(const std::string& library) {
  const std::string tree = tree_of(library);
  return "docker run --volume " + shell_word(tree + ":" + tree + ":ro") + " --env " +
         shell_word("LD_PRELOAD=" + library) + " IMAGE python train.py";
}

std::string for_kubernetes(const std::string& library) {
  const std::string tree = json_string(tree_of(library));
  return "# Part of a pod's specification. The folder must exist on every node.\n"
         "spec:\n"
         "  containers:\n"
         "    - name: train\n"
         "      env:\n"
         "        - name: LD_PRELOAD\n"
         "          value: " +
         json_string(library) +
         "\n"
         "      volumeMounts:\n"
         "        - name: convtrace\n"
         "          mountPath: " +
         tree +
         "\n"
         "          readOnly: true\n"
         "  volumes:\n"
         "    - name: convtrace\n"
         "      hostPath:\n"
         "        path: " +
         tree +
         "\n"
         "        type: Directory";
}

std::string for_ray(const std::string& library) {
  const nlohmann::json environment = {{"env_vars", {{"LD_PRELOAD", library}}}};
  return "# The path must exist on every node.\n"
         "ray job submit --runtime-env-json=" +
         shell_word(environment.dump()) + " -- python train.py";
}

}  // namespace

PreloadCommands::PreloadCommands(CLI::App& app)
    : path_(app.add_subcommand("path", "Print the path of the preload library")),
      env_(app.add_subcommand("env", "Print how a shell or a cluster preloads the library")) {
  env_->require_option(0, 1);
  env_->add_flag("--shell", shell_, "A line for a shell, the default: eval \"$(convtrace env)\"");
  env_->add_flag("--slurm", slurm_, "An srun command");
  env_->add_flag("--docker", docker_, "A docker command");
  env_->add_flag("--k8s", k8s_, "A part of a pod's specification, YAML");
  env_->add_flag("--ray", ray_, "A command that submits a Ray job");
}

ExitCode PreloadCommands::run() const {
  const std::string library = preload_library();
  if (library.empty()) return ExitCode::kFailure;
  Output output;
  output.line(path_->parsed() ? library
              : slurm_        ? for_slurm(library)
              : docker_       ? for_docker(library)
              : k8s_          ? for_kubernetes(library)
              : ray_          ? for_ray(library)
                              : for_shell(library));
  return output.finish(ExitCode::kClean);
}

}  // namespace convtrace::tools
