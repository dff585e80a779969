// How far a search that the store keeps has come: a sweep or a hunt.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/base/names.h"

namespace moetune::store {

enum class SearchStatus : uint8_t {
  running,  ///< also where its process was killed
  done,
  interrupted,
  failed,
};

inline constexpr std::array kSearchStatuses = {
    base::Named<SearchStatus>{SearchStatus::running, "running"},
    base::Named<SearchStatus>{SearchStatus::done, "done"},
    base::Named<SearchStatus>{SearchStatus::interrupted, "interrupted"},
    base::Named<SearchStatus>{SearchStatus::failed, "failed"}};

constexpr std::string_view name_of(SearchStatus status) {
  return base::name_in(kSearchStatuses, status);
}
/// Reads what name_of wrote. Another text, which only a foreign hand writes into a database, is an
/// interrupted search: what is stored may not be all.
constexpr SearchStatus search_status_of(std::string_view name) {
  return base::find_in<SearchStatus>(kSearchStatuses, name).value_or(SearchStatus::interrupted);
}

}  // namespace moetune::store
