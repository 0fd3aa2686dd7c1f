// One persistent buffer of int32 cut into named parts, each aligned to 256 bytes. A part asked for twice is a bug.
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
  // Counts first: `layout` is called with the arena twice, as Workspace does it.
  template <class Layout>
  Status create(Device& device, std::string_view owner, const Layout& layout) {
    layout(*this);
    const int64_t ints = used_;
    used_ = 0;
    ASSIGN_OR_RETURN(buffer_, PersistentBuffer<int32_t>::create(device, owner, ints));
    layout(*this);
    return {};
  }
  // `count` elements; an empty view while counting.
  Fixed<int32_t> take(int64_t count) {
    const int64_t begin = used_;
    used_ += (count + kAlignment - 1) / kAlignment * kAlignment;
    return buffer_ == nullptr ? Fixed<int32_t>() : buffer_->fixed().sub(begin, count);
  }
  Fixed<int32_t> all() const { return buffer_->fixed(); }
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

  std::unique_ptr<PersistentBuffer<int32_t>> buffer_;
  int64_t used_ = 0;
};

}  // namespace lantern::plan
