// What `lantern` prints with --json.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "process.h"

namespace lantern::test {

// The one JSON object of the output. Fails the test where there is another.
inline boost::json::object json_of(const Outcome& outcome) {
  boost::json::error_code failure;
  const boost::json::value document = boost::json::parse(outcome.out, failure);
  if (failure || !document.is_object()) {
    ADD_FAILURE() << "not a JSON object: " << outcome.out;
    return {};
  }
  return document.get_object();
}

}  // namespace lantern::test
