#include <optional>
#include <utility>

#include "base/check.h"
#include "parallel/communicator.h"

namespace lantern {
namespace {

class SingleCommunicator final : public Communicator {
 public:
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 1; }
  Status all_reduce(std::span<int64_t> values, Reduction) override {
    CHECK(values.size() <= kMaxValues, "{} values are reduced at once", values.size());
    if (aborted_) return *aborted_;
    return {};
  }
  void abort(Error why) override {
    if (!aborted_) aborted_ = std::move(why);
  }

 private:
  std::optional<Error> aborted_;
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator() { return std::make_unique<SingleCommunicator>(); }

}  // namespace lantern
