// lantern_faulty_server FAULT STEP serve ...: as `lantern serve ...`, but at that step the device breaks. FAULT is
// "hang-submit", "hang-wait", "lose" or "hang-load", which comes before the first.
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/serve.h"
#include "engine/executor.h"

namespace {

using namespace lantern;

[[noreturn]] void hang() {
  while (true) pause();
}

class FaultyExecutor final : public Executor {
 public:
  FaultyExecutor(std::unique_ptr<Executor> executor, std::string fault, int64_t step)
      : executor_(std::move(executor)), fault_(std::move(fault)), step_(step) {}

  Status submit(const StepBatch& batch) override {
    if (++submitted_ >= step_ && fault_ == "hang-submit") hang();
    return executor_->submit(batch);
  }
  bool ready() const override { return submitted_ < step_ && executor_->ready(); }
  Status wait(StepResults& results) override {
    if (submitted_ >= step_ && fault_ == "hang-wait") hang();
    if (submitted_ >= step_ && fault_ == "lose") return Error(ErrorCode::kIo, "the cable was pulled");
    return executor_->wait(results);
  }

 private:
  std::unique_ptr<Executor> executor_;
  const std::string fault_;
  const int64_t step_;
  int64_t submitted_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s FAULT STEP serve ...\n", argv[0]);
    return cli::kBadUsage;
  }
  const std::string fault = argv[1];
  const int64_t step = std::stoll(argv[2]);
  const cli::Invocation invocation = cli::parse_command_line(std::vector<std::string>(argv + 3, argv + argc));
  if (invocation.command == nullptr) {
    std::fputs(invocation.text.c_str(), stderr);
    return cli::kBadUsage;
  }
  cli::ignore_closed_pipes();
  cli::watch_interrupts();
  const Result<int> outcome =
      cli::serve_with_hooks(invocation.values, {{.wrap = [&](std::unique_ptr<Executor> executor) {
                              if (fault == "hang-load") {
                                std::fputs("loading hangs\n", stderr);
                                hang();
                              }
                              return std::make_unique<FaultyExecutor>(std::move(executor), fault, step);
                            }}});
  if (outcome.ok()) return *outcome;
  cli::print_error(outcome.error().message());
  return cli::kFailure;
}
