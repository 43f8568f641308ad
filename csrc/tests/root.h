// root.h — a made-up file system for code that reads /proc and /sys.
#ifndef SIE_CSRC_TESTS_ROOT_H
#define SIE_CSRC_TESTS_ROOT_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

// A folder used as /; the destructor removes it with everything in it.
class Root {
 public:
  Root() {
    char path[] = "/tmp/sie_limits_XXXXXX";
    root_ = mkdtemp(path);
  }
  ~Root() {
    std::string command = "rm -rf " + root_;
    if (system(command.c_str()) != 0) fprintf(stderr, "could not remove %s\n", root_.c_str());
  }
  Root(const Root &) = delete;
  Root &operator=(const Root &) = delete;

  void file(const std::string &path, const std::string &text) {
    for (size_t slash = 1; (slash = path.find('/', slash)) != std::string::npos; slash++) {
      mkdir((root_ + path.substr(0, slash)).c_str(), 0700);
    }
    FILE *out = fopen((root_ + path).c_str(), "w");
    fputs(text.c_str(), out);
    fclose(out);
  }
  const char *path() const { return root_.c_str(); }

 private:
  std::string root_;
};

#endif  // SIE_CSRC_TESTS_ROOT_H
