#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/cli/base/commands.h"
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

struct PathOptions {};

struct EnvOptions {
  bool shell = false, slurm = false, docker = false, k8s = false, ray = false;
};

ExitCode print(const std::string& library, const std::string& text) {
  if (library.empty()) return ExitCode::kFailure;
  Output output;
  output.line(text);
  return output.finish(ExitCode::kClean);
}

ExitCode print_env(const EnvOptions& options) {
  const std::string library = preload_library();
  return print(library, options.slurm    ? for_slurm(library)
                        : options.docker ? for_docker(library)
                        : options.k8s    ? for_kubernetes(library)
                        : options.ray    ? for_ray(library)
                                         : for_shell(library));
}

}  // namespace

void add_preload_commands(Commands& commands) {
  (void)commands.add<PathOptions>("path", "Print the path of the preload library",
                                  [](const PathOptions&) {
                                    const std::string library = preload_library();
                                    return print(library, library);
                                  });
  auto [env, options] = commands.add<EnvOptions>(
      "env", "Print how a shell or a cluster preloads the library", print_env);
  env.require_option(0, 1);
  env.add_flag("--shell", options.shell,
               "A line for a shell, the default: eval \"$(convtrace env)\"");
  env.add_flag("--slurm", options.slurm, "An srun command");
  env.add_flag("--docker", options.docker, "A docker command");
  env.add_flag("--k8s", options.k8s, "A part of a pod's specification, YAML");
  env.add_flag("--ray", options.ray, "A command that submits a Ray job");
}

}  // namespace convtrace::tools
