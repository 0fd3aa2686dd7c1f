// How an op with several implementations chooses one: the first of an ordered list that takes what is to be done; the
// last one takes everything. Launches choose by the very lists that --explain-dispatch prints and --require-impl looks
// into. What an entry refuses is a pure function of host values, so that choices are tested without a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lantern {

// What choices know of a device. Zeros: a CPU.
struct DeviceTraits {
  int32_t compute_capability = 0;  // 90 is 9.0
  int32_t most_shared_bytes = 0;   // of shared memory, that a block may ask for
};

// Why an implementation is passed over; without a reason it is not.
struct Refusal {
  const char* reason = nullptr;  // one clause
  // It is not missing anything: for such a launch another one is faster or is what the op asks for.
  bool by_choice = false;

  explicit operator bool() const { return reason != nullptr; }
};
inline Refusal cannot(const char* reason) { return {.reason = reason, .by_choice = false}; }
inline Refusal not_meant(const char* reason) { return {.reason = reason, .by_choice = true}; }

// `Desc` is what a choice depends on beside the device.
template <class Desc>
struct Implementation {
  const char* name;                                      // "linear.sm90a.wgmma": op, then where it runs
  Refusal (*refuses)(const Desc&, const DeviceTraits&);  // null: it takes everything
};
// `Index` is an enumeration in the order of the entries.
template <class Index, class Desc>
using Implementations = std::array<Implementation<Desc>, static_cast<size_t>(Index::kCount)>;

template <class Index, class Desc, size_t kCount>
Index choose(const std::array<Implementation<Desc>, kCount>& list, const Desc& desc, const DeviceTraits& device) {
  size_t i = 0;
  while (i + 1 < kCount && list[i].refuses(desc, device)) ++i;
  return static_cast<Index>(i);
}

// An entry of a list as a choice sees it.
struct Considered {
  const char* name = nullptr;
  Refusal refusal;

  friend bool operator==(const Considered& a, const Considered& b) {
    return a.name == b.name && a.refusal.reason == b.refusal.reason;
  }
};

// All entries in order: the first that does not refuse is the one that choose() takes.
template <class Desc, size_t kCount>
std::vector<Considered> consider(const std::array<Implementation<Desc>, kCount>& list, const Desc& desc,
                                 const DeviceTraits& device) {
  std::vector<Considered> all;
  all.reserve(kCount);
  for (const Implementation<Desc>& entry : list) {
    all.push_back({entry.name, entry.refuses == nullptr ? Refusal{} : entry.refuses(desc, device)});
  }
  return all;
}

}  // namespace lantern
