// The moetune program: finds the sub-command and is the only place that catches everything.
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "engine/spec/trial_status.h"
#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"

namespace {

int fail(const char* message, moetune::spec::ExitCode code) {
  std::cout.flush();
  std::fprintf(stderr, "moetune: %s\n", message);
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  using moetune::spec::ExitCode;
  // A file that grows past its limit (ulimit -f) is an error of that write, not the end of the
  // program.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = moetune::sweeps::run_command({argv, argv + argc});
    std::cout.flush();
    if (!std::cout) return fail("standard output cannot be written", ExitCode::failed);
    return code;
  } catch (const moetune::base::UsageError& error) {
    return fail(error.what(), ExitCode::usage);
  } catch (const moetune::base::EnvironmentFailure& error) {
    return fail(error.what(), ExitCode::environment);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", ExitCode::failed);
  } catch (const std::exception& error) {
    return fail(error.what(), ExitCode::failed);
  }
}
