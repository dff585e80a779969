// The report of a long search: how long the page takes to be made, how large it is, what its parts
// weigh, and, where a Chromium is installed, how long it takes to open and how high it is. On the
// command line: the number of trials (10000), and a folder in which the page is then kept.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/report.h"
#include "tests/reports/many_trials_helper.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;
constexpr int kRepeats = 3;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string find_browser() {
  for (const char* path :
       {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

/// What each section and each piece of data weighs, the largest first.
void tell_parts(const std::string& page) {
  std::vector<std::pair<size_t, std::string>> parts;
  const auto add = [&](std::string_view open, std::string_view close) {
    for (size_t at = page.find(open); at != std::string::npos; at = page.find(open, at + 1)) {
      const size_t name = at + open.size();
      const size_t end = page.find(close, name);
      if (end == std::string::npos) break;
      parts.emplace_back(end - at, page.substr(at, page.find('"', name) - at));
    }
  };
  add("<section id=\"", "</section>");
  add("<script type=\"application/json\" id=\"", "</script>");
  std::ranges::sort(parts, std::greater());
  for (const auto& [bytes, name] : parts) {
    if (bytes > page.size() / 100) {
      fmt::print("  {:>10} bytes  {}\n", bytes, name.substr(name.rfind('"') + 1));
    }
  }
}

/// Opens the page as a reader would and prints what it says of itself once all of it is laid out.
void open_page(const fs::path& folder, const std::string& page) {
  // Charts are drawn one after the other once the page can be read; changing the theme draws all.
  constexpr std::string_view kProbe =
      "<script>window.addEventListener('load', () => {"
      "const loaded = performance.now(); document.getElementById('theme').click();"
      "const height = document.documentElement.scrollHeight;"
      "const charts = [...document.querySelectorAll('.chart')].map((c) => c.offsetHeight);"
      "const out = document.createElement('output'); out.id = 'probe';"
      "out.textContent = [loaded.toFixed(0), performance.now().toFixed(0), height,"
      "Math.max(0, ...charts), document.querySelectorAll('*').length].join(' ');"
      "document.body.append(out);});</script>";
  const std::string browser = find_browser();
  if (browser.empty()) {
    fmt::print("opening: no Chromium found (Debian: apt-get install chromium)\n");
    return;
  }
  std::string probed = page;
  probed.insert(probed.rfind("</body>"), kProbe);
  std::ofstream(folder / "probed.html", std::ios::binary) << probed;
  for (int i = 0; i < kRepeats; ++i) {
    const std::string command = fmt::format(
        "timeout 300 {} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
        "--no-first-run --user-data-dir={}/profile --window-size=1400,1000 --dump-dom "
        "'file://{}/probed.html' > {}/dom.html 2> /dev/null",
        browser, folder.string(), folder.string(), folder.string());
    const bool is_opened = std::system(command.c_str()) == 0;
    const std::string dom = text_of(folder / "dom.html");
    const size_t at = dom.rfind("id=\"probe\">");
    if (!is_opened || at == std::string::npos) {
      fmt::print("opening: the page did not load within 300 s\n");
      return;
    }
    const std::string told = dom.substr(at + 11, dom.find('<', at) - at - 11);
    fmt::print("opening: ms, with all charts ms, height in px, highest chart in px, elements: {}\n",
               told);
  }
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void run(int num_trials, const fs::path& folder) {
  const std::string database = (folder / "many.db").string();
  const std::string html = (folder / "many.html").string();
  fs::remove(database);
  fs::remove(html);
  tests::make_many_trials(database, num_trials);
  fmt::print("{} trials, a database of {} bytes\n", num_trials, fs::file_size(database));
  for (int i = 0; i < kRepeats; ++i) {
    const double start = processor_seconds();
    const int64_t bytes = reports::write_report(database, html);
    fmt::print("page: {:.2f} s of the processor, {} bytes\n", processor_seconds() - start, bytes);
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("most memory: {} MiB\n", usage.ru_maxrss / 1024);
  const std::string page = text_of(html);
  tell_parts(page);
  open_page(folder, page);
}

}  // namespace
}  // namespace moetune

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  const int num_trials = argc > 1 ? std::atoi(argv[1]) : 10'000;
  if (num_trials < 10) {
    std::fputs("reports_bench [TRIALS, at least 10] [FOLDER]\n", stderr);
    return 2;
  }
  std::string folder = argc > 2 ? argv[2] : "";
  const bool is_kept = !folder.empty();
  if (is_kept) {
    fs::create_directories(folder);
    folder = fs::absolute(folder).string();
  } else {
    folder = (fs::temp_directory_path() / "moetune-reports-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return 1;
  }
  moetune::run(num_trials, folder);
  std::error_code ignored;
  for (const char* name : {"profile", "probed.html", "dom.html"}) {
    fs::remove_all(fs::path(folder) / name, ignored);
  }
  if (!is_kept) fs::remove_all(folder, ignored);
  return 0;
}
