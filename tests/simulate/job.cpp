#include "tests/simulate/job.h"

#include <sys/resource.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "tests/simulate/exchange.h"
#include "tests/simulate/trace_file.h"
#include "tools/common/on_threads.h"

namespace convtrace::simulate {
namespace {

constexpr uint64_t kMostRecords = 250'000;
constexpr uint64_t kTransferNs = 20'000;

class Job {
 public:
  Job(const Options& options, World& world, JobResult& result)
      : options_(options),
        world_(world),
        result_(result),
        threads_(options.threads != 0 ? options.threads
                                      : std::max(1U, std::thread::hardware_concurrency())),
        exchange_(world, [this](const Call& call, const std::vector<Value>& received) {
          done_.emplace_back(call, received);
        }) {
    for (uint32_t rank = 0; rank < world.layout.ranks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(world, rank));
      files_.push_back(std::make_unique<TraceFile>(world, options.output, rank));
    }
    world.maker.forget();
  }

  bool run(std::string& error) {
    for (step_ = 0; step_ < options_.steps && !result_.hangs; ++step_) {
      plan();
      ++result_.steps;
      run_step();
      write();
      world_.maker.forget();
    }
    if (!result_.hangs)
      tools::on_threads(files_.size(), threads_, [this](size_t i) { files_[i]->close(); });
    for (const auto& file : files_) {
      if (!file->status().ok()) {
        error = std::string(file->status().site) + ": " + to_string(file->status().code);
        return false;
      }
      result_.bytes += file->bytes();
      result_.events += file->events();
    }
    return true;
  }

 private:
  void plan() {
    if (step_ <= 1) {
      programs_.clear();
      for (uint32_t stage = 0; stage < world_.layout.stages; ++stage)
        programs_.push_back(program_of(world_.model, world_.layout, stage, step_ == 0));
    }
    own_programs_.clear();
    for (Fault& fault : result_.faults) {
      const bool begins = fault.origin.step == step_;
      const bool goes_on = fault.origin.kind == FaultKind::kScale && fault.origin.step < step_;
      if (!begins && !goes_on) continue;
      const auto [own, added] = own_programs_.try_emplace(
          fault.origin.rank, programs_[world_.layout.stage_of(fault.origin.rank)]);
      if (goes_on) {
        plant_again(fault, own->second);
      } else {
        (void)plant(fault, own->second, world_.model, world_.layout, world_.groups, world_.seed);
      }
    }
  }

  void run_step() {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto own = own_programs_.find(rank);
      const Program& shared = programs_[world_.layout.stage_of(rank)];
      ranks_[rank]->begin(step_, own != own_programs_.end() ? own->second : shared);
      ready_.push_back(rank);
    }
    size_t ended = 0;
    while (!ready_.empty()) {
      const uint32_t rank = ready_.front();
      ready_.pop_front();
      ended += go(rank) ? 1 : 0;
      if (unwritten_ > kMostRecords) write();
    }
    result_.hangs = ended < ranks_.size();
  }

  /// Lets a rank go on until it waits. @return whether its step has ended.
  bool go(uint32_t number) {
    Rank& rank = *ranks_[number];
    const size_t before = rank.records.size();
    bool waits = false;
    while (!waits && !rank.is_done()) {
      if (rank.next().what != Do::kCollective) {
        rank.compute();
      } else {
        waits = !call(rank);
      }
    }
    unwritten_ += rank.records.size() - std::min(before, rank.records.size());
    return rank.is_done();
  }

  /// @return whether the rank goes on at once.
  bool call(Rank& rank) {
    const Call call = rank.prepare();
    const Fault* fault = call.instruction->fault;
    if (fault != nullptr && fault->origin.kind == FaultKind::kSkip) {
      if (!fault->struck) result_.faults[fault_index(fault)].number = exchange_.number_of(call);
      rank.skip(call);
      return true;
    }
    rank.record_call(call, exchange_.number_of(call));
    ++result_.calls;
    exchange_.make(call);
    bool goes_on = false;
    uint64_t latest = 0;
    for (const auto& [one, received] : done_) latest = std::max(latest, ranks_[one.rank]->now_ns);
    const std::vector<std::pair<Call, std::vector<Value>>> done = std::exchange(done_, {});
    for (const auto& [one, received] : done) {
      Rank& other = *ranks_[one.rank];
      const bool sends = one.info.op == "send";
      other.now_ns = (sends ? other.now_ns : latest) + kTransferNs;
      other.complete(one, received);
      if (one.rank == call.rank) {
        goes_on = true;
      } else {
        ready_.push_back(one.rank);
      }
    }
    return goes_on;
  }

  [[nodiscard]] size_t fault_index(const Fault* fault) const {
    return static_cast<size_t>(fault - result_.faults.data());
  }

