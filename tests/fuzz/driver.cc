// Runs a fuzz target as a test, with any compiler: all seeds, then a fixed number of mutations from
// a fixed random sequence. The input at work lies in a mapped file, so that it survives a crash.
#include "target.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using Random = std::mt19937_64;

constexpr std::size_t kMaxInput = 1U << 20U;

std::size_t below(Random& random, std::size_t limit) {
  return limit == 0 ? 0 : static_cast<std::size_t>(random() % limit);
}

/// The words of all seeds: keys, values and punctuation that the decoders know.
std::vector<std::string> dictionary(const std::vector<std::string>& seeds) {
  std::set<std::string> words = {"{}",
                                 "[]",
                                 "null",
                                 "true",
                                 "-1",
                                 "1e999",
                                 "\"\"",
                                 "\\u0000",
                                 "18446744073709551616",
                                 "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                 "<x>",
                                 "&lt;",
                                 std::string(1, '\0'),
                                 "\xFF\xFE"};
  for (const std::string& seed : seeds) {
    std::string word;
    for (const char c : seed) {
      const bool part = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '_' || c == '.';
      if (part && word.size() < 40) {
        word += c;
      } else if (words.size() < 2000 && word.size() > 1) {
        words.insert(std::exchange(word, {}));
      } else {
        word.clear();
      }
    }
  }
  return {words.begin(), words.end()};
}

void mutate_once(std::string& input, const std::vector<std::string>& seeds,
                 const std::vector<std::string>& words, Random& random) {
  const std::size_t at = below(random, input.size() + 1);
  const std::size_t length = below(random, 1 + std::min<std::size_t>(input.size() - at, 64));
  switch (random() % 8) {
    case 0:
    case 1:
      if (at < input.size()) {
        input[at] = static_cast<char>(input[at] ^ (1 << below(random, 8)));
      }
      break;
    case 2:
      if (at < input.size()) {
        input[at] = static_cast<char>(random());
      }
      break;
    case 3:
      input.resize(at);
      break;
    case 4:
      input.erase(at, length);
      break;
    case 5:
      input.insert(at, input.substr(at, length));
      break;
    case 6:
      input.replace(at, length, words[below(random, words.size())]);
      break;
    default: {
      const std::string& other = seeds[below(random, seeds.size())];
      input = input.substr(0, at) + other.substr(below(random, other.size() + 1));
      break;
    }
  }
}

class LastInput {
 public:
  explicit LastInput(std::string path) : path_(std::move(path)) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void* memory = MAP_FAILED;
    if (fd >= 0 && ::ftruncate(fd, kMaxInput) == 0) {
      memory = ::mmap(nullptr, kMaxInput, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED) {
      std::perror(path_.c_str());
      std::exit(1);
    }
    bytes_ = static_cast<char*>(memory);
    fd_ = fd;
  }
  ~LastInput() {
    ::munmap(bytes_, kMaxInput);
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  LastInput(const LastInput&) = delete;
  LastInput& operator=(const LastInput&) = delete;

  void run(const std::string& input) {
    // An exact copy on the heap, so that a sanitizer sees a read of one byte too many.
    const std::vector<std::uint8_t> copy(input.begin(), input.end());
    std::memcpy(bytes_, input.data(), input.size());
    if (::ftruncate(fd_, static_cast<off_t>(input.size())) != 0) {
      std::perror("ftruncate");
    }
    LLVMFuzzerTestOneInput(copy.data(), copy.size());
    if (::ftruncate(fd_, kMaxInput) != 0) {
      std::perror("ftruncate");
    }
  }

 private:
  std::string path_;
  char* bytes_ = nullptr;
  int fd_ = -1;
};

int replay(int count, char** files) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(files[i], std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    std::printf("%s: %zu bytes\n", files[i], input.size());
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
  }
  return 0;
}

}  // namespace

/// NAME --runs N: the test. NAME FILE...: those inputs only.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s --runs N | FILE...\n", argv[0]);
    return 2;
  }
  if (std::strcmp(argv[1], "--runs") != 0) {
    return replay(argc - 1, argv + 1);
  }
  const unsigned long runs = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1000;
  const std::vector<std::string> seeds = tapas::fuzz::seeds();
  const std::vector<std::string> words = dictionary(seeds);
  const std::string path = std::string(argv[0]) + ".last-input";
  std::printf("the input of a crash is in %s: give that file to this program\n", path.c_str());
  std::fflush(stdout);
  LastInput last(path);
  for (const std::string& seed : seeds) {
    last.run(seed);
  }
  Random random(20'260'501);
  // With TAPAS_LONG set for a minute at least.
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::seconds(std::getenv("TAPAS_LONG") != nullptr ? 60 : 0);
  unsigned long i = 0;
  for (; i < runs || std::chrono::steady_clock::now() < until; ++i) {
    std::string input = seeds[below(random, seeds.size())];
    for (std::size_t n = 1 + below(random, 4); n > 0; --n) {
      mutate_once(input, seeds, words, random);
    }
    input.resize(std::min(input.size(), kMaxInput));
    last.run(input);
  }
  std::printf("%zu seeds and %lu mutations\n", seeds.size(), i);
  return 0;
}
