// What the kernels of each class cost a run, and what launching them does, as far as their names
// tell a class: a change that touches only such kernels saves no more.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "profiler/analysis/kernel_classes.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Shares of a rank's time by class of kernels, of the rank where each is largest. Copies and fills
/// within a device are of the classes of kernels that do the same. Kernels without a name, those
/// whose name says nothing, and whole graphs are `other`: they may be of any class.
struct KernelCosts {
  using Ratios = std::array<double, static_cast<size_t>(KernelClass::count)>;

  /// In which such kernels ran, on any of its streams. Zero of those that communicate.
  Ratios run = {};
  /// That its host took to launch them: for each the time since the launch before it, with the
  /// program in between, but not with a call that waits for the device or allocates. Of graphs that
  /// are launched at once it is `other`.
  Ratios launch = {};

  /// Adds a rank by its judged window. `wide`: of the same trace.
  void add(const ImportedTrace& trace, const TraceWindow& window, const WorkClasses& wide);
};

/// Of a ceiling of all classes, `whole`, what is left for some of them: no more than they and
/// `other` have. Where `whole` is more than one rank has of all classes, as ranks wait for one
/// another, they have their part of it. Zero ratios say that nothing is known: then it is `whole`.
double ceiling_of_classes(std::span<const KernelClass> classes, const KernelCosts::Ratios& ratios,
                          double whole);

}  // namespace moetune::profiler