  void write() {
    std::vector<const Tensor*> tensors;
    for (const auto& rank : ranks_)
      for (const Record& record : rank->records)
        if (record.value && !std::exchange(record.value->wanted, true))
          tensors.push_back(record.value.get());
    tools::on_threads(tensors.size(), threads_, [&](size_t i) { summarize(*tensors[i]); });
    tools::on_threads(files_.size(), threads_, [this](size_t i) {
      files_[i]->append(step_, ranks_[i]->records);
      files_[i]->flush();  // or each would keep a chunk open: megabytes a rank
      ranks_[i]->records.clear();
    });
    unwritten_ = 0;
  }

  const Options& options_;
  World& world_;
  JobResult& result_;
  uint32_t threads_;
  uint32_t step_ = 0;
  Exchange exchange_;
  std::vector<std::pair<Call, std::vector<Value>>> done_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::unique_ptr<TraceFile>> files_;
  std::vector<Program> programs_;  ///< of each stage
  std::map<uint32_t, Program> own_programs_;
  std::deque<uint32_t> ready_;
  uint64_t unwritten_ = 0;
};

/// A trace of each rank is open.
void allow_files(uint32_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > count + 64) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, count + 64);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

bool write_summary(const Options& options, const JobResult& result) {
  nlohmann::ordered_json origins = nlohmann::ordered_json::array();
  for (const Fault& fault : result.faults) {
    nlohmann::ordered_json one = {{"rank", fault.origin.rank},
                                  {"step", fault.origin.step},
                                  {"kind", kFaultNames[static_cast<size_t>(fault.origin.kind)]},
                                  {"struck", fault.struck},
                                  {"text", fault.text},
                                  {"collective", nullptr}};
    if (!fault.op.empty())
      one["collective"] = {{"op", fault.op}, {"group", fault.group}, {"number", fault.number}};
    origins.push_back(std::move(one));
  }
  const Layout& layout = result.layout;
  const nlohmann::ordered_json job = {
      {"ranks", layout.ranks},
      {"data", layout.data},
      {"tensor", layout.tensor},
      {"stages", layout.stages},
      {"steps", result.steps},
      {"seed", options.seed},
      {"layers", result.model.layers},
      {"micro_batches", result.model.micro_batches},
      {"elements", result.model.elements},
      {"types", kTypeNames[static_cast<size_t>(result.model.types)]},
      {"sharded", result.model.sharded},
      {"cheap", options.cheap},
      {"hangs", result.hangs},
      {"calls", result.calls},
      {"events", result.events},
      {"bytes", result.bytes},
      {"origins", origins}};
  std::ofstream file(options.output + "/job.json");
  file << job.dump(1) << '\n';
  return file.good();
}

bool is_possible(const Options& options, const Layout& layout, std::string& error) {
  if (layout.ranks == 0) {
    error = "ranks are not data * tensor * stages";
    return false;
  }
  for (const Origin& origin : options.origins) {
    if (origin.rank < options.ranks && origin.step < options.steps) continue;
    error = "the job has no rank " + std::to_string(origin.rank) + " in step " +
            std::to_string(origin.step);
    return false;
  }
  return true;
}

bool make_folder(const std::string& path, std::string& error) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  const bool empty = !failed && std::filesystem::is_empty(path, failed);
  if (!empty || failed) error = path + " is not an empty folder";
  return empty && !failed;
}

/// @return whether every fault can be planted, before anything is written.
bool can_plant(const World& world, const std::vector<Origin>& origins, std::string& error) {
  for (const Origin& origin : origins) {
    Program program =
        program_of(world.model, world.layout, world.layout.stage_of(origin.rank), origin.step == 0);
    Fault trial;
    trial.origin = origin;
    if (plant(trial, program, world.model, world.layout, world.groups, world.seed)) continue;
    error = "nothing on rank " + std::to_string(origin.rank) + " can go wrong in the way of " +
            std::string(kFaultNames[static_cast<size_t>(origin.kind)]);
    return false;
  }
  return true;
}

}  // namespace

bool make_job(const Options& options, JobResult& result, std::string& error) {
  const Layout layout = Layout::choose(options.ranks, options.data, options.tensor, options.stages);
  if (!is_possible(options, layout, error)) return false;
  World world{.layout = layout,
              .groups = Groups(layout),
              .model = Model::of(options, layout),
              .seed = options.seed,
              .names = {},
              .maker = {}};
  if (!can_plant(world, options.origins, error)) return false;
  if (!make_folder(options.output, error)) return false;
  result.layout = layout;
  result.model = world.model;
  for (const Origin& origin : options.origins) result.faults.emplace_back().origin = origin;
  allow_files(layout.ranks);
  if (!Job(options, world, result).run(error)) return false;
  if (write_summary(options, result)) return true;
  error = "job.json cannot be written";
  return false;
}

}  // namespace convtrace::simulate
