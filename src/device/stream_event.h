// A place in a stream's work, with the time at which the stream came to it: what launches are timed with.
#pragma once

#include <memory>

#include "device/stream.h"

namespace lantern {

class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  // Of the stream, which must outlive it; to be recorded as often as wanted.
  static std::unique_ptr<StreamEvent> make(Stream& stream);

  // From now on the place behind everything launched so far. Broken invariant while this thread captures.
  void record() {
    CaptureGuard::forbid("StreamEvent::record()");
    do_record();
  }
  // Whether the stream has come to this place, and a wait until it has. It must have been recorded.
  virtual bool passed() const = 0;
  virtual void wait() const = 0;
  // Waits until the stream has come to this place. Both must have been recorded, on one stream.
  virtual double seconds_since(const StreamEvent& earlier) const = 0;

 protected:
  StreamEvent() = default;
  virtual void do_record() = 0;
};

// Of a stream with a native handle: for StreamEvent::make().
std::unique_ptr<StreamEvent> make_cuda_event(Stream& stream);

}  // namespace lantern
