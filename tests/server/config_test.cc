// `lantern serve` with its settings from a file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "server_process.h"
#include "socket_client.h"
#include "tiny_server.h"

namespace lantern::test {
namespace {

class ServeConfigTest : public ::testing::Test {
 protected:
  ServeConfigTest()
      : path_(std::filesystem::temp_directory_path() / ("lantern_serve_" + std::to_string(getpid()) + ".yaml")) {}
  ~ServeConfigTest() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

TEST_F(ServeConfigTest, AFileConfiguresTheServer) {
  // The model of the command line wins over the file's.
  std::ofstream(path_) << "model: /nowhere\nserved-model-name: [alpha, beta]\nmax_model_len: 512\n"
                       << "api-key: secret\naccess-log: false\n";
  const ServerProcess server({"--config", path_.string()});
  EXPECT_EQ(get(server.port(), "/v1/models").status, 401);
  const boost::json::object models = get(server.port(), "/v1/models", "Authorization: Bearer secret\r\n").json();
  EXPECT_EQ(text_of(models.at("data").at(0).at("id")), "alpha");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len"), 512);
}

TEST_F(ServeConfigTest, AModelOnTheCommandLineWinsOverTheEnvironments) {
  const ServerProcess server({}, true, {"LANTERN_MODEL=/nowhere"});
  EXPECT_EQ(get(server.port(), "/ready").status, 200);
}

TEST_F(ServeConfigTest, AFileThatMakesNoSenseIsBadUsage) {
  std::ofstream(path_) << "port: 0\nmax-conections: 5\n";
  ServerProcess server({"--config", path_.string()}, false);
  EXPECT_EQ(server.wait_for_end(), 2);
  EXPECT_NE(server.err().find(path_.string() + ": line 2: lantern serve has no setting 'max-conections', did you mean "
                                               "'max-connections'?"),
            std::string::npos)
      << server.err();
}

}  // namespace
}  // namespace lantern::test
