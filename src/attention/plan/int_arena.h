// One buffer of int32 cut into parts, each aligned to 256 bytes from its beginning.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "device/persistent_buffer.h"

namespace lantern::plan {

class IntArena {
 public:
  // No machine has as much; sums of as many products of two int32 as a layout has stay in int64 below it.
  static constexpr int64_t kMost = int64_t{1} << 56;

  // Counts first: `layout` is called with the arena twice, as Workspace does it.
  template <class Layout>
  Status create(Device& device, std::string_view owner, const Layout& layout) {
    const int64_t ints = count(layout);
    ASSIGN_OR_RETURN(buffer_, PersistentBuffer<int32_t>::create(device, owner, ints));
    lay_out_in(buffer_->fixed(), layout);
    return {};
  }
  // The same in memory of somebody else's, of at least count(layout) elements.
  template <class Layout>
  void lay_out_in(const Fixed<int32_t>& memory, const Layout& layout) {
    memory_ = memory;
    used_ = 0;
    layout(*this);
  }
  // Elements that the layout takes; kMost for that many or more.
  template <class Layout>
  int64_t count(const Layout& layout) {
    used_ = 0;
    layout(*this);
    return used_;
  }
  // `count` elements; an empty view while counting.
  Fixed<int32_t> take(int64_t count) {
    const int64_t begin = used_;
    used_ = std::min(used_ + (count + kAlignment - 1) / kAlignment * kAlignment, kMost);
    return memory_.empty() ? Fixed<int32_t>() : memory_.sub(begin, count);
  }
  Fixed<int32_t> all() const { return memory_; }
  void fill(Device& device, int32_t value) const {
    const std::vector<int32_t> values(static_cast<size_t>(std::min<int64_t>(all().size(), kFillChunk)), value);
    for (int64_t at = 0; at < all().size(); at += kFillChunk) {
      const int64_t count = std::min<int64_t>(kFillChunk, all().size() - at);
      device.copy_to_device(all().sub(at, count).data(), values.data(), static_cast<size_t>(count) * sizeof(int32_t));
    }
  }

 private:
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kFillChunk = 1 << 20;

  std::unique_ptr<PersistentBuffer<int32_t>> buffer_;  // null in somebody else's memory
  Fixed<int32_t> memory_;
  int64_t used_ = 0;
};

}  // namespace lantern::plan
