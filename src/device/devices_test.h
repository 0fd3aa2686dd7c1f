// The devices that a test of device behaviour runs on. Each is a parameter even where it cannot be had: the test is
// then skipped with the reason, and nothing is left out in silence.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace lantern::test {

struct DeviceFactory {
  std::string name;
  Result<std::unique_ptr<Device>> (*make)();
};

inline std::vector<DeviceFactory> test_devices() {
  return {{"cpu", []() -> Result<std::unique_ptr<Device>> { return make_host_device(2); }},
          {"cuda", [] { return make_cuda_device(); }}};
}

// A test for each device. `device_` is there when the body runs.
class DeviceTest : public testing::TestWithParam<DeviceFactory> {
 protected:
  void SetUp() override {
    // A child of a death test makes its own device: a GPU cannot be used across fork.
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
    Result<std::unique_ptr<Device>> device = GetParam().make();
    if (!device.ok()) GTEST_SKIP() << "no device: " << device.error().message();
    device_ = std::move(device).value();
  }
  // Another device of the same kind.
  std::unique_ptr<Device> another_device() const {
    Result<std::unique_ptr<Device>> device = GetParam().make();
    return device.ok() ? std::move(device).value() : nullptr;
  }

  std::unique_ptr<Device> device_;
};

inline std::string device_name(const testing::TestParamInfo<DeviceFactory>& info) { return info.param.name; }

}  // namespace lantern::test
