// Sequences by the order in which they are to be served: a binary heap that knows where each member is. Adding and
// removing cost O(log n); looking at the first k in order costs O(k log k) and changes nothing, however many wait.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace lantern {

// Members are ids in [0, capacity); keys are compared with <. After the constructor nothing allocates.
template <class Key>
class ServiceQueue {
 public:
  explicit ServiceQueue(int32_t capacity) : position_(static_cast<size_t>(capacity), kAbsent) {
    heap_.reserve(static_cast<size_t>(capacity));
  }

  int32_t size() const { return static_cast<int32_t>(heap_.size()); }
  bool empty() const { return heap_.empty(); }
  bool contains(int32_t id) const { return position_[static_cast<size_t>(id)] != kAbsent; }
  int32_t first() const { return heap_.front().id; }
  const Key& first_key() const { return heap_.front().key; }

  void insert(int32_t id, const Key& key) {
    CHECK(!contains(id), "sequence {} is in the queue already", id);
    heap_.push_back({key, id});
    position_[static_cast<size_t>(id)] = size() - 1;
    rise(size() - 1);
  }

  void erase(int32_t id) {
    CHECK(contains(id), "sequence {} is not in the queue", id);
    const int32_t hole = position_[static_cast<size_t>(id)];
    const Entry last = heap_.back();
    heap_.pop_back();
    position_[static_cast<size_t>(id)] = kAbsent;
    if (last.id == id) return;
    place(hole, last);
    rise(hole);
    sink(position_[static_cast<size_t>(last.id)]);
  }

  // Walks the members in order. Usable while the queue does not change; keep one and restart() it to allocate nothing.
  class Walk {
   public:
    explicit Walk(int32_t capacity) { frontier_.reserve(static_cast<size_t>(capacity) + 1); }

    void restart(const ServiceQueue& queue) {
      queue_ = &queue;
      frontier_.clear();
      if (!queue.empty()) frontier_.push_back(0);
    }
    // The next member, or -1 at the end.
    int32_t next() {
      if (frontier_.empty()) return -1;
      const auto later = [&](int32_t a, int32_t b) { return queue_->entry(b).key < queue_->entry(a).key; };
      std::pop_heap(frontier_.begin(), frontier_.end(), later);
      const int32_t place = frontier_.back();
      frontier_.pop_back();
      for (int32_t child = 2 * place + 1; child <= 2 * place + 2 && child < queue_->size(); ++child) {
        frontier_.push_back(child);
        std::push_heap(frontier_.begin(), frontier_.end(), later);
      }
      return queue_->entry(place).id;
    }

   private:
    const ServiceQueue* queue_ = nullptr;
    std::vector<int32_t> frontier_;  // places in the heap whose parents were visited
  };

  // Whether heap and positions agree, for validators.
  bool consistent() const {
    for (int32_t place = 0; place < size(); ++place) {
      if (position_[static_cast<size_t>(entry(place).id)] != place) return false;
      if (place > 0 && entry(place).key < entry((place - 1) / 2).key) return false;
    }
    return std::ranges::count_if(position_, [](int32_t place) { return place != kAbsent; }) == size();
  }

 private:
  static constexpr int32_t kAbsent = -1;
  struct Entry {
    Key key;
    int32_t id;
  };

  const Entry& entry(int32_t place) const { return heap_[static_cast<size_t>(place)]; }
  void place(int32_t where, const Entry& entry) {
    heap_[static_cast<size_t>(where)] = entry;
    position_[static_cast<size_t>(entry.id)] = where;
  }
  void rise(int32_t where) {
    const Entry moving = entry(where);
    while (where > 0 && moving.key < entry((where - 1) / 2).key) {
      place(where, entry((where - 1) / 2));
      where = (where - 1) / 2;
    }
    place(where, moving);
  }
  void sink(int32_t where) {
    const Entry moving = entry(where);
    for (int32_t child = 2 * where + 1; child < size(); child = 2 * where + 1) {
      if (child + 1 < size() && entry(child + 1).key < entry(child).key) ++child;
      if (!(entry(child).key < moving.key)) break;
      place(where, entry(child));
      where = child;
    }
    place(where, moving);
  }

  std::vector<Entry> heap_;
  std::vector<int32_t> position_;  // by id: place in the heap
};

}  // namespace lantern
